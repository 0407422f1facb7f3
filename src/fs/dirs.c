// SPDX-License-Identifier: Apache-2.0
#include "fs/dirs.h"

#include <string.h>

#define METADATA_MEMORY (256 * MIB)
#define IDLE_DIRS       4096
#define COLD_LOOKUPS    4 // in a directory, before it is listed
#define COLD_WINDOW_NS  (60 * NS_PER_S)
#define REFRESH_USES    16 // of a snapshot, and a thousandth of its names: worth listing again

static uint64_t memory_max(const struct fs *fs)
{
    return fs->o.metadata_memory ? fs->o.metadata_memory : METADATA_MEMORY;
}

// --- directories ---

struct dir *dir_find(struct fs *fs, const char *path, size_t len)
{
    struct hmap_link *l = hmap_first(&fs->dirs, fs_hash(path, len, 0));

    for (; l; l = hmap_next(l)) {
        struct dir *d = container_of(l, struct dir, link);

        if (d->len == len && !memcmp(d->path, path, len))
            return d;
    }
    return NULL;
}

static void dir_free(struct dir *d)
{
    struct fs *fs = d->fs;

    if (!list_empty(&d->idle)) {
        list_remove(&d->idle);
        fs->n_idle_dirs--;
    }
    hmap_remove(&fs->dirs, &d->link);
    free(d);
}

struct dir *dir_get(struct fs *fs, const char *path, size_t len)
{
    struct dir *d = dir_find(fs, path, len);

    if (!d) {
        d = xcalloc(1, sizeof(*d) + len + 1);
        d->fs = fs;
        d->len = len;
        memcpy(d->path, path, len);
        list_init(&d->idle);
        list_init(&d->waiters);
        list_init(&d->colds);
        hmap_add(&fs->dirs, &d->link, fs_hash(path, len, 0));
    }
    if (!list_empty(&d->idle)) {
        list_remove(&d->idle);
        fs->n_idle_dirs--;
    }
    d->users++;
    return d;
}

struct dir *dir_of_node(struct fs *fs, uint32_t node)
{
    struct buf path = {0};
    struct dir *d;

    nodes_path(fs->nodes, node, &path);
    d = dir_get(fs, buf_str(&path), path.len);
    buf_free(&path);
    return d;
}

// One that nothing refers to is kept a while for its count of lookups.
static void dir_settle(struct dir *d)
{
    struct fs *fs = d->fs;

    if (d->users || d->snap || d->next || d->listing || !list_empty(&d->idle))
        return;
    if (!d->cold) {
        dir_free(d);
        return;
    }
    list_push_back(&fs->idle_dirs, &d->idle);
    if (++fs->n_idle_dirs > IDLE_DIRS)
        dir_free(list_entry(fs->idle_dirs.next, struct dir, idle));
}

void dir_put(struct dir *d)
{
    assert(d->users > 0);
    d->users--;
    dir_settle(d);
}

// --- memory ---

static void count(struct fs *fs)
{
    counter_set(&fs->stats.snapshots, fs->n_snapshots);
    counter_set(&fs->stats.snapshot_bytes, fs->snapshot_bytes);
}

static void use(struct fs *fs, struct snapshot *s)
{
    list_remove(&s->lru);
    list_push_back(&fs->snapshots, &s->lru);
}

static void discharge(struct fs *fs, struct snapshot *s)
{
    fs->snapshot_bytes -= s->charged;
    counter_sub(&fs->stats.hidden_keys, s->charged_hidden);
}

static void forget_snapshot(struct fs *fs, struct snapshot *s)
{
    discharge(fs, s);
    fs->n_snapshots--;
    list_remove(&s->lru);
    list_for_each_safe (it, &s->streams)
        list_remove(it); // the stream sees it by its link
    snapshot_free(s);
    count(fs);
}

static void drop_snapshot(struct fs *fs, struct snapshot *s)
{
    struct dir *d = s->dir;

    if (d && d->next == s)
        d->next = NULL;
    else if (d)
        d->snap = NULL;
    forget_snapshot(fs, s);
    if (d)
        dir_settle(d);
}

static void charge(struct fs *fs, struct snapshot *s)
{
    uint64_t max = memory_max(fs);

    if (!s->charged)
        fs->n_snapshots++;
    else
        discharge(fs, s);
    s->charged = snapshot_bytes(s);
    s->charged_hidden = s->hidden;
    fs->snapshot_bytes += s->charged;
    counter_add(&fs->stats.hidden_keys, s->charged_hidden);
    use(fs, s);
    list_for_each_safe (it, &fs->snapshots) {
        struct snapshot *old = list_entry(it, struct snapshot, lru);

        if (fs->snapshot_bytes <= max)
            break;
        if (old != s && !(old->dir && old->dir->listing))
            drop_snapshot(fs, old);
    }
    count(fs);
}

void dirs_attach(struct snapshot *s, struct list *stream)
{
    list_push_back(&s->streams, stream);
}

void dirs_detach(struct fs *fs, struct snapshot *s, struct list *stream)
{
    if (list_empty(stream))
        return;
    list_remove(stream);
    if (!s->dir && list_empty(&s->streams))
        forget_snapshot(fs, s);
}

// --- listing ---

static bool within_ttl(const struct fs *fs, uint64_t listed_ns, uint64_t now_ns)
{
    return fs->o.metadata_ttl_ns == UINT64_MAX || now_ns - listed_ns < fs->o.metadata_ttl_ns;
}

static bool is_good(const struct fs *fs, const struct snapshot *s, uint64_t since_ns)
{
    return s && (s->listed_ns >= since_ns || within_ttl(fs, s->listed_ns, clock_monotonic_ns()));
}

// One that is no directory's any more lives on for the handles that read it.
static void replace_snapshot(struct dir *d, struct snapshot *new)
{
    struct snapshot *old = d->snap;

    d->snap = new;
    if (!old)
        return;
    old->dir = NULL;
    if (list_empty(&old->streams))
        forget_snapshot(d->fs, old);
}

static void promote_next(struct dir *d)
{
    replace_snapshot(d, d->next);
    d->next = NULL;
}

static void start_listing(struct dir *d, enum http_priority priority, bool behind);

// What is used much is listed again before its time has come, so that no lookup has to ask; as long
// as there is memory for both, so that nobody's snapshot goes for it.
static void refresh_in_time(struct dir *d, struct snapshot *s)
{
    struct fs *fs = d->fs;
    uint64_t ttl = fs->o.metadata_ttl_ns;

    if (s->complete && !d->listing && !d->large && !fs->closing && ttl != UINT64_MAX &&
        fs->snapshot_bytes <= memory_max(fs) / 2 &&
        clock_monotonic_ns() - s->listed_ns > ttl - ttl / 4 &&
        s->uses >= REFRESH_USES + s->n / 1000)
        start_listing(d, HTTP_BACKGROUND, true);
}

struct snapshot *dir_fresh(struct dir *d, uint64_t since_ns)
{
    struct snapshot *s;

    if (d->next && !is_good(d->fs, d->snap, since_ns))
        promote_next(d);
    s = d->snap;
    if (!is_good(d->fs, s, since_ns))
        return NULL;
    use(d->fs, s);
    s->uses++;
    refresh_in_time(d, s);
    return s;
}

uint64_t dir_valid_ns(const struct fs *fs, const struct snapshot *s)
{
    uint64_t ttl = fs->o.metadata_ttl_ns, age = clock_monotonic_ns() - s->listed_ns;

    if (ttl == UINT64_MAX)
        return ttl;
    return age < ttl ? ttl - age : 0;
}

void dir_wait(struct dir *d, struct dir_waiter *w)
{
    list_push_back(&d->waiters, &w->link);
}

void dir_wait_cancel(struct dir_waiter *w)
{
    list_remove(&w->link);
}

static void wake_all(struct dir *d, int error)
{
    struct list woken;

    list_init(&woken);
    list_splice_back(&woken, &d->waiters);
    while (!list_empty(&woken)) {
        struct dir_waiter *w = list_first(&woken, struct dir_waiter, link);

        list_remove(&w->link);
        w->wake(w, error);
    }
}

static void end_listing(struct dir *d)
{
    if (d->prelisted)
        d->fs->prelisting--;
    d->prelisted = false;
    listing_free(d->listing);
    d->listing = NULL;
}

// Stops one that would take more than its share of memory.
static bool too_large(const struct fs *fs, const struct snapshot *s)
{
    return s->charged > memory_max(fs) / 4 ||
           (fs->snapshot_bytes > memory_max(fs) && s->charged > memory_max(fs) / 32);
}

// The listing of s comes to nothing. The one in use, if it was to take its place, has to be used as
// much again before another is tried.
static void give_up_listing(struct dir *d, struct snapshot *s)
{
    end_listing(d);
    if (d->next == s)
        d->snap->uses = 0;
    drop_snapshot(d->fs, s);
}

static void on_page(struct listing *l, int error, bool last)
{
    struct dir *d = l->arg;
    struct fs *fs = d->fs;
    struct snapshot *s = l->into;

    d->users++; // over what the waiters do
    if (error) {
        if (error != -ECANCELED)
            log_warning("fs", "listing %s%s: %s", fs->o.prefix, d->path, listing_error(l));
        give_up_listing(d, s);
    } else {
        if (last) {
            end_listing(d);
            snapshot_complete(s);
            charge(fs, s);
            if (d->next)
                promote_next(d);
        } else {
            charge(fs, s);
            if (too_large(fs, s)) {
                d->large = true;
                s->truncated = true;
                if (d->next == s)
                    give_up_listing(d, s);
                else
                    end_listing(d);
            } else {
                listing_next(l);
            }
        }
    }
    wake_all(d, error);
    dir_put(d);
}

// behind: the snapshot there is goes on being used meanwhile.
static void start_listing(struct dir *d, enum http_priority priority, bool behind)
{
    struct snapshot *s = snapshot_new(clock_monotonic_ns());

    s->dir = d;
    if (behind)
        d->next = s;
    else
        replace_snapshot(d, s);
    d->cold = 0;
    d->listing = listing_new(d->fs, d->path, d->len, NULL, 0, s);
    d->listing->priority = priority;
    d->listing->page = on_page;
    d->listing->arg = d;
    charge(d->fs, s);
    listing_next(d->listing);
}

struct snapshot *dir_list(struct dir *d, uint64_t since_ns)
{
    struct snapshot *s = dir_fresh(d, since_ns);

    if (!s && d->listing) // it has taken longer than the TTL: what it finds is still the newest
        s = d->snap;
    if (!s) {
        start_listing(d, HTTP_DEMAND, false);
        s = d->snap;
    }
    if (d->prelisted) {
        d->prelisted = false;
        d->fs->prelisting--;
        d->listing->priority = HTTP_DEMAND;
    }
    return s;
}

void dir_prelist(struct dir *d)
{
    struct fs *fs = d->fs;

    if (dir_fresh(d, UINT64_MAX) || d->listing || fs->closing || !fs->o.metadata_ttl_ns ||
        fs->snapshot_bytes > memory_max(fs) / 2)
        return;
    start_listing(d, HTTP_BACKGROUND, false);
    d->prelisted = true;
    fs->prelisting++;
}

void dir_count_cold(struct dir *d)
{
    uint64_t now = clock_monotonic_ns(), ttl = d->fs->o.metadata_ttl_ns;

    if (!d->cold || now - d->cold_since_ns > MIN(ttl, (uint64_t)COLD_WINDOW_NS)) {
        d->cold = 0;
        d->cold_since_ns = now;
    }
    d->cold++;
    if (d->cold > COLD_LOOKUPS && ttl && !d->large && !d->listing && !dir_fresh(d, UINT64_MAX) &&
        !d->fs->closing)
        start_listing(d, HTTP_DEMAND, false);
}

// --- life ---

void dirs_init(struct fs *fs)
{
    list_init(&fs->idle_dirs);
    list_init(&fs->snapshots);
}

void dirs_stop(struct fs *fs)
{
    list_for_each_safe (it, &fs->snapshots) {
        struct snapshot *s = list_entry(it, struct snapshot, lru);

        if (s->dir && s->dir->listing) {
            wake_all(s->dir, -ECANCELED);
            end_listing(s->dir);
        }
    }
}

void dirs_fini(struct fs *fs)
{
    list_for_each_safe (it, &fs->snapshots)
        drop_snapshot(fs, list_entry(it, struct snapshot, lru));
    list_for_each_safe (it, &fs->idle_dirs)
        dir_free(list_entry(it, struct dir, idle));
    assert(fs->dirs.n == 0);
    hmap_fini(&fs->dirs);
}
