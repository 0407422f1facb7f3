// SPDX-License-Identifier: Apache-2.0
// FETCH: a whole object by its key, taken literally; no node is made.
//
//            a version is known                    nothing is known
//   start ───────────────────────► LANDING ─┐  ┌── dest is direct ──► FIRST ──larger──► LANDING
//     ▲    (a plan, a fresh listing)        │  │
//     │                                     │  └── it is not ───────► HEAD ───────────► LANDING
//     └──────────── it has changed ─────────┴──────────────────────────┘
//
// FIRST is a GET of up to an extent, which also tells size and ETag; most objects end with it. It
// asks for no range, so that nothing in the answer itself contradicts a store (or what stands
// before it) that cuts an object short or makes it longer. But a listing may: of that version it is
// LANDING's turn then, whose ranges tell who is right.
#include "fs/dirs.h"
#include "fs/plan_run.h"
#include "fs/range.h"
#include "fs/transfer.h"

#include <string.h>

#define TRIES 3 // of an object that is being replaced

struct fetching {
    struct transfer t;
    struct fs *fs;
    struct buf key; // in the store
    size_t prefix_len;
    struct list plan_uses;
    struct object *object;     // LANDING of one that others may read, too
    struct cache_object *bare; // LANDING behind FIRST
    enum plan_lead lead;       // what plans have done for it
    struct cache_waited waited;
    uint64_t since_ns; // HEAD
    uint64_t size;
    unsigned tries;
    // What a fresh listing says of it, of which no byte is here; size 0: nothing, or nothing that
    // an answer's ETag could be compared with.
    struct node_version listed;
    bool cancelled, known, contradicted;
    int error;
    struct loop_msg msg;

    enum { FIRST, HEAD, LANDING } state;
    union {
        struct cache_fetch first;
        struct s3_head head;
        struct range_land range;
    };
};

static void start(struct fetching *f);

static void drop_objects(struct fetching *f)
{
    if (f->object)
        object_put(f->fs, f->object);
    cache_object_unref(f->bare);
    f->object = NULL;
    f->bare = NULL;
}

// --- the end ---

// Any loop.
static void reply(struct fetching *f, int error)
{
    struct fs *fs = f->fs;
    struct fs_request *req = f->t.req;

    if (error == 0)
        counter_add(&fs->stats.fetch_bytes, f->size);
    req->reply->fetched(req, error == -ECANCELED ? -EINTR : error, f->size);
}

// The host has its answer.
static void end(struct fetching *f)
{
    struct stall_tally stalled = {0};
    struct fs *fs = f->fs;

    stalls_wait(&fs->stalls, STALL_FETCH, f->lead, &f->waited, f->key.data + f->prefix_len,
                f->key.len - f->prefix_len, &stalled);
    fs->fetching--;
    plan_uses_end(&f->plan_uses);
    drop_objects(f);
    buf_free(&f->key);
    transfer_end(fs, &f->t);
    free(f);
}

static void finish(struct fetching *f, int error)
{
    reply(f, error);
    end(f);
}

// A version was not there any more: true if what is there now is asked for.
static bool again(struct fetching *f, int error)
{
    bool gone = error == -ESTALE || (error == -ENOENT && f->known);

    if (!gone || f->cancelled || ++f->tries >= TRIES)
        return false;
    path_found_stale(f->fs, f->key.data + f->prefix_len, f->key.len - f->prefix_len);
    drop_objects(f);
    f->known = false;
    start(f);
    return true;
}

// --- landing a version ---

static void on_landed(struct range_land *r, int error)
{
    struct fetching *f = container_of(r, struct fetching, range);

    cache_waited_merge(&f->waited, &r->waited);
    if (!again(f, error))
        finish(f, error);
}

static void land(struct fetching *f, struct cache_object *o, uint64_t from)
{
    f->state = LANDING;
    f->range = (struct range_land){
        .fs = f->fs,
        .object = o,
        .offset = from,
        .len = o->size - from,
        .dest = f->t.req->dest,
        .dest_at = from,
        .done = on_landed,
    };
    f->size = o->size;
    range_land_start(&f->range);
}

// --- nothing is known ---

static void on_answered(struct loop_msg *msg)
{
    end(container_of(msg, struct fetching, msg));
}

// The same version with another size than the listing's.
static bool is_contradicted(const struct fetching *f)
{
    struct etag etag;

    if (!f->listed.size || f->first.size == f->listed.size)
        return false;
    etag_parse(f->first.etag, &etag);
    return etag_equal(&etag, &f->listed.etag);
}

static void land_listed(struct fetching *f)
{
    struct node_version v = f->listed;

    f->contradicted = false;
    f->listed.size = 0;
    f->known = true;
    if (v.size > f->t.req->dest->len) {
        f->size = v.size;
        finish(f, -EFBIG);
        return;
    }
    f->object = object_get(f->fs, f->key.data + f->prefix_len, f->key.len - f->prefix_len, &v);
    land(f, f->object->cache, 0);
}

static void on_more(struct loop_msg *msg)
{
    struct fetching *f = container_of(msg, struct fetching, msg);

    if (f->contradicted && !f->cancelled) {
        land_listed(f);
        return;
    }
    if (again(f, f->error))
        return;
    if (f->cancelled && !f->error)
        f->error = -ECANCELED;
    if (f->error) {
        finish(f, f->error);
        return;
    }
    f->bare = cache_object_new(f->fs->cache, f->key.data, f->key.len, f->first.etag, f->size);
    land(f, f->bare, CACHE_EXTENT);
}

// On a data loop. The host need not wait for the namespace loop.
static void on_first(struct cache_fetch *first, int error)
{
    struct fetching *f = container_of(first, struct fetching, first);
    bool all = error == 0 && first->size <= CACHE_EXTENT;

    cache_waited_merge(&f->waited, &first->waited);
    f->error = error;
    f->size = first->size;
    f->contradicted = (error == 0 || error == -EFBIG) && is_contradicted(f);
    if (!f->contradicted && (all || (error && error != -ESTALE))) {
        reply(f, error);
        loop_post(f->fs->loop, &f->msg, on_answered);
    } else {
        loop_post(f->fs->loop, &f->msg, on_more);
    }
}

static void on_head(struct s3_head *h, int error, const struct s3_object_info *info)
{
    struct fetching *f = container_of(h, struct fetching, head);
    struct cache_asked asked = {.sent_ns = f->since_ns, .on_demand = true};
    struct node_version v;

    cache_waited_bytes(&f->waited, &asked, f->since_ns, clock_monotonic_ns());
    if (!error && f->cancelled)
        error = -ECANCELED;
    if (error) {
        finish(f, error);
        return;
    }
    f->size = info->size;
    if (f->size == 0 || f->size > f->t.req->dest->len) {
        finish(f, f->size ? -EFBIG : 0);
        return;
    }
    fs_version_from_info(info, &v);
    f->object = object_get(f->fs, f->key.data + f->prefix_len, f->key.len - f->prefix_len, &v);
    land(f, f->object->cache, 0);
}

static void ask(struct fetching *f)
{
    struct cache_dest *dest = f->t.req->dest;

    if (dest->direct) {
        f->state = FIRST;
        f->first = (struct cache_fetch){
            .key = f->key.data, .key_len = f->key.len, .dest = dest, .done = on_first};
        cache_fetch_start(f->fs->cache, &f->first);
    } else {
        f->state = HEAD;
        f->since_ns = clock_monotonic_ns();
        f->head = (struct s3_head){.key = f->key.data, .key_len = f->key.len, .done = on_head};
        s3_head_start(f->fs->s3, &f->head);
    }
}

// --- what is known ---

// The version that a listing has told of within the TTL. A small one is of use only if some of
// its bytes may be here, a large one always: its extents come at the same time.
static struct object *listed(struct fetching *f, const char *key, size_t len)
{
    struct fs *fs = f->fs;
    struct object *o;
    const char *slash = memrchr(key, '/', len);
    size_t dir_len = slash ? (size_t)(slash - key) + 1 : 0;
    struct dir *d = dir_find(fs, key, dir_len);
    struct snapshot *s = d ? dir_fresh(d, UINT64_MAX) : NULL;
    struct node_version v;
    uint32_t i;

    if (!s || snapshot_lookup(s, key + dir_len, len - dir_len, &i) != SNAP_THERE ||
        s->entries[i].flags)
        return NULL;
    snapshot_version(s, i, &v);
    if (v.size == 0)
        return NULL;
    if (v.size > CACHE_EXTENT)
        return object_get(fs, key, len, &v);
    o = object_peek(fs, key, len, &v);
    if (!o && v.etag.kind == ETAG_MD5) // others point into the listing
        f->listed = v;
    return o;
}

static struct object *planned(struct fetching *f, const char *key, size_t len)
{
    struct object *o;

    if (!plan_uses_begin(f->fs, &f->plan_uses, key, len, &f->lead))
        return NULL;
    o = plan_uses_object(&f->plan_uses);
    if (o)
        return object_ref(f->fs, o);
    // it is not fetched yet, and need not be any more
    plan_uses_end(&f->plan_uses);
    return NULL;
}

static void start(struct fetching *f)
{
    const char *key = f->key.data + f->prefix_len;
    size_t len = f->key.len - f->prefix_len;

    if (f->tries == 0) {
        f->object = planned(f, key, len);
        if (f->object && f->object->cache->size > f->t.req->dest->len) {
            // it stays where it is: the host is going to ask again, with more room
            plan_uses_cancel(&f->plan_uses);
            f->size = f->object->cache->size;
            finish(f, -EFBIG);
            return;
        }
        if (!f->object)
            f->object = listed(f, key, len);
    }
    // what is larger than the room is asked for all the same: it may not be any more
    if (f->object && f->object->cache->size <= f->t.req->dest->len) {
        f->known = true;
        land(f, f->object->cache, 0);
        return;
    }
    drop_objects(f);
    ask(f);
}

// --- the operation ---

static void cancel(struct transfer *t)
{
    struct fetching *f = container_of(t, struct fetching, t);

    f->cancelled = true;
    switch (f->state) {
    case FIRST:
        cache_fetch_cancel(&f->first);
        break;
    case HEAD:
        s3_head_cancel(&f->head);
        break;
    case LANDING:
        range_land_cancel(&f->range);
        break;
    }
}

void fs_op_fetch(struct fs *fs, struct fs_request *req, const char *key, size_t len)
{
    size_t prefix_len = strlen(fs->o.prefix);
    struct fetching *f;

    counter_add(&fs->stats.fetches, 1);
    if (len == 0 || prefix_len + len > KEY_MAX_BYTES) {
        req->reply->fetched(req, len ? -ENAMETOOLONG : -EINVAL, 0);
        return;
    }
    f = xcalloc(1, sizeof(*f));
    fs->fetching++;
    f->fs = fs;
    list_init(&f->plan_uses);
    f->prefix_len = prefix_len;
    buf_add(&f->key, fs->o.prefix, prefix_len);
    buf_add(&f->key, key, len);
    transfer_begin(fs, &f->t, req, cancel);
    start(f);
}
