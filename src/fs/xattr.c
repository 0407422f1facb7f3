// SPDX-License-Identifier: Apache-2.0
// Extended attributes of files:
//
//   user.os2g.etag            the version's ETag, as the store writes it; from memory
//   user.os2g.storage_class   asked of the store (HEAD), as are
//   user.os2g.content_type
//   user.os2g.meta.NAME       user metadata, x-amz-meta-NAME
//
// Other names, which the kernel and ls ask for all the time (security.*, system.*), are answered
// without asking anybody. Directories have none.
#include "fs/file.h"

#include <stdio.h>
#include <string.h>

#define PREFIX        "user.os2g."
#define ETAG          PREFIX "etag"
#define STORAGE_CLASS PREFIX "storage_class"
#define CONTENT_TYPE  PREFIX "content_type"
#define META          PREFIX "meta."
#define NAME_SIZE     256

struct asking {
    struct s3_head head;
    struct fs *fs;
    struct fs_request *req; // NULL once it was interrupted
    uint32_t node;          // held
    struct buf key;
    bool all; // listxattr
    char name[NAME_SIZE];
};

static void reply_list(struct fs_request *req, const struct s3_object_info *info)
{
    struct buf names = {0};

    buf_add(&names, ETAG, sizeof(ETAG));
    buf_add(&names, STORAGE_CLASS, sizeof(STORAGE_CLASS));
    if (info->content_type[0])
        buf_add(&names, CONTENT_TYPE, sizeof(CONTENT_TYPE));
    for (size_t i = 0; i < info->n_metadata; i++) {
        buf_add_str(&names, META);
        buf_add(&names, info->metadata[i].name, strlen(info->metadata[i].name) + 1);
    }
    req->reply->xattr(req, names.data, names.len);
    buf_free(&names);
}

static const char *find_value(const struct s3_object_info *info, const char *name)
{
    if (!strcmp(name, STORAGE_CLASS))
        return info->storage_class[0] ? info->storage_class : "STANDARD";
    if (!strcmp(name, CONTENT_TYPE))
        return info->content_type[0] ? info->content_type : NULL;
    for (size_t i = 0; i < info->n_metadata; i++)
        if (!strcasecmp(info->metadata[i].name, name + strlen(META)))
            return info->metadata[i].value;
    return NULL;
}

static void reply_value(struct fs_request *req, const char *value)
{
    if (value)
        req->reply->xattr(req, value, strlen(value));
    else
        req->reply->error(req, -ENODATA);
}

static bool is_other_version(struct fs *fs, uint32_t node, const struct s3_object_info *info)
{
    struct node_version ours, theirs;

    nodes_version(fs->nodes, node, &ours);
    fs_version_from_info(info, &theirs);
    return !node_version_equal(&ours, &theirs);
}

static void on_head(struct s3_head *h, int error, const struct s3_object_info *info)
{
    struct asking *a = container_of(h, struct asking, head);
    struct fs *fs = a->fs;

    if (error == 0 && is_other_version(fs, a->node, info))
        error = -ESTALE;
    if (error == -ESTALE || error == -ENOENT) {
        file_found_stale(fs, a->node);
        error = -ESTALE;
    }
    if (a->req) {
        a->req->cancel = NULL;
        if (error)
            a->req->reply->error(a->req, error);
        else if (a->all)
            reply_list(a->req, info);
        else
            reply_value(a->req, find_value(info, a->name));
    }
    nodes_unhold(fs->nodes, a->node);
    buf_free(&a->key);
    free(a);
    fs_busy_end(fs);
}

static void on_cancel(struct fs_request *req, void *arg)
{
    struct asking *a = arg;

    a->req = NULL;
    req->cancel = NULL;
    req->reply->error(req, -EINTR);
    s3_head_cancel(&a->head);
}

// name NULL: list them.
static void ask(struct fs *fs, struct fs_request *req, uint32_t node, const char *name)
{
    struct asking *a = xcalloc(1, sizeof(*a));

    a->fs = fs;
    a->req = req;
    a->node = node;
    nodes_hold(fs->nodes, node);
    a->all = !name;
    if (name)
        snprintf(a->name, sizeof(a->name), "%s", name);
    buf_add_str(&a->key, fs->o.prefix);
    nodes_path(fs->nodes, node, &a->key);
    a->head = (struct s3_head){.key = a->key.data, .key_len = a->key.len, .done = on_head};
    req->cancel = on_cancel;
    req->cancel_arg = a;
    fs_busy_begin(fs);
    s3_head_start(fs->s3, &a->head);
}

static bool is_object(const struct fs *fs, uint32_t slot)
{
    return slot > NODE_FIXED_LAST && nodes_kind(fs->nodes, slot) == NODE_FILE;
}

static bool is_asked_for(const char *name)
{
    return !strcmp(name, STORAGE_CLASS) || !strcmp(name, CONTENT_TYPE) ||
           (!strncmp(name, META, strlen(META)) && strlen(name) < NAME_SIZE);
}

void fs_op_getxattr(struct fs *fs, struct fs_request *req, uint64_t node, const char *name)
{
    uint32_t slot = nodes_slot(fs->nodes, node);
    char etag[ETAG_TEXT_MAX + 1];
    struct node_version v;

    if (!slot) {
        req->reply->error(req, -ESTALE);
    } else if (is_object(fs, slot) && !strcmp(name, ETAG)) {
        nodes_version(fs->nodes, slot, &v);
        etag_format(&v.etag, etag);
        reply_value(req, etag[0] ? etag : NULL);
    } else if (is_object(fs, slot) && is_asked_for(name)) {
        ask(fs, req, slot, name);
    } else {
        req->reply->error(req, -ENODATA);
    }
}

void fs_op_listxattr(struct fs *fs, struct fs_request *req, uint64_t node)
{
    uint32_t slot = nodes_slot(fs->nodes, node);

    if (!slot)
        req->reply->error(req, -ESTALE);
    else if (!is_object(fs, slot))
        req->reply->xattr(req, "", 0);
    else
        ask(fs, req, slot, NULL);
}
