// SPDX-License-Identifier: Apache-2.0
#include "fs/impl.h"
#include "wire/control.h"

#include <string.h>
#include <unistd.h>

uint64_t fs_sum_ns(uint64_t a, uint64_t b)
{
    return a > UINT64_MAX - b ? UINT64_MAX : a + b;
}

void fs_version_from_info(const struct s3_object_info *info, struct node_version *ret)
{
    *ret = (struct node_version){
        .size = info->size,
        .mtime_s = (uint32_t)MAX(MIN(info->mtime_s, (int64_t)UINT32_MAX), (int64_t)0),
        // others (GLACIER_IR, INTELLIGENT_TIERING) are read at once, or the store says no
        .archived =
            !strcmp(info->storage_class, "GLACIER") || !strcmp(info->storage_class, "DEEP_ARCHIVE"),
    };
    etag_parse(info->etag, &ret->etag);
}

void fs_attr_fill(struct fs *fs, uint32_t node, struct fs_attr *ret)
{
    bool dir = nodes_kind(fs->nodes, node) == NODE_DIR;
    struct node_version v = {0};

    if (!dir)
        nodes_version(fs->nodes, node, &v);
    *ret = (struct fs_attr){
        .node = nodes_id(fs->nodes, node),
        .size = v.size,
        // directories have no time of their own: that of the mount
        .mtime_s = dir || node <= NODE_FIXED_LAST ? nodes_created_s(fs->nodes) : v.mtime_s,
        .mode = dir ? S_IFDIR | fs->o.dir_mode : S_IFREG | fs->o.file_mode,
        .uid = fs->o.uid,
        .gid = fs->o.gid,
        .nlink = 1, // a directory's 1 says that its subdirectories are not counted
    };
    if (node == NODE_GDD_FILE)
        gdd_attr_fill(fs, ret);
    if (node == NODE_STALLS_FILE)
        ret->size = OS2G_STALLS_BYTES; // libos2g reads no further than what a file has
}

void fs_entry_fill(struct fs *fs, uint32_t node, uint64_t valid_ns, struct fs_entry *ret)
{
    fs_attr_fill(fs, node, &ret->attr);
    ret->generation = ret->attr.node >> 32;
    ret->entry_valid_ns = valid_ns;
    ret->attr_valid_ns = fs->o.metadata_ttl_ns;
}

void fs_reply_negative(struct fs *fs, struct fs_request *req)
{
    struct fs_entry e = {.entry_valid_ns = fs->o.negative_ttl_ns};

    req->reply->entry(req, &e);
}

void fs_op_forget(struct fs *fs, uint64_t node, uint64_t n)
{
    uint32_t slot = nodes_slot(fs->nodes, node);

    if (!slot)
        return;
    nodes_forget(fs->nodes, slot, n);
    fs_count_nodes(fs);
}

void fs_op_unlookup(struct fs *fs, uint64_t node, uint64_t n)
{
    fs_op_forget(fs, node, n);
}

void fs_op_getattr(struct fs *fs, struct fs_request *req, uint64_t node)
{
    uint32_t slot = nodes_slot(fs->nodes, node);
    struct fs_attr a;

    if (!slot) {
        req->reply->error(req, -ESTALE);
        return;
    }
    fs_attr_fill(fs, slot, &a);
    req->reply->attr(req, &a, fs->o.metadata_ttl_ns);
}

unsigned fs_granted(const struct fs_request *req, const struct fs_attr *a)
{
    if (req->uid == 0)
        return 6 | (a->mode & 0111 || S_ISDIR(a->mode) ? 1 : 0);
    if (req->uid == a->uid)
        return a->mode >> 6 & 7;
    if (req->gid == a->gid)
        return a->mode >> 3 & 7;
    return a->mode & 7;
}

void fs_op_access(struct fs *fs, struct fs_request *req, uint64_t node, int mask)
{
    uint32_t slot = nodes_slot(fs->nodes, node);
    struct fs_attr a;

    if (!slot) {
        req->reply->error(req, -ESTALE);
        return;
    }
    fs_attr_fill(fs, slot, &a);
    if (mask & W_OK)
        req->reply->error(req, -EROFS);
    else
        req->reply->error(req, (unsigned)mask & 7 & ~fs_granted(req, &a) ? -EACCES : 0);
}

void fs_op_statfs(struct fs *fs, struct fs_request *req)
{
    req->reply->statfs(req, nodes_count(fs->nodes));
}
