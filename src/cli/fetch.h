// SPDX-License-Identifier: Apache-2.0
// Fetches objects in parts of 8 MiB, several parts of several objects at a time. cat and cp put
// the bytes where they belong.
#pragma once

#include "base/list.h"
#include "cli/session.h"

#define FETCH_PART ((uint64_t)8 << 20)

struct fetch;

struct fetch_object {
    // set by the caller
    char *key;
    char *etag; // "" : whatever is there
    uint64_t size;
    uint64_t offset; // of the range wanted; [offset, size) is fetched
    bool part;       // the object may have bytes beyond size
    void *user;

    // private
    uint64_t next_offset; // of the next part to ask for
    uint64_t due_offset;  // ordered: of the next part to hand over
    unsigned parts_in_flight;
    bool opened, ended;
    int error;
    char error_text[S3_ERROR_TEXT];
};

struct fetch_config {
    unsigned parallel; // parts in flight
    bool ordered;      // bytes are handed over front to back, one object after the other
    // All on the session's loop. open before an object's first byte; write once per part; <0 from
    // either ends this object with that error (and, if ordered, all). end: exactly once per object.
    int (*open)(void *arg, struct fetch_object *o);
    int (*write)(void *arg, struct fetch_object *o, uint64_t offset, const void *data, size_t len);
    void (*end)(void *arg, struct fetch_object *o, int error, const char *text);
    void (*progress)(void *arg, uint64_t bytes); // landed since the last call; may be NULL
    void *arg;
};

// Fetches n objects; returns when all have ended: 0, or the first object's error (the others were
// still tried unless ordered). Each element's private part must be zero.
int fetch_run(struct session *s, const struct fetch_config *c, struct fetch_object *objects,
              size_t n);
