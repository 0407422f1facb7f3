// SPDX-License-Identifier: Apache-2.0
#include "fs/plan_run.h"

#include "fs/cold.h"
#include "fs/file.h"

#include <string.h>

#define TICK_NS      (100 * NS_PER_MS) // memory may become free without an event of the plan
#define LIST_WAIT_NS (500 * NS_PER_MS) // for a listing to come to a name; then it is asked for
// Where no window is given. What is fetched ahead without need costs memory that was never touched
// before, and is cold when it is read.
#define WINDOW_FIRST (32 * MIB)
// A FETCH under way takes the place of so many of the plan's: the plan has twice as many as there
// are connections, so that these never wait, and where FETCHes use them all, bytes land where they
// are wanted without it.
#define FETCH_WEIGHT 2
#define FEW_ENTRIES  16 // not worth a listing

struct run_plan {
    struct fs *fs;
    struct list link;  // in fs->run_plans
    struct plan *plan; // NULL once it has been freed
    unsigned refs;     // the owner, and what is in progress
    bool committed, stepping, again;
    bool window_given, keeps_pages;
    bool unlisted; // listing was refused or failed: names are asked for one by one
    uint64_t begun_ns, owner;
    uint32_t entries, impossible; // impossible: paths that no key can have, not in entries
    struct list uses;
    struct hmap held; // objects fetched and not consumed, by entry
    struct loop_timer tick;
    struct plan_stats counted; // what has gone into fs->stats
};

struct plan_use {
    struct list link, in_plan; // link: of whoever uses it
    struct run_plan *rp;
    uint32_t entry;
};

struct held {
    struct hmap_link link;
    uint32_t entry;
    struct object *object;
};

// A PLAN_FETCH under way: first what the name is, then its bytes.
struct fetching {
    struct run_plan *rp;
    uint32_t entry;
    struct dir *dir;
    struct dir_waiter page;
    struct cold_waiter cold;
    struct object *object;
    struct cache_load load;
    struct loop_msg msg;
    int error;
    size_t len, dir_len;
    char path[];
};

static void step(struct run_plan *rp);

static void rp_unref(struct run_plan *rp)
{
    if (--rp->refs)
        return;
    hmap_fini(&rp->held);
    free(rp);
}

static void count(struct run_plan *rp)
{
    struct fs *fs = rp->fs;
    struct plan_stats now;

    plan_stats_read(rp->plan, &now);
    counter_add(&fs->stats.plan_entries, now.entries - rp->counted.entries);
    counter_add(&fs->stats.plan_fetched, now.fetched - rp->counted.fetched);
    counter_add(&fs->stats.plan_used, now.used - rp->counted.used);
    counter_add(&fs->stats.plan_dropped, now.dropped - rp->counted.dropped);
    rp->counted = now;
}

// --- objects that wait for their reader ---

static void hold(struct run_plan *rp, uint32_t entry, struct object *o)
{
    struct held *h = xcalloc(1, sizeof(*h));

    h->entry = entry;
    h->object = object_ref(rp->fs, o);
    hmap_add(&rp->held, &h->link, entry);
}

static void unhold(struct run_plan *rp, struct held *h, bool unwanted)
{
    struct fs *fs = rp->fs;

    if (unwanted)
        cache_unwant(fs->cache, h->object->cache, 0, h->object->cache->size);
    object_put(fs, h->object);
    hmap_remove(&rp->held, &h->link);
    free(h);
}

static void unhold_entry(struct run_plan *rp, uint32_t entry, bool unwanted)
{
    struct hmap_link *l = hmap_first(&rp->held, entry);

    if (l)
        unhold(rp, container_of(l, struct held, link), unwanted);
}

// --- fetching an entry ---

static void fetching_free(struct fetching *f)
{
    struct fs *fs = f->rp->fs;

    if (f->object)
        object_put(fs, f->object);
    dir_put(f->dir);
    rp_unref(f->rp);
    free(f);
    fs_busy_end(fs);
}

static void on_loaded(struct loop_msg *msg)
{
    struct fetching *f = container_of(msg, struct fetching, msg);
    struct run_plan *rp = f->rp;

    if (rp->plan) {
        plan_fetched(rp->plan, f->entry, f->error);
        if (f->error)
            unhold_entry(rp, f->entry, false);
        step(rp);
    }
    fetching_free(f);
}

// On a data loop.
static void on_load(struct cache_load *load, int error)
{
    struct fetching *f = container_of(load, struct fetching, load);

    f->error = error;
    loop_post(f->rp->fs->loop, &f->msg, on_loaded);
}

static bool host_has_it(const struct fetching *f, const struct node_version *v)
{
    struct fs *fs = f->rp->fs;
    uint32_t dir = f->rp->keeps_pages ? nodes_find_dir(fs->nodes, f->path, f->dir_len) : NODE_NONE;
    uint32_t node =
        dir ? nodes_find(fs->nodes, dir, f->path + f->dir_len, f->len - f->dir_len, NODE_FILE, v)
            : NODE_NONE;

    return node && host_has_kept(fs, node);
}

static void missing(struct fetching *f)
{
    plan_missing(f->rp->plan, f->entry);
    step(f->rp);
    fetching_free(f);
}

static void fetch(struct fetching *f, const struct node_version *v)
{
    struct run_plan *rp = f->rp;
    struct fs *fs = rp->fs;
    uint64_t n = plan_sized(rp->plan, f->entry, v->size);

    if (n > 0 && host_has_it(f, v)) {
        plan_kept(rp->plan, f->entry);
        n = 0;
    }
    if (n == 0) {
        step(rp);
        fetching_free(f);
        return;
    }
    f->object = object_get(fs, f->path, f->len, v);
    hold(rp, f->entry, f->object);
    if (n == v->size && n <= WHOLE_MAX) {
        f->load =
            (struct cache_load){.object = f->object->cache, .background = true, .done = on_load};
        cache_load_start(fs->cache, &f->load);
        return;
    }
    cache_prefetch(fs->cache, f->object->cache, 0, n);
    plan_fetched(rp->plan, f->entry, 0);
    step(rp);
    fetching_free(f);
}

static void on_cold(struct cold_waiter *w, int error, enum node_kind kind,
                    const struct node_version *v)
{
    struct fetching *f = container_of(w, struct fetching, cold);

    if (!f->rp->plan)
        fetching_free(f);
    else if (error || kind != NODE_FILE)
        missing(f);
    else
        fetch(f, v);
}

// What the name is, from the directory's snapshot if that says so soon enough.
static void resolve(struct fetching *f)
{
    struct run_plan *rp = f->rp;
    struct snapshot *s = dir_fresh(f->dir, rp->begun_ns);
    enum snap_answer answer = SNAP_UNKNOWN;
    struct node_version v;
    uint32_t i;

    if (!s && rp->entries > FEW_ENTRIES && !rp->unlisted)
        s = dir_list(f->dir, rp->begun_ns);
    if (s)
        answer = snapshot_lookup(s, f->path + f->dir_len, f->len - f->dir_len, &i);
    if (answer == SNAP_THERE && !(s->entries[i].flags & SNAP_DOUBTFUL)) {
        if (s->entries[i].flags & SNAP_DIR) {
            missing(f);
            return;
        }
        snapshot_version(s, i, &v);
        fetch(f, &v);
    } else if (answer == SNAP_ABSENT) {
        missing(f);
    } else if (answer == SNAP_UNKNOWN && f->dir->listing &&
               clock_monotonic_ns() - f->dir->snap->listed_ns < LIST_WAIT_NS) {
        dir_wait(f->dir, &f->page);
    } else {
        f->cold.done = on_cold;
        cold_lookup(f->dir, f->path + f->dir_len, f->len - f->dir_len, &f->cold);
    }
}

static void on_page(struct dir_waiter *w, int error)
{
    struct fetching *f = container_of(w, struct fetching, page);

    if (!f->rp->plan) {
        fetching_free(f);
        return;
    }
    f->rp->unlisted |= error != 0;
    resolve(f);
}

static void start(struct run_plan *rp, const struct plan_action *act)
{
    struct fs *fs = rp->fs;
    size_t len = act->key_len;
    const char *slash = memrchr(act->key, '/', len);
    struct fetching *f;

    f = xcalloc(1, sizeof(*f) + len + 1);
    memcpy(f->path, act->key, len);
    f->len = len;
    f->dir_len = slash ? (size_t)(slash - act->key) + 1 : 0;
    f->rp = rp;
    rp->refs++;
    f->entry = act->entry;
    f->dir = dir_get(fs, f->path, f->dir_len);
    f->page.wake = on_page;
    fs_busy_begin(fs);
    if (name_check(f->path + f->dir_len, len - f->dir_len, len == f->dir_len) != NAME_OK)
        missing(f);
    else
        resolve(f);
}

// What is found at once re-enters here: the outermost call goes on, so that nothing recurses.
static void step(struct run_plan *rp)
{
    struct plan_action act;

    rp->again = true;
    if (rp->stepping || !rp->committed || rp->fs->closing)
        return;
    rp->stepping = true;
    while (rp->again) {
        rp->again = false;
        for (;;) {
            plan_step(rp->plan, cache_pressure(rp->fs->cache), FETCH_WEIGHT * rp->fs->fetching,
                      &act);
            if (act.what == PLAN_NOTHING)
                break;
            if (act.what == PLAN_DROP)
                unhold_entry(rp, act.entry, true);
            else
                start(rp, &act);
        }
    }
    rp->stepping = false;
    count(rp);
    if (plan_done(rp->plan))
        loop_timer_stop(&rp->tick);
}

static void on_tick(struct loop_timer *t)
{
    struct run_plan *rp = container_of(t, struct run_plan, tick);

    loop_timer_start_ns(t, TICK_NS);
    step(rp);
}

void plans_doubt_host(struct fs *fs)
{
    list_for_each_safe (it, &fs->run_plans) {
        struct run_plan *rp = list_entry(it, struct run_plan, link);

        if (plan_doubt(rp->plan))
            step(rp);
    }
}

// --- what readers do ---

bool plan_uses_begin(struct fs *fs, struct list *uses, const char *path, size_t len,
                     enum plan_lead *ret_lead)
{
    bool any = false;

    *ret_lead = PLAN_UNPLANNED;
    list_for_each_safe (it, &fs->run_plans) {
        struct run_plan *rp = list_entry(it, struct run_plan, link);
        enum plan_lead lead;
        struct plan_use *use;
        uint32_t entry;

        if (!rp->committed)
            continue;
        entry = plan_open(rp->plan, path, len, &lead);
        *ret_lead = MAX(*ret_lead, lead);
        if (entry == PLAN_NO_ENTRY)
            continue;
        use = xcalloc(1, sizeof(*use));
        use->rp = rp;
        use->entry = entry;
        list_push_back(&rp->uses, &use->in_plan);
        list_push_back(uses, &use->link);
        any = true;
        step(rp);
    }
    return any;
}

static void use_free(struct plan_use *use)
{
    list_remove(&use->link);
    list_remove(&use->in_plan);
    free(use);
}

struct object *plan_uses_object(const struct list *uses)
{
    list_for_each (it, uses) {
        struct plan_use *use = list_entry(it, struct plan_use, link);
        struct hmap_link *l = hmap_first(&use->rp->held, use->entry);

        if (l)
            return container_of(l, struct held, link)->object;
    }
    return NULL;
}

void plan_uses_end(struct list *uses)
{
    list_for_each_safe (it, uses) {
        struct plan_use *use = list_entry(it, struct plan_use, link);
        struct run_plan *rp = use->rp;
        uint32_t entry = use->entry;

        use_free(use);
        if (plan_consume(rp->plan, entry))
            unhold_entry(rp, entry, false);
        step(rp);
    }
}

void plan_uses_cancel(struct list *uses)
{
    list_for_each_safe (it, uses) {
        struct plan_use *use = list_entry(it, struct plan_use, link);

        plan_unopen(use->rp->plan, use->entry);
        use_free(use);
    }
}

// --- life ---

// What is left of their number and memory for one more.
static int room_for_plan(const struct fs *fs, uint64_t *ret_memory)
{
    uint64_t used = 0;
    unsigned n = 0;

    list_for_each (it, &fs->run_plans) {
        struct plan_stats stats;

        plan_stats_read(list_entry(it, struct run_plan, link)->plan, &stats);
        used += stats.memory;
        n++;
    }
    if (n >= PLANS_MAX || used >= PLANS_MEMORY)
        return -ENOSPC;
    *ret_memory = PLANS_MEMORY - used;
    return 0;
}

int run_plan_new(struct run_plan **ret, struct fs *fs, uint64_t window_bytes, uint64_t owner,
                 bool keeps_pages)
{
    struct plan_config c = {.window_bytes = window_bytes};
    struct cache_stats pool;
    struct run_plan *rp;
    int rc = room_for_plan(fs, &c.memory_max);

    if (rc < 0)
        return rc;
    if (!c.window_bytes) {
        cache_stats_read(fs->cache, &pool);
        c.window_bytes = pool.pool_bytes / 2;
        c.window_first = MAX(WINDOW_FIRST, fs->plan_window);
    }
    rp = xcalloc(1, sizeof(*rp));
    rp->fs = fs;
    rp->refs = 1;
    rp->window_given = window_bytes != 0;
    rp->begun_ns = clock_monotonic_ns();
    rp->owner = owner;
    rp->keeps_pages = keeps_pages;
    rp->plan = plan_new(&c);
    list_init(&rp->uses);
    loop_timer_init(&rp->tick, fs->loop, on_tick);
    list_push_back(&fs->run_plans, &rp->link);
    *ret = rp;
    return 0;
}

int run_plan_add(struct run_plan *rp, const char *path, size_t len)
{
    int rc;

    while (len && (path[0] == '/' || (len > 1 && path[0] == '.' && path[1] == '/'))) {
        path++;
        len--;
    }
    if (len == 0 || len > KEY_MAX_BYTES) {
        rp->impossible++;
        return 0;
    }
    rc = plan_add(rp->plan, path, len);
    if (rc == 0)
        rp->entries++;
    return rc;
}

void run_plan_commit(struct run_plan *rp)
{
    rp->committed = true;
    plan_commit(rp->plan);
    stalls_plan_begun(&rp->fs->stalls, rp->owner, clock_monotonic_ns());
    loop_timer_start_ns(&rp->tick, TICK_NS);
    step(rp);
}

bool run_plan_committed(const struct run_plan *rp)
{
    return rp->committed;
}

void run_plan_free(struct run_plan *rp)
{
    struct plan_stats stats;

    if (!rp)
        return;
    if (rp->committed)
        stalls_plan_ended(&rp->fs->stalls, rp->owner, clock_monotonic_ns());
    // the next epoch's readers are likely to be as many
    plan_stats_read(rp->plan, &stats);
    if (rp->committed && !rp->window_given)
        rp->fs->plan_window = stats.window;
    loop_timer_stop(&rp->tick);
    list_remove(&rp->link);
    list_for_each_safe (it, &rp->uses)
        use_free(list_entry(it, struct plan_use, in_plan));
    for (size_t i = 0; i < rp->held.size; i++)
        for (struct hmap_link *l = rp->held.buckets[i], *next; l; l = next) {
            next = l->next;
            unhold(rp, container_of(l, struct held, link), true);
        }
    plan_free(rp->plan);
    rp->plan = NULL;
    rp_unref(rp);
}

void run_plan_stats(const struct run_plan *rp, struct plan_stats *ret)
{
    plan_stats_read(rp->plan, ret);
    ret->entries += rp->impossible;
    ret->missing += rp->impossible;
}
