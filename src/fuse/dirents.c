// SPDX-License-Identifier: Apache-2.0
// The answers to READDIR and READDIRPLUS: names one behind the other, each aligned to 8 bytes.
#include "fuse/internal.h"

#include <stdlib.h>
#include <string.h>

// The kernel may ask for up to a READ's size; fewer names than fit are always allowed.
#define DIRENTS_MAX (128 * KIB)

// What stands for an inode number that is not known; 0 would hide the name from readdir(3).
#define INO_UNKNOWN 0xffffffff

static bool plus(const struct fuse_request *r)
{
    return r->opcode == FUSE_READDIRPLUS;
}

static bool is_dots(const char *name, size_t len)
{
    return (len == 1 && name[0] == '.') || (len == 2 && name[0] == '.' && name[1] == '.');
}

void fuse_dirents_begin(struct fuse_request *r, uint32_t size)
{
    r->max_out = (uint32_t)MIN(size, DIRENTS_MAX);
    r->dirents = xmalloc(r->max_out);
    r->dirents_len = 0;
}

bool fuse_dirents_add(struct fs_request *req, const char *name, size_t len, uint64_t cookie,
                      const struct fs_entry *e)
{
    struct fuse_request *r = container_of(req, struct fuse_request, fs);
    size_t head = plus(r) ? FUSE_NAME_OFFSET_DIRENTPLUS : FUSE_NAME_OFFSET;
    size_t size = FUSE_DIRENT_ALIGN(head + len);
    struct fuse_dirent d = {
        .ino = e->attr.node ? e->attr.node : INO_UNKNOWN,
        .off = cookie,
        .namelen = (uint32_t)len,
        .type = (e->attr.mode & S_IFMT) >> 12, // DT_ values, as in IFTODT
    };
    char *to = r->dirents + r->dirents_len;

    assert(len > 0 && len <= FUSE_NAME_MAX_BYTES);
    if (size > r->max_out - r->dirents_len)
        return false;
    if (plus(r)) {
        struct fuse_entry_out entry;

        fuse_entry_encode(&entry, e);
        // the kernel takes no reference for these two
        if (is_dots(name, len))
            entry.nodeid = 0;
        if (entry.nodeid && fuse_hold_node(r->session, entry.nodeid) < 0)
            return false;
        memcpy(to, &entry, sizeof(entry));
        to += sizeof(entry);
    }
    memcpy(to, &d, FUSE_NAME_OFFSET);
    memcpy(to + FUSE_NAME_OFFSET, name, len);
    memset(to + FUSE_NAME_OFFSET + len, 0, size - head - len);
    r->dirents_len += (uint32_t)size;
    return true;
}

// Gives back the references of an answer that was not heard.
static void unlookup_all(struct fuse_request *r)
{
    for (size_t at = 0; at < r->dirents_len;) {
        struct fuse_direntplus d;

        memcpy(&d, r->dirents + at, FUSE_NAME_OFFSET_DIRENTPLUS);
        if (d.entry_out.nodeid)
            fuse_unhold_node(r->session, d.entry_out.nodeid);
        at += FUSE_DIRENTPLUS_SIZE(&d);
    }
}

void fuse_dirents_end(struct fs_request *req)
{
    struct fuse_request *r = container_of(req, struct fuse_request, fs);
    struct fuse_out_header h = {.len = (uint32_t)(sizeof(h) + r->dirents_len), .unique = r->unique};
    struct iovec iov[] = {{&h, sizeof(h)}, {r->dirents, r->dirents_len}};

    if (fuse_reply_send(r, iov, r->dirents_len ? 2 : 1) == -ENOENT && plus(r))
        unlookup_all(r);
    fuse_reply_end(r);
}
