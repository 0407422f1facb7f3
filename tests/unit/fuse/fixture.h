// SPDX-License-Identifier: Apache-2.0
// A session between a file system that only notes what it is asked, and a wire that only notes
// what it should send.
#pragma once

#include "cache/dest.h"
#include "fuse/fuse_session.h"
#include "fuse/holdings.h"

#define ANSWER_MAX (512 * 1024)

struct fs {
    const char *op; // the last one, NULL before the first
    unsigned ops;
    struct fs_request *req;
    uint64_t node, handle, offset, n;
    uint32_t size, cmd;
    int flags;
    bool plus;
    char name[512];
    size_t name_len, in_len, out_size;
    // unlookup and unopen
    unsigned undone;
    uint64_t undone_sum;
    uint64_t uniques[2]; // of the last two requests
};

struct fixture {
    struct fuse_session *session;
    struct fs fs;
    struct fuse_request request;

    // the message under construction
    _Alignas(8) unsigned char message[64 * 1024];
    size_t message_len;

    // the wire
    unsigned sent, finished;
    int send_result;
    _Alignas(8) unsigned char answer[ANSWER_MAX];
    size_t answer_len;
    struct fuse_request *findable;
    struct fuse_holdings *holdings;
    unsigned hellos, regions;
    uint64_t landed; // bytes that the last answer counts beyond its own

    // the next messages
    bool replayed;
    struct cache_dest *dest;
};

int fixture_setup(void **state);     // after INIT
int fixture_setup_new(void **state); // before INIT
// A host that is not believed, peer 7/8/9, after INIT: what it holds is kept.
int fixture_setup_host(void **state);
// Instead of that host's session another, which tells that this is served.
void fixture_serve(struct fixture *f, const char *source, const char *endpoint);
int fixture_teardown(void **state);
struct fuse_session_config fixture_config(struct fixture *f);

// Builds a message and dispatches it.
void message_begin(struct fixture *f, uint32_t opcode, uint64_t node);
void message_add(struct fixture *f, const void *data, size_t len);
int message_dispatch(struct fixture *f);
// All three at once, for one struct (may be NULL) and one string (may be NULL) with its zero.
void ask(struct fixture *f, uint32_t opcode, uint64_t node, const void *arg, size_t len,
         const char *name);

void init_with(struct fixture *f, uint32_t major, uint32_t minor, uint64_t flags);

const struct fuse_out_header *answer_header(struct fixture *f);
const void *answer_body(struct fixture *f, size_t *ret_len);
