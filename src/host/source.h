// SPDX-License-Identifier: Apache-2.0
// What somebody asks for by an s3:// name, and what a daemon serves: whether the one lies in the
// other. No I/O.
#pragma once

#include "base/base.h"

struct source {
    char *url;      // "s3://bucket/" or "s3://bucket/a/b/"; NULL: nobody has said
    char *endpoint; // URL of the server; asked for: NULL if any will do; told: "" for Amazon's
};

// where: "s3://…". Of the options of an export (or NULL) and the environment, what says which keys
// and which server.
void source_ask(struct source *ret, const char *where, const char *const *export_options);
// What follows HELLO's answer (wire/ops.h), len bytes of the daemon's. None: what an older daemon
// says. -EBADMSG: it makes no sense, *ret is untouched.
int source_read(struct source *ret, const char *bytes, size_t len);
void source_fini(struct source *s);

// What keys that are asked for begin with below what is told: "", "c/d/"; NULL: they are not among
// those, or at another server, or there is no way there (a component that is empty, "." or "..", or
// no room for a key).
const char *source_below(const struct source *asked, const struct source *told);
// For people.
char *source_text(const struct source *s);
