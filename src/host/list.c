// SPDX-License-Identifier: Apache-2.0
// Names of a directory, with their attributes.
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
    uint8_t *bytes;
};

// One name out of an answer; how many bytes it takes, 0: it is broken.
static size_t report(struct listing *l, const struct path_node *dir, const uint8_t *at, size_t len)
{
    struct fuse_direntplus d;
    char name[256];
    struct os2g_stat st;
    size_t size;

    if (len < FUSE_NAME_OFFSET_DIRENTPLUS)
        return 0;
    memcpy(&d, at, FUSE_NAME_OFFSET_DIRENTPLUS);
    size = FUSE_DIRENT_ALIGN(FUSE_NAME_OFFSET_DIRENTPLUS + (size_t)d.dirent.namelen);
    if (!d.dirent.namelen || d.dirent.namelen >= sizeof(name) || size > len)
        return 0;
    memcpy(name, at + FUSE_NAME_OFFSET_DIRENTPLUS, d.dirent.namelen);
    name[d.dirent.namelen] = 0;
    if (d.entry_out.nodeid)
        transport_forget(l->client->transport, dir->generation, d.entry_out.nodeid, 1);
    if (l->ended || !strcmp(name, ".") || !strcmp(name, ".."))
        return size;
    path_stat(&d.entry_out.attr, &st);
    l->begun = true;
    l->ended = l->fn(l->arg, name, &st);
    return size;
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

    for (size_t at = 0; rc > 0 && at < (size_t)rc;) {
        size_t n = report(l, dir, l->bytes + at, (size_t)rc - at);
        struct fuse_direntplus d;

        if (!n)
            return -EIO;
        memcpy(&d, l->bytes + at, FUSE_NAME_OFFSET_DIRENTPLUS);
        *offset = d.dirent.off;
        at += n;
    }
    return rc;
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
