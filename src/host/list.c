// SPDX-License-Identifier: Apache-2.0
// Names of a directory, with their attributes.
#include "host/dirents.h"
#include "host/path.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define LIST_BYTES TRANSPORT_OUT_MAX

struct listing {
    struct os2g *client;
    int (*fn)(void *arg, const char *name, const struct os2g_stat *st);
    void *arg;
    bool begun; // names were reported: it cannot begin again
    int ended;  // what fn has said
    int error;  // of a name that was looked up: no more are told
    uint8_t *bytes;
};

// One that came without a node has no attributes either: the daemon no longer trusts what it has
// listed of it.
static int look_up(struct listing *l, const struct path_node *dir, const char *name,
                   struct fuse_attr *ret)
{
    struct path_node child;
    int rc = path_child(l->client, dir, name, client_deadline(l->client), &child);

    if (rc < 0)
        return rc;
    *ret = child.attr;
    path_forget(l->client, &child);
    return 0;
}

static void report(struct listing *l, const struct path_node *dir, const struct dirent_plus *d)
{
    struct fuse_attr attr = d->entry.attr;
    struct os2g_stat st;

    if (d->entry.nodeid)
        transport_forget(l->client->transport, dir->generation, d->entry.nodeid, 1);
    if (l->error || l->ended || !strcmp(d->name, ".") || !strcmp(d->name, ".."))
        return;
    if (!d->entry.nodeid) {
        int rc = look_up(l, dir, d->name, &attr);

        if (rc < 0) {
            l->error = rc == -ENOENT ? 0 : rc; // not there: it was deleted meanwhile
            return;
        }
    }
    path_stat(&attr, &st);
    l->begun = true;
    l->ended = l->fn(l->arg, d->name, &st);
}

// The next names; how many bytes they take, 0: there are no more.
static int read_some(struct listing *l, const struct path_node *dir, uint64_t handle,
                     uint64_t *offset, uint64_t deadline_ns)
{
    struct fuse_read_in in = {.fh = handle, .offset = *offset, .size = LIST_BYTES};
    int rc = path_ask(l->client, &(struct question){
                                     .opcode = FUSE_READDIRPLUS,
                                     .generation = dir->generation,
                                     .node = dir->node,
                                     .in = &in,
                                     .in_len = sizeof(in),
                                     .out = l->bytes,
                                     .out_len = LIST_BYTES,
                                     .out_variable = true,
                                     .deadline_ns = deadline_ns,
                                 });

    for (size_t at = 0, n; rc > 0 && at < (size_t)rc; at += n) {
        struct dirent_plus d;

        n = dirents_take(l->bytes + at, (size_t)rc - at, &d);
        if (!n)
            return -EIO;
        *offset = d.next;
        report(l, dir, &d);
    }
    return l->error ? l->error : rc;
}

static int list_node(void *arg, struct path_node *dir)
{
    struct listing *l = arg;
    struct os2g *c = l->client;
    struct fuse_open_in in = {.flags = O_RDONLY | O_DIRECTORY};
    struct fuse_open_out out;
    struct fuse_release_in release = {0};
    uint64_t offset = 0;
    int rc;

    l->error = 0;
    if (!S_ISDIR(dir->attr.mode))
        return -ENOTDIR;
    rc = path_ask(c, &(struct question){
                         .opcode = FUSE_OPENDIR,
                         .generation = dir->generation,
                         .node = dir->node,
                         .in = &in,
                         .in_len = sizeof(in),
                         .out = &out,
                         .out_len = sizeof(out),
                         .deadline_ns = client_deadline(c),
                     });

    if (rc < 0)
        return rc;
    // each answer has its own time: a large directory may take long
    do
        rc = read_some(l, dir, out.fh, &offset, client_deadline(c));
    while (rc > 0 && !l->ended);
    release.fh = out.fh;
    path_ask(c, &(struct question){
                    .opcode = FUSE_RELEASEDIR,
                    .generation = dir->generation,
                    .node = dir->node,
                    .in = &release,
                    .in_len = sizeof(release),
                    .deadline_ns = client_deadline(c),
                });
    // names cannot be told twice
    return rc == -ENOTCONN && l->begun ? -EIO : rc;
}

int os2g_list(struct os2g *c, const char *path,
              int (*fn)(void *arg, const char *name, const struct os2g_stat *st), void *arg)
{
    struct listing l = {.client = c, .fn = fn, .arg = arg};
    int rc = client_enter(c);

    if (rc < 0)
        return rc;
    l.bytes = xmalloc(LIST_BYTES);
    rc = path_with(c, path, list_node, &l);
    free(l.bytes);
    if (rc < 0)
        return client_fail_name(rc, path, strlen(path));
    return l.ended;
}
