// SPDX-License-Identifier: Apache-2.0
#include "world.h"

#include "world_store.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

struct world world;

void world_begin(void)
{
    memset(&world, 0, sizeof(world));
    world.options = (struct fs_options){
        .prefix = "",
        .uid = 1000,
        .gid = 1001,
        .file_mode = 0644,
        .dir_mode = 0755,
        .metadata_ttl_ns = 60000000000,
        .negative_ttl_ns = 5000000000,
        .nodes_fd = memfd_create("nodes", MFD_CLOEXEC),
        .handles_fd = memfd_create("handles", MFD_CLOEXEC),
    };
    world.page = 1000;
    list_init(&world.held);
    assert_int_equal(loop_new(&world.loop, "test"), 0);
}

void world_start(void)
{
    char *error = NULL;

    assert_int_equal(fs_new(&world.fs, world.loop, &world.options, NULL, NULL, &error), 0);
}

static bool closed;

static void on_closed(void *arg)
{
    closed = true;
}

static void stop(void)
{
    closed = false;
    fs_close(world.fs, on_closed, NULL);
    world.hold = false;
    world_run_held();
    world_run();
    assert_true(closed);
    fs_free(world.fs);
    world.fs = NULL;
}

void world_restart(void)
{
    stop();
    world_start();
}

void world_end(void)
{
    if (world.fs)
        stop();
    store_clear();
    loop_stop(world.loop);
    close(world.options.nodes_fd);
    close(world.options.handles_fd);
}

void world_run(void)
{
    while (uv_run(loop_uv(world.loop), UV_RUN_NOWAIT) && world_store_busy())
        ;
    // messages posted by the last turn
    for (int i = 0; i < 20; i++)
        uv_run(loop_uv(world.loop), UV_RUN_NOWAIT);
}

// --- answers ---

static struct host_request *of(struct fs_request *req)
{
    return container_of(req, struct host_request, fs);
}

static struct host_request *answered(struct fs_request *req, enum answer a)
{
    struct host_request *r = of(req);

    assert_int_equal(r->answer, ANSWER_NONE); // exactly once
    r->answer = a;
    return r;
}

static void on_error(struct fs_request *req, int error)
{
    struct host_request *r = answered(req, ANSWER_ERROR);

    r->error = error;
    if (r->failed)
        r->failed();
}

static void on_entry(struct fs_request *req, const struct fs_entry *e)
{
    answered(req, ANSWER_ENTRY)->entry = *e;
}

static void on_attr(struct fs_request *req, const struct fs_attr *a, uint64_t valid_ns)
{
    struct host_request *r = answered(req, ANSWER_ATTR);

    r->attr = *a;
    r->valid_ns = valid_ns;
}

static void on_opened(struct fs_request *req, const struct fs_opened *o)
{
    answered(req, ANSWER_OPENED)->opened = *o;
}

static void on_data(struct fs_request *req, const struct iovec *iov, int n)
{
    struct host_request *r = answered(req, ANSWER_DATA);

    for (int i = 0; i < n; i++)
        buf_add(&r->bytes, iov[i].iov_base, iov[i].iov_len);
}

static void on_landed(struct fs_request *req, uint64_t len)
{
    answered(req, ANSWER_LANDED)->landed = len;
}

static void on_fetched(struct fs_request *req, int error, uint64_t size)
{
    struct host_request *r = answered(req, ANSWER_FETCHED);

    r->error = error;
    r->landed = size;
}

static void on_statfs(struct fs_request *req, uint64_t files)
{
    answered(req, ANSWER_STATFS);
}

static void on_ioctl(struct fs_request *req, int result, const void *out, size_t len)
{
    struct host_request *r = answered(req, ANSWER_IOCTL);

    r->error = result;
    buf_add(&r->bytes, out, len);
}

static bool on_dirent(struct fs_request *req, const char *name, size_t len, uint64_t cookie,
                      const struct fs_entry *e)
{
    struct host_request *r = of(req);

    assert_int_equal(r->answer, ANSWER_NONE);
    assert_true(cookie > 0 && cookie <= INT64_MAX);
    if (r->n_names == r->room)
        return false;
    r->names[r->n_names++] =
        (struct host_name){.name = xstrndup(name, len), .cookie = cookie, .e = *e};
    return true;
}

static void on_dirents_end(struct fs_request *req)
{
    answered(req, ANSWER_DIRENTS);
}

static void on_xattr(struct fs_request *req, const void *value, size_t len)
{
    buf_add(&answered(req, ANSWER_XATTR)->bytes, value, len);
}

const struct fs_reply host_reply = {
    .error = on_error,
    .entry = on_entry,
    .attr = on_attr,
    .opened = on_opened,
    .data = on_data,
    .landed = on_landed,
    .fetched = on_fetched,
    .statfs = on_statfs,
    .ioctl = on_ioctl,
    .dirent = on_dirent,
    .dirents_end = on_dirents_end,
    .xattr = on_xattr,
};

// --- requests ---

struct host_request *host_begin(void)
{
    static struct host_request requests[16];
    static unsigned next;
    static uint64_t unique;
    struct host_request *r = &requests[next++ % ARRAY_LEN(requests)];

    for (unsigned i = 0; i < r->n_names; i++)
        free(r->names[i].name);
    buf_free(&r->bytes);
    *r = (struct host_request){
        .fs = {.reply = &host_reply,
               .unique = ++unique,
               .uid = 1000,
               .gid = 1001,
               .keeps_pages = !world.keeps_no_pages},
        .room = ARRAY_LEN(r->names),
    };
    return r;
}

void host_wait(struct host_request *r)
{
    for (int i = 0; i < 2000 && r->answer == ANSWER_NONE; i++)
        uv_run(loop_uv(world.loop), UV_RUN_NOWAIT);
    assert_int_not_equal(r->answer, ANSWER_NONE);
}

void host_cancel(struct host_request *r)
{
    assert_non_null(r->fs.cancel);
    r->fs.cancel(&r->fs, r->fs.cancel_arg);
}

struct host_request *host_lookup(uint64_t parent, const char *name)
{
    struct host_request *r = host_begin();

    fs_ops()->lookup(world.fs, &r->fs, parent, name, strlen(name));
    host_wait(r);
    return r;
}

struct host_request *host_open(uint64_t node)
{
    struct host_request *r = host_begin();

    fs_ops()->open(world.fs, &r->fs, node, 0);
    host_wait(r);
    return r;
}

struct host_request *host_read(uint64_t handle, uint64_t offset, uint32_t size)
{
    struct host_request *r = host_begin();

    fs_ops()->read(world.fs, &r->fs, handle, offset, size);
    host_wait(r);
    world_run(); // the operation's way home
    return r;
}

struct host_request *host_land(uint64_t handle, uint64_t offset, uint32_t size,
                               struct cache_dest *dest)
{
    struct host_request *r = host_begin();

    r->fs.dest = dest;
    fs_ops()->read(world.fs, &r->fs, handle, offset, size);
    host_wait(r);
    world_run();
    return r;
}

struct host_request *host_fetch(const char *key, struct cache_dest *dest)
{
    struct host_request *r = host_begin();

    r->fs.dest = dest;
    fs_ops()->fetch(world.fs, &r->fs, key, strlen(key));
    host_wait(r);
    world_run();
    return r;
}

void host_release(uint64_t handle)
{
    struct host_request *r = host_begin();

    fs_ops()->release(world.fs, &r->fs, handle);
    host_wait(r);
    assert_int_equal(r->answer, ANSWER_ERROR);
    assert_int_equal(r->error, 0);
}

uint64_t host_opendir(uint64_t node)
{
    struct host_request *r = host_begin();

    fs_ops()->opendir(world.fs, &r->fs, node);
    host_wait(r);
    assert_int_equal(r->answer, ANSWER_OPENED);
    return r->opened.handle;
}

struct host_request *host_readdir(uint64_t handle, uint64_t offset, bool plus, unsigned room)
{
    struct host_request *r = host_begin();

    r->room = MIN(room, (unsigned)ARRAY_LEN(r->names));
    fs_ops()->readdir(world.fs, &r->fs, handle, offset, plus);
    host_wait(r);
    return r;
}

void host_releasedir(uint64_t handle)
{
    struct host_request *r = host_begin();

    fs_ops()->releasedir(world.fs, &r->fs, handle);
    host_wait(r);
    assert_int_equal(r->error, 0);
}

char *host_list(uint64_t node, bool plus, unsigned room)
{
    uint64_t handle = host_opendir(node), offset = 0;
    struct buf names = {0};

    for (;;) {
        struct host_request *r = host_readdir(handle, offset, plus, room);

        assert_int_equal(r->answer, ANSWER_DIRENTS);
        if (!r->n_names)
            break;
        for (unsigned i = 0; i < r->n_names; i++) {
            offset = r->names[i].cookie;
            if (!strcmp(r->names[i].name, ".") || !strcmp(r->names[i].name, ".."))
                continue;
            buf_printf(&names, "%s%s%s", names.len ? " " : "", r->names[i].name,
                       S_ISDIR(r->names[i].e.attr.mode) ? "/" : "");
        }
    }
    host_releasedir(handle);
    return buf_steal(&names);
}

uint64_t host_walk(const char *path)
{
    uint64_t node = FS_ROOT;

    while (node && *path) {
        char name[256];
        size_t len = strcspn(path, "/");
        struct host_request *r;

        memcpy(name, path, len);
        name[len] = 0;
        path += len + (path[len] == '/');
        r = host_lookup(node, name);
        if (r->answer != ANSWER_ENTRY)
            return 0;
        node = r->entry.attr.node;
    }
    return node;
}
