// SPDX-License-Identifier: Apache-2.0
#include "host/path.h"

#include "base/clock.h"
#include "host/call.h"
#include "wire/control.h"

#include <string.h>
#include <sys/stat.h>

#define NAME_MAX_BYTES 255
#define XATTR_ETAG     "user.os2g.etag"

int path_ask(struct os2g *c, const struct question *q)
{
    struct call call = {
        .opcode = q->opcode,
        .generation = q->node == FUSE_ROOT_ID && q->opcode == FUSE_LOOKUP ? 0 : q->generation,
        .nodeid = q->node,
        .out = q->out,
        .out_len = q->out_len,
        .out_variable = q->out_variable,
        .deadline_ns = q->deadline_ns,
        .client = c,
    };

    if (q->in)
        call.in[call.n_in++] = (struct iovec){(void *)q->in, q->in_len};
    if (q->name)
        call.in[call.n_in++] = (struct iovec){(void *)q->name, strlen(q->name) + 1};
    return call_run(c->transport, &call);
}

// --- walking ---

int path_child(struct os2g *c, const struct path_node *at, const char *name, uint64_t deadline_ns,
               struct path_node *ret)
{
    struct fuse_entry_out out;
    struct path_node child;
    int rc;

    // from the root it may be asked in any session: the answer is of the one before which and after
    // which we are in the same
    child.generation = transport_generation(c->transport);
    if (at->node != FUSE_ROOT_ID && child.generation != at->generation)
        return -ENOTCONN;
    rc = path_ask(c, &(struct question){
                         .opcode = FUSE_LOOKUP,
                         .generation = at->generation,
                         .node = at->node,
                         .name = name,
                         .out = &out,
                         .out_len = sizeof(out),
                         .deadline_ns = deadline_ns,
                     });
    if (rc < 0)
        return rc;
    if (!out.nodeid)
        return -ENOENT;
    if (transport_generation(c->transport) != child.generation)
        return -ENOTCONN;
    child.node = out.nodeid;
    child.attr = out.attr;
    *ret = child;
    return 0;
}

static int lookup(struct os2g *c, const char *name, uint64_t deadline_ns, struct path_node *at)
{
    struct path_node child;
    int rc = path_child(c, at, name, deadline_ns, &child);

    if (rc < 0)
        return rc;
    path_forget(c, at);
    *at = child;
    return 0;
}

static int root(struct os2g *c, uint64_t deadline_ns, struct path_node *ret)
{
    struct fuse_getattr_in in = {0};
    struct fuse_attr_out out;
    int rc = path_ask(c, &(struct question){
                             .opcode = FUSE_GETATTR,
                             .node = FUSE_ROOT_ID,
                             .in = &in,
                             .in_len = sizeof(in),
                             .out = &out,
                             .out_len = sizeof(out),
                             .deadline_ns = deadline_ns,
                         });

    if (rc >= 0)
        ret->attr = out.attr;
    return rc < 0 ? rc : 0;
}

static int walk_on(struct os2g *c, const char *path, uint64_t deadline_ns, struct path_node *at)
{
    char name[NAME_MAX_BYTES + 1];
    int rc = 0;

    for (const char *p = path + strspn(path, "/"); rc == 0 && *p;) {
        size_t n = strcspn(p, "/");

        if (n > NAME_MAX_BYTES)
            rc = -ENAMETOOLONG;
        else if (!S_ISDIR(at->attr.mode))
            rc = -ENOTDIR;
        if (rc == 0) {
            memcpy(name, p, n);
            name[n] = 0;
            if (!strcmp(name, "..") || !strcmp(name, "."))
                rc = -EINVAL;
            else
                rc = lookup(c, name, deadline_ns, at);
        }
        p += n;
        if (*p == '/' && rc == 0 && !S_ISDIR(at->attr.mode))
            rc = -ENOTDIR;
        p += strspn(p, "/");
    }
    return rc;
}

bool path_is_control(const char *path)
{
    path += strspn(path, "/");
    return !strncmp(path, OS2G_CONTROL_DIR "/", strlen(OS2G_CONTROL_DIR "/"));
}

int path_walk(struct os2g *c, const char *path, uint64_t deadline_ns, struct path_node *ret)
{
    struct path_node at = {.generation = transport_generation(c->transport),
                           .node = FUSE_ROOT_ID,
                           .attr.mode = S_IFDIR};
    int rc = 0;

    if (!path_is_control(path))
        rc = walk_on(c, transport_below(c->transport), deadline_ns, &at);
    if (rc == 0)
        rc = walk_on(c, path, deadline_ns, &at);
    if (rc == 0 && at.node == FUSE_ROOT_ID)
        rc = root(c, deadline_ns, &at);
    if (rc < 0)
        path_forget(c, &at);
    else
        *ret = at;
    return rc;
}

void path_forget(struct os2g *c, const struct path_node *n)
{
    if (n->node != FUSE_ROOT_ID)
        transport_forget(c->transport, n->generation, n->node, 1);
}

int path_with(struct os2g *c, const char *path, int (*f)(void *arg, struct path_node *n), void *arg)
{
    uint64_t deadline = client_deadline(c);
    struct path_node n;
    unsigned generation;
    int rc;

    do {
        generation = transport_generation(c->transport);
        rc = path_walk(c, path, deadline, &n);
        if (rc == 0) {
            rc = f(arg, &n);
            path_forget(c, &n);
        }
        // in the next session it may go better
    } while (rc == -ENOTCONN && generation != transport_generation(c->transport) &&
             clock_monotonic_ns() < deadline);
    return rc;
}

// --- what is known of a node ---

int path_etag(struct os2g *c, const struct path_node *n, uint64_t deadline_ns, char ret[static 128])
{
    struct fuse_getxattr_in in = {.size = 127};
    int rc = path_ask(c, &(struct question){
                             .opcode = FUSE_GETXATTR,
                             .generation = n->generation,
                             .node = n->node,
                             .in = &in,
                             .in_len = sizeof(in),
                             .name = XATTR_ETAG,
                             .out = ret,
                             .out_len = 127,
                             .out_variable = true,
                             .deadline_ns = deadline_ns,
                         });

    ret[MAX(rc, 0)] = 0;
    return rc == -ENODATA || rc == -ENOSYS || rc == -ERANGE ? 0 : MIN(rc, 0);
}

void path_stat(const struct fuse_attr *a, struct os2g_stat *ret)
{
    *ret = (struct os2g_stat){
        .size = S_ISDIR(a->mode) ? 0 : a->size,
        .mtime_s = (int64_t)a->mtime,
        .directory = S_ISDIR(a->mode),
    };
}
