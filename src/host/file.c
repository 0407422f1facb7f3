// SPDX-License-Identifier: Apache-2.0
#include "host/file.h"

#include "base/clock.h"
#include "host/io.h"
#include "host/path.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

// --- giving back ---

// On its own way: nobody waits for it. The node is given back behind it.
struct releasing {
    struct transport_request r;
    struct transport *transport;
    struct fuse_release_in in;
};

static void on_released(struct transport_request *r, int error, uint32_t out_got, uint64_t data_got)
{
    struct releasing *l = container_of(r, struct releasing, r);

    transport_forget(l->transport, r->generation, r->nodeid, 1);
    free(l);
}

static void release(struct os2g *c, unsigned generation, uint64_t node, uint64_t handle)
{
    struct releasing *l = xcalloc(1, sizeof(*l));

    l->transport = c->transport;
    l->in.fh = handle;
    l->r = (struct transport_request){
        .opcode = FUSE_RELEASE,
        .nodeid = node,
        .generation = generation,
        .in = {{&l->in, sizeof(l->in)}},
        .n_in = 1,
        .done = on_released,
    };
    // without room in all that time the session's end gives it back
    if (transport_submit(c->transport, &l->r, false) < 0)
        free(l);
}

// --- opening ---

struct opened {
    struct os2g *client;
    unsigned generation;
    uint64_t node, handle; // the node is a reference
    struct os2g_stat st;
};

static int open_node(void *arg, struct path_node *n)
{
    struct opened *o = arg;
    struct os2g *c = o->client;
    struct fuse_open_in in = {.flags = O_RDONLY};
    struct fuse_open_out out = {0};
    uint64_t deadline = client_deadline(c);
    int rc;

    if (S_ISDIR(n->attr.mode))
        return -EISDIR;
    if (!S_ISREG(n->attr.mode))
        return -EINVAL;
    path_stat(&n->attr, &o->st);
    rc = path_etag(c, n, deadline, o->st.etag);
    if (rc == 0)
        rc = path_ask(c, &(struct question){
                             .opcode = FUSE_OPEN,
                             .generation = n->generation,
                             .node = n->node,
                             .in = &in,
                             .in_len = sizeof(in),
                             .out = &out,
                             .out_len = sizeof(out),
                             .deadline_ns = deadline,
                         });
    if (rc < 0)
        return rc;
    o->generation = n->generation;
    o->node = n->node;
    o->handle = out.fh;
    path_keep(n);
    return 0;
}

// A stale node is looked up again, as the kernel does it: the name may have another version by now.
static int open_path(struct os2g *c, const char *path, struct opened *ret)
{
    int rc = -ESTALE;

    ret->client = c;
    for (unsigned i = 0; i < 3 && rc == -ESTALE; i++)
        rc = path_with(c, path, open_node, ret);
    return rc;
}

int os2g_open(struct os2g *c, const char *path, struct os2g_file **ret)
{
    struct opened o = {0};
    struct os2g_file *f;
    int rc = client_enter(c);

    if (rc < 0)
        return rc;
    rc = open_path(c, path, &o);
    if (rc < 0)
        return client_fail_name(rc, path, strlen(path));
    f = xcalloc(1, sizeof(*f));
    f->client = c;
    f->refs = 1;
    f->path = xstrdup(path);
    f->control = path_is_control(path);
    f->size = o.st.size;
    f->mtime_s = o.st.mtime_s;
    memcpy(f->etag, o.st.etag, sizeof(f->etag));
    fork_lock_init(&f->locked.lock, FORK_FILE);
    f->locked.generation = o.generation;
    f->locked.node = o.node;
    f->locked.handle = o.handle;
    f->locked.forks = fork_count();
    *ret = f;
    return 0;
}

void file_ref(struct os2g_file *f)
{
    atomic_fetch_add(&f->refs, 1);
}

void file_unref(struct os2g_file *f)
{
    if (!f || atomic_fetch_sub(&f->refs, 1) > 1)
        return;
    // a parent's handle is the parent's
    if (f->locked.forks == fork_count())
        release(f->client, f->locked.generation, f->locked.node, f->locked.handle);
    fork_lock_fini(&f->locked.lock);
    free(f->path);
    free(f);
}

void os2g_file_close(struct os2g_file *f)
{
    file_unref(f);
}

void file_handle(struct os2g_file *f, unsigned *ret_generation, uint64_t *ret_node,
                 uint64_t *ret_handle)
{
    pthread_mutex_lock(&f->locked.lock.mutex);
    *ret_generation = f->locked.generation;
    *ret_node = f->locked.node;
    *ret_handle = f->locked.handle;
    pthread_mutex_unlock(&f->locked.lock.mutex);
}

// --- another session ---

static bool same_version(const struct os2g_file *f, const struct os2g_stat *st)
{
    return st->size == f->size &&
           (f->etag[0] && st->etag[0] ? !strcmp(f->etag, st->etag) : st->mtime_s == f->mtime_s);
}

int file_renew(struct os2g_file *f)
{
    struct os2g *c = f->client;
    struct opened o = {0};
    unsigned generation;
    uint64_t node, handle;
    bool install;
    int rc;

    file_handle(f, &generation, &node, &handle);
    if (generation == transport_generation(c->transport))
        return 0;
    rc = open_path(c, f->path, &o);
    if (rc < 0)
        return rc == -ENOENT ? -ESTALE : rc;
    if (!same_version(f, &o.st)) {
        release(c, o.generation, o.node, o.handle);
        return -ESTALE;
    }
    pthread_mutex_lock(&f->locked.lock.mutex);
    // another thread may have done the same
    install = f->locked.generation != o.generation;
    if (install) {
        f->locked.generation = o.generation;
        f->locked.node = o.node;
        f->locked.handle = o.handle;
        f->locked.forks = fork_count();
    }
    pthread_mutex_unlock(&f->locked.lock.mutex);
    if (!install)
        release(c, o.generation, o.node, o.handle);
    return 0;
}

// --- attributes ---

uint64_t os2g_file_size(const struct os2g_file *f)
{
    return f->size;
}

int os2g_file_stat(struct os2g_file *f, struct os2g_stat *ret)
{
    *ret = (struct os2g_stat){.size = f->size, .mtime_s = f->mtime_s};
    memcpy(ret->etag, f->etag, sizeof(ret->etag));
    return 0;
}

struct asked {
    struct os2g *client;
    struct os2g_stat *ret;
};

static int stat_node(void *arg, struct path_node *n)
{
    struct asked *a = arg;
    struct os2g_stat st;
    int rc = 0;

    path_stat(&n->attr, &st);
    if (!st.directory)
        rc = path_etag(a->client, n, client_deadline(a->client), st.etag);
    if (rc == 0)
        *a->ret = st;
    return rc;
}

int os2g_stat(struct os2g *c, const char *path, struct os2g_stat *ret)
{
    struct asked a = {c, ret};
    int rc = client_enter(c);

    if (rc == 0)
        rc = path_with(c, path, stat_node, &a);
    else
        return rc;
    return rc < 0 ? client_fail_name(rc, path, strlen(path)) : 0;
}
