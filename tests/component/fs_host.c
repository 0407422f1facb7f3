// SPDX-License-Identifier: Apache-2.0
#include "fs_host.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum op {
    OP_LOOKUP,
    OP_OPEN,
    OP_READ,
    OP_FETCH,
    OP_RELEASE,
    OP_OPENDIR,
    OP_READDIR,
    OP_RELEASEDIR,
    OP_XATTR,
    OP_IOCTL
};

static void must(int rc, const char *what)
{
    if (rc < 0) {
        fprintf(stderr, "%s: %s\n", what, strerror(-rc));
        exit(1);
    }
}

// --- answers, on any loop ---

static struct fs_host_request *of(struct fs_request *req)
{
    return container_of(req, struct fs_host_request, fs);
}

static void answer(struct fs_request *req)
{
    sem_post(&of(req)->answered);
}

static void on_error(struct fs_request *req, int error)
{
    of(req)->error = error;
    answer(req);
}

static void on_entry(struct fs_request *req, const struct fs_entry *e)
{
    of(req)->entry = *e;
    answer(req);
}

static void on_opened(struct fs_request *req, const struct fs_opened *o)
{
    of(req)->opened = *o;
    answer(req);
}

static void on_data(struct fs_request *req, const struct iovec *iov, int n)
{
    for (int i = 0; i < n; i++)
        buf_add(&of(req)->bytes, iov[i].iov_base, iov[i].iov_len);
    answer(req);
}

static void on_landed(struct fs_request *req, uint64_t len)
{
    of(req)->landed = len;
    answer(req);
}

static void on_fetched(struct fs_request *req, int error, uint64_t size)
{
    of(req)->error = error;
    of(req)->landed = size;
    answer(req);
}

static void on_bytes(struct fs_request *req, const void *bytes, size_t len)
{
    buf_add(&of(req)->bytes, bytes, len);
    answer(req);
}

static void on_ioctl(struct fs_request *req, int result, const void *out, size_t len)
{
    of(req)->error = result;
    on_bytes(req, out, len);
}

static bool on_dirent(struct fs_request *req, const char *name, size_t len, uint64_t cookie,
                      const struct fs_entry *e)
{
    struct fs_host_request *r = of(req);

    if (r->n_names == r->size)
        return false;
    r->names[r->n_names++] =
        (struct fs_host_name){.name = xstrndup(name, len), .e = *e, .cookie = cookie};
    return true;
}

static const struct fs_reply reply = {
    .error = on_error,
    .entry = on_entry,
    .opened = on_opened,
    .data = on_data,
    .landed = on_landed,
    .fetched = on_fetched,
    .ioctl = on_ioctl,
    .dirent = on_dirent,
    .dirents_end = answer,
    .xattr = on_bytes,
};

// --- requests ---

static void send_on_loop(void *arg)
{
    struct fs_host_request *r = arg;
    const struct fs_ops *ops = fs_ops();
    struct fs *fs = r->host->fs;

    switch ((enum op)r->op) {
    case OP_LOOKUP:
        ops->lookup(fs, &r->fs, r->id, r->name, strlen(r->name));
        break;
    case OP_OPEN:
        ops->open(fs, &r->fs, r->id, 0);
        break;
    case OP_READ:
        ops->read(fs, &r->fs, r->id, r->offset, r->size);
        break;
    case OP_FETCH:
        ops->fetch(fs, &r->fs, r->name, r->size);
        break;
    case OP_RELEASE:
        ops->release(fs, &r->fs, r->id);
        break;
    case OP_OPENDIR:
        ops->opendir(fs, &r->fs, r->id);
        break;
    case OP_READDIR:
        ops->readdir(fs, &r->fs, r->id, r->offset, true);
        break;
    case OP_RELEASEDIR:
        ops->releasedir(fs, &r->fs, r->id);
        break;
    case OP_XATTR:
        ops->getxattr(fs, &r->fs, r->id, r->name);
        break;
    case OP_IOCTL:
        ops->ioctl(fs, &r->fs, 3, r->id, (uint32_t)r->offset, r->in, r->size, r->size);
        break;
    }
}

static void begin(struct fs_host *h, struct fs_host_request *r)
{
    static atomic_uint_fast64_t unique = 1;

    r->host = h;
    r->fs.reply = &reply;
    r->fs.unique = atomic_fetch_add(&unique, 1);
    sem_init(&r->answered, 0, 0);
    loop_call(h->fixture->loop, send_on_loop, r);
}

int fs_host_wait(struct fs_host_request *r)
{
    while (sem_wait(&r->answered) < 0)
        ;
    sem_destroy(&r->answered);
    return r->error;
}

static int send_and_wait(struct fs_host *h, struct fs_host_request *r)
{
    begin(h, r);
    return fs_host_wait(r);
}

static void cancel_on_loop(void *arg)
{
    struct fs_host_request *r = arg;

    if (r->fs.cancel)
        r->fs.cancel(&r->fs, r->fs.cancel_arg);
}

void fs_host_cancel(struct fs_host_request *r)
{
    loop_call(r->host->fixture->loop, cancel_on_loop, r);
}

int fs_host_lookup(struct fs_host *h, uint64_t parent, const char *name, struct fs_entry *ret)
{
    struct fs_host_request r = {.op = OP_LOOKUP, .id = parent, .name = name};
    int rc = send_and_wait(h, &r);

    if (rc == 0 && !r.entry.attr.node)
        rc = -ENOENT;
    if (rc == 0)
        *ret = r.entry;
    return rc;
}

int fs_host_walk(struct fs_host *h, const char *path, struct fs_entry *ret)
{
    *ret = (struct fs_entry){.attr.node = FS_ROOT};
    while (*path) {
        char name[256];
        size_t len = strcspn(path, "/");
        int rc;

        memcpy(name, path, len);
        name[len] = 0;
        path += len + (path[len] == '/');
        rc = fs_host_lookup(h, ret->attr.node, name, ret);
        if (rc < 0)
            return rc;
    }
    return 0;
}

int fs_host_open_node(struct fs_host *h, uint64_t node, uint64_t *ret_handle)
{
    struct fs_host_request r = {.op = OP_OPEN, .id = node};
    int rc = send_and_wait(h, &r);

    *ret_handle = r.opened.handle;
    return rc;
}

int fs_host_open(struct fs_host *h, const char *path, uint64_t *ret_handle, uint64_t *ret_size)
{
    int rc = -ESTALE;

    for (int i = 0; i < 2 && rc == -ESTALE; i++) {
        struct fs_entry e;

        rc = fs_host_walk(h, path, &e);
        if (rc == 0)
            rc = fs_host_open_node(h, e.attr.node, ret_handle);
        if (rc == 0 && ret_size)
            *ret_size = e.attr.size;
    }
    return rc;
}

int fs_host_read(struct fs_host *h, uint64_t handle, uint64_t offset, uint32_t size,
                 struct buf *out)
{
    struct fs_host_request r = {.op = OP_READ, .id = handle, .offset = offset, .size = size};
    int rc = send_and_wait(h, &r);

    buf_free(out);
    *out = r.bytes;
    return rc;
}

void fs_host_start_read(struct fs_host *h, struct fs_host_request *r, uint64_t handle,
                        uint64_t offset, uint32_t size, struct cache_dest *dest)
{
    *r = (struct fs_host_request){
        .op = OP_READ, .id = handle, .offset = offset, .size = size, .fs.dest = dest};
    begin(h, r);
}

void fs_host_start_fetch(struct fs_host *h, struct fs_host_request *r, const char *key, size_t len,
                         struct cache_dest *dest)
{
    *r = (struct fs_host_request){
        .op = OP_FETCH, .name = key, .size = (uint32_t)len, .fs.dest = dest};
    begin(h, r);
}

int fs_host_land(struct fs_host *h, uint64_t handle, uint64_t offset, uint32_t size,
                 struct cache_dest *dest, uint64_t *ret_landed)
{
    struct fs_host_request r;
    int rc;

    fs_host_start_read(h, &r, handle, offset, size, dest);
    rc = fs_host_wait(&r);
    *ret_landed = r.landed;
    return rc;
}

int fs_host_fetch(struct fs_host *h, const char *key, struct cache_dest *dest, uint64_t *ret_size)
{
    struct fs_host_request r;
    int rc;

    fs_host_start_fetch(h, &r, key, strlen(key), dest);
    rc = fs_host_wait(&r);
    *ret_size = r.landed;
    return rc;
}

int fs_host_release(struct fs_host *h, uint64_t handle)
{
    struct fs_host_request r = {.op = OP_RELEASE, .id = handle};

    return send_and_wait(h, &r);
}

int fs_host_xattr(struct fs_host *h, uint64_t node, const char *name, struct buf *out)
{
    struct fs_host_request r = {.op = OP_XATTR, .id = node, .name = name};
    int rc = send_and_wait(h, &r);

    buf_free(out);
    *out = r.bytes;
    return rc;
}

int fs_host_ioctl(struct fs_host *h, uint64_t handle, uint32_t cmd, void *inout, uint32_t size)
{
    struct fs_host_request r = {
        .op = OP_IOCTL, .id = handle, .offset = cmd, .in = inout, .size = size};
    int rc = send_and_wait(h, &r);

    if (rc == 0)
        memcpy(inout, r.bytes.data, MIN(r.bytes.len, (size_t)size));
    buf_free(&r.bytes);
    return rc;
}

int fs_host_list(struct fs_host *h, uint64_t node, struct buf *out)
{
    struct fs_host_request open = {.op = OP_OPENDIR, .id = node};
    struct fs_host_name names[100];
    uint64_t offset = 0;
    int rc = send_and_wait(h, &open);

    buf_reset(out);
    while (rc == 0) {
        struct fs_host_request r = {.op = OP_READDIR,
                                    .id = open.opened.handle,
                                    .offset = offset,
                                    .size = ARRAY_LEN(names),
                                    .names = names};

        rc = send_and_wait(h, &r);
        for (size_t i = 0; i < r.n_names; i++) {
            offset = names[i].cookie;
            if (strcmp(names[i].name, ".") && strcmp(names[i].name, ".."))
                buf_printf(out, "%s%s\n", names[i].name, S_ISDIR(names[i].e.attr.mode) ? "/" : "");
            free(names[i].name);
        }
        if (!r.n_names)
            break;
    }
    if (open.opened.handle) {
        struct fs_host_request r = {.op = OP_RELEASEDIR, .id = open.opened.handle};

        send_and_wait(h, &r);
    }
    return rc;
}

// --- life ---

void fs_host_start(struct fs_host *h, struct s3_fixture *f, struct fs_options o, uint64_t memory)
{
    struct cache_config c = {.memory = memory, .data_loops = 2, .bucket = f->bucket};
    char *error = NULL;

    if (getenv("OS2G_TEST_ONE_LOOP")) { // as on a machine of one core
        c.data_loops = 1;
        c.loop = f->loop;
    }
    *h = (struct fs_host){.fixture = f, .options = o};
    h->options.file_mode = 0644;
    h->options.dir_mode = 0755;
    h->options.nodes_fd = h->options.handles_fd = -1;
    must(cache_new(&h->cache, &c, &error), "cache");
    must(fs_new(&h->fs, f->loop, &h->options, f->bucket, h->cache, &error), "fs");
}

struct stopping {
    struct fs_host *h;
    sem_t closed;
};

static void on_closed(void *arg)
{
    sem_post(&((struct stopping *)arg)->closed);
}

static void close_on_loop(void *arg)
{
    struct stopping *s = arg;

    fs_close(s->h->fs, on_closed, s);
}

static void free_on_loop(void *arg)
{
    fs_free(arg);
}

void fs_host_stop(struct fs_host *h)
{
    struct stopping s = {.h = h};

    sem_init(&s.closed, 0, 0);
    loop_call(h->fixture->loop, close_on_loop, &s);
    while (sem_wait(&s.closed) < 0)
        ;
    sem_destroy(&s.closed);
    loop_call(h->fixture->loop, free_on_loop, h->fs);
    cache_free(h->cache);
}
