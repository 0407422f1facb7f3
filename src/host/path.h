// SPDX-License-Identifier: Apache-2.0
// Names walked to nodes, and what is asked of nodes.
#pragma once

#include "host/client.h"

#include <linux/fuse.h>

// One question about a node of a session, in c's time. Bytes of out, or -errno without a sentence.
struct question {
    uint32_t opcode;
    unsigned generation;
    uint64_t node;
    const void *in;
    size_t in_len;
    const char *name; // follows in, with its zero; or NULL
    void *out;
    uint32_t out_len;
    bool out_variable;
    uint64_t deadline_ns;
};
int path_ask(struct os2g *c, const struct question *q);

struct path_node {
    unsigned generation;
    uint64_t node; // a reference, unless it is the root's
    struct fuse_attr attr;
};

// Walks path below what the client has asked for. 0 or -errno without a sentence: -ENOENT,
// -ENOTDIR, -EINVAL (a name that there cannot be), …
int path_walk(struct os2g *c, const char *path, uint64_t deadline_ns, struct path_node *ret);
// Looks name up in the directory at. As path_walk; at keeps its reference.
int path_child(struct os2g *c, const struct path_node *at, const char *name, uint64_t deadline_ns,
               struct path_node *ret);
// One of the daemon's own files (wire/control.h), which are the export's, whatever part of it the
// client has asked for.
bool path_is_control(const char *path);
void path_forget(struct os2g *c, const struct path_node *n);

// Walks and does f with the node; again, when that ends with -ENOTCONN and there is another session
// to do it in. f may keep the reference: it makes n the root then (path_keep).
int path_with(struct os2g *c, const char *path, int (*f)(void *arg, struct path_node *n),
              void *arg);
static inline void path_keep(struct path_node *n)
{
    n->node = FUSE_ROOT_ID;
}

// The ETag, "" if there is none.
int path_etag(struct os2g *c, const struct path_node *n, uint64_t deadline_ns,
              char ret[static 128]);
void path_stat(const struct fuse_attr *a, struct os2g_stat *ret);
