// SPDX-License-Identifier: Apache-2.0
// What os2g_connect's where means.
#pragma once

#include "base/base.h"

enum where_kind {
    WHERE_SOCKET, // path: an export's socket
    WHERE_BUCKET, // path: "s3://…", to be served by a private daemon
    WHERE_GUEST,  // path: a directory with a .os2g/gdd: of a mount in a guest
};

struct where {
    enum where_kind kind;
    char *path;
    bool named; // WHERE_SOCKET: OS2G_SOCKET's, for an "s3://…" that it is to serve
};

// 0 (free ret->path), or -errno with a sentence.
int where_find(const char *where, struct where *ret);
