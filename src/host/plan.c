// SPDX-License-Identifier: Apache-2.0
// Plans: an open control file of the export (wire/control.h). It and the plan are a session's, and
// the plan does not outlive the daemon's worker either: the keys stay here, and what is lost is set
// again, from where the readers were when last asked.
#include "host/call.h"
#include "host/client.h"

#include "base/clock.h"
#include "wire/control.h"
#include "wire/ops.h"

#include <fcntl.h>
#include <linux/fuse.h>
#include <stdlib.h>
#include <string.h>

struct os2g_plan {
    struct os2g *client;
    uint64_t window_bytes;
    unsigned forks; // fork_count() when it was made

    struct {
        pthread_mutex_t lock; // not taken in a child of fork(); held while the device is asked
        char *keys;           // each ends with zero
        size_t keys_len, keys_size;
        uint64_t n; // of them
        bool committed;

        // the control file, in the session generation
        bool open;
        unsigned generation;
        uint64_t directory, file; // nodes
        uint64_t handle;

        // the plan that is set there begins behind what before says has been
        struct os2g_plan_status before, last;
        uint64_t begun;
    } locked;
};

static int enter(struct os2g_plan *p)
{
    if (p->forks != fork_count())
        return client_fail(-EPERM, "this plan belongs to the process that made it");
    return client_enter(p->client);
}

// --- the control file ---

// As call_run; what belongs to a session that has ended is -ESTALE, -ENOTCONN is for good.
static int run_locked(struct os2g_plan *p, struct call *call)
{
    int rc;

    call->deadline_ns = client_deadline(p->client);
    call->client = p->client;
    rc = call_run(p->client->transport, call);
    if (rc != -ENOTCONN || !call->generation)
        return rc;
    p->locked.open = false;
    return -ESTALE;
}

static int look_up(struct os2g_plan *p, uint64_t parent, const char *name, uint64_t *ret_node)
{
    struct fuse_entry_out entry;
    struct call call = {.opcode = FUSE_LOOKUP,
                        .nodeid = parent,
                        .generation = parent == FUSE_ROOT_ID ? 0 : p->locked.generation,
                        .in = {{(void *)name, strlen(name) + 1}},
                        .n_in = 1,
                        .out = &entry,
                        .out_len = sizeof(entry)};
    int rc = run_locked(p, &call);

    if (rc < 0)
        return rc;
    if (!entry.nodeid)
        return -ENOENT;
    *ret_node = entry.nodeid;
    return 0;
}

static void close_locked(struct os2g_plan *p)
{
    struct transport *t = p->client->transport;
    struct fuse_release_in in = {.fh = p->locked.handle};
    struct call call = {.opcode = FUSE_RELEASE,
                        .nodeid = p->locked.file,
                        .generation = p->locked.generation,
                        .in = {{&in, sizeof(in)}},
                        .n_in = 1};

    if (!p->locked.open)
        return;
    p->locked.open = false;
    // a session that has ended has closed it; its user is not asked, who may be done with it
    call.deadline_ns = client_deadline(p->client);
    call_run(t, &call);
    transport_forget(t, p->locked.generation, p->locked.file, 1);
    transport_forget(t, p->locked.generation, p->locked.directory, 1);
}

// In the present session, unless it is open there.
static int open_locked(struct os2g_plan *p)
{
    struct transport *t = p->client->transport;
    struct fuse_open_in in = {.flags = O_RDONLY};
    struct fuse_open_out out;
    struct call call = {.opcode = FUSE_OPEN,
                        .in = {{&in, sizeof(in)}},
                        .n_in = 1,
                        .out = &out,
                        .out_len = sizeof(out)};
    int rc;

    if (p->locked.open && p->locked.generation == transport_generation(t))
        return 0;
    close_locked(p);
    p->locked.generation = transport_generation(t);
    rc = look_up(p, FUSE_ROOT_ID, OS2G_CONTROL_DIR, &p->locked.directory);
    if (rc < 0)
        return rc;
    rc = look_up(p, p->locked.directory, OS2G_CONTROL_FILE, &p->locked.file);
    if (rc < 0)
        goto forget_directory;
    call.nodeid = p->locked.file;
    call.generation = p->locked.generation;
    rc = run_locked(p, &call);
    if (rc < 0)
        goto forget_file;
    p->locked.handle = out.fh;
    p->locked.open = true;
    return 0;

forget_file:
    transport_forget(t, p->locked.generation, p->locked.file, 1);
forget_directory:
    transport_forget(t, p->locked.generation, p->locked.directory, 1);
    return rc;
}

static int ask_locked(struct os2g_plan *p, struct os2g_plan_request *r, uint32_t op)
{
    struct fuse_ioctl_in in = {.fh = p->locked.handle,
                               .cmd = (uint32_t)OS2G_IOC_PLAN,
                               .in_size = sizeof(*r),
                               .out_size = sizeof(*r)};
    struct {
        struct fuse_ioctl_out head;
        struct os2g_plan_request r;
    } out;
    struct call call = {.opcode = FUSE_IOCTL,
                        .nodeid = p->locked.file,
                        .generation = p->locked.generation,
                        .in = {{&in, sizeof(in)}, {r, sizeof(*r)}},
                        .n_in = 2,
                        .out = &out,
                        .out_len = sizeof(out)};
    int rc;

    r->op = op;
    rc = run_locked(p, &call);
    if (rc < 0)
        return rc;
    if (out.head.result < 0)
        return out.head.result;
    memcpy(r, &out.r, sizeof(*r));
    return 0;
}

// --- setting it ---

// The number of entries of the plan that are not waited for any more.
static uint64_t over(const struct os2g_plan_status *s)
{
    return s->used + s->dropped + s->missing;
}

static void add_up(struct os2g_plan_status *to, const struct os2g_plan_status *s)
{
    to->fetched += s->fetched;
    to->used += s->used;
    to->dropped += s->dropped;
    to->missing += s->missing;
    to->bytes += s->bytes;
}

// All keys from number begun on, and the commit.
static int send_locked(struct os2g_plan *p, struct os2g_plan_request *r)
{
    const char *key = p->locked.keys, *end = key + p->locked.keys_len;
    int rc;

    *r = (struct os2g_plan_request){.window_bytes = p->window_bytes};
    rc = ask_locked(p, r, OS2G_PLAN_BEGIN);
    r->len = 0;
    for (uint64_t i = 0; i < p->locked.begun; i++)
        key += strlen(key) + 1;
    while (rc == 0 && key < end) {
        size_t len = strlen(key) + 1;

        if (r->len + len > sizeof(r->data)) {
            rc = ask_locked(p, r, OS2G_PLAN_ADD);
            r->len = 0;
        }
        memcpy(r->data + r->len, key, len);
        r->len += (uint32_t)len;
        key += len;
    }
    if (rc == 0 && r->len)
        rc = ask_locked(p, r, OS2G_PLAN_ADD);
    r->len = 0;
    return rc < 0 ? rc : ask_locked(p, r, OS2G_PLAN_COMMIT);
}

// Whether error says that the plan went with the session or the worker, so that trying again helps.
static bool is_lost(int error)
{
    return error == -ESTALE || error == -EBADF;
}

static int set_locked(struct os2g_plan *p, struct os2g_plan_request *r)
{
    uint64_t deadline_ns = client_deadline(p->client);
    int rc;

    do {
        add_up(&p->locked.before, &p->locked.last);
        p->locked.last = (struct os2g_plan_status){0};
        p->locked.begun = MIN(over(&p->locked.before), p->locked.n);
        rc = open_locked(p);
        if (rc == 0)
            rc = send_locked(p, r);
        if (rc == -EBADF)
            close_locked(p);
    } while (is_lost(rc) && clock_monotonic_ns() < deadline_ns);
    return rc;
}

// The device's counts, of the plan as it is set; sets it again when it was lost.
static int refresh_locked(struct os2g_plan *p, struct os2g_plan_request *r)
{
    uint64_t deadline_ns = client_deadline(p->client);
    int rc;

    for (;;) {
        bool lost =
            !p->locked.open || p->locked.generation != transport_generation(p->client->transport);

        rc = lost ? 0 : ask_locked(p, r, OS2G_PLAN_STATUS);
        lost = lost || is_lost(rc) || (rc == 0 && p->locked.begun + r->entries < p->locked.n);
        if (!lost || clock_monotonic_ns() >= deadline_ns)
            break;
        rc = set_locked(p, r);
        if (rc < 0)
            break;
    }
    if (rc == 0)
        p->locked.last = (struct os2g_plan_status){.fetched = r->fetched,
                                                   .used = r->used,
                                                   .dropped = r->dropped,
                                                   .missing = r->missing,
                                                   .bytes = r->bytes};
    return rc;
}

// --- the calls ---

int os2g_plan_new(struct os2g *c, struct os2g_plan **ret, uint64_t window_bytes)
{
    struct os2g_plan *p;
    int rc = client_enter(c);

    if (rc < 0)
        return rc;
    p = calloc(1, sizeof(*p));
    if (!p)
        return client_fail_errno(-ENOMEM, NULL);
    p->client = c;
    p->window_bytes = window_bytes;
    p->forks = fork_count();
    pthread_mutex_init(&p->locked.lock, NULL);
    // that there are plans is found out here
    rc = open_locked(p);
    if (rc < 0) {
        os2g_plan_free(p);
        return client_fail_errno(rc, "the export's control file");
    }
    *ret = p;
    return 0;
}

static int keep_locked(struct os2g_plan *p, const char *const *keys, size_t n)
{
    size_t len = p->locked.keys_len, size = MAX(4 * KIB, p->locked.keys_size);
    const char *below = transport_below(p->client->transport);
    char *grown, *end;

    for (size_t i = 0; i < n; i++)
        len += strlen(below) + strlen(keys[i]) + 1;
    while (size < len)
        size *= 2;
    grown = realloc(p->locked.keys, size);
    if (!grown)
        return client_fail_errno(-ENOMEM, "the keys of a plan");
    p->locked.keys = grown;
    p->locked.keys_size = size;
    end = grown + p->locked.keys_len;
    for (size_t i = 0; i < n; i++)
        end = stpcpy(stpcpy(end, below), keys[i]) + 1;
    p->locked.keys_len = (size_t)(end - grown);
    p->locked.n += n;
    return 0;
}

int os2g_plan_add(struct os2g_plan *p, const char *const *keys, size_t n)
{
    int rc = enter(p);

    if (rc < 0)
        return rc;
    for (size_t i = 0; i < n; i++) {
        size_t len = keys[i] ? strlen(keys[i]) : 0;

        if (len == 0 || len > OS2G_KEY_MAX)
            return client_fail(-EINVAL, "a key has 1 to %d bytes", OS2G_KEY_MAX);
    }
    pthread_mutex_lock(&p->locked.lock);
    rc = p->locked.committed ? client_fail(-EINVAL, "the plan has been committed")
                             : keep_locked(p, keys, n);
    pthread_mutex_unlock(&p->locked.lock);
    return rc;
}

int os2g_plan_commit(struct os2g_plan *p)
{
    struct os2g_plan_request *r;
    int rc = enter(p);

    if (rc < 0)
        return rc;
    r = malloc(sizeof(*r));
    if (!r)
        return client_fail_errno(-ENOMEM, NULL);
    pthread_mutex_lock(&p->locked.lock);
    if (p->locked.committed) {
        rc = client_fail(-EINVAL, "the plan has been committed");
    } else {
        rc = set_locked(p, r);
        p->locked.committed = rc == 0;
        if (rc < 0)
            client_fail_errno(rc, "the plan");
    }
    pthread_mutex_unlock(&p->locked.lock);
    free(r);
    return rc;
}

int os2g_plan_status(struct os2g_plan *p, struct os2g_plan_status *ret)
{
    struct os2g_plan_request *r;
    int rc = enter(p);

    if (rc < 0)
        return rc;
    r = calloc(1, sizeof(*r));
    if (!r)
        return client_fail_errno(-ENOMEM, NULL);
    pthread_mutex_lock(&p->locked.lock);
    if (p->locked.committed)
        rc = refresh_locked(p, r);
    if (rc < 0) {
        client_fail_errno(rc, "the plan");
    } else {
        *ret = p->locked.before;
        add_up(ret, &p->locked.last);
        ret->entries = p->locked.n;
    }
    pthread_mutex_unlock(&p->locked.lock);
    free(r);
    return rc;
}

void os2g_plan_free(struct os2g_plan *p)
{
    if (!p)
        return;
    if (p->forks == fork_count() && client_enter(p->client) == 0) {
        close_locked(p);
        pthread_mutex_destroy(&p->locked.lock);
    }
    free(p->locked.keys);
    free(p);
}
