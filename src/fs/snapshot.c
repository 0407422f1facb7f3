// SPDX-License-Identifier: Apache-2.0
#include "fs/snapshot.h"

#include "fs/hmap.h"

#include <string.h>

#define COOKIE_FIRST 3 // number of entry 0

struct snapshot *snapshot_new(uint64_t now_ns)
{
    struct snapshot *s = xcalloc(1, sizeof(*s));

    s->listed_ns = now_ns;
    list_init(&s->lru);
    list_init(&s->streams);
    neighbours_init(&s->neighbours);
    return s;
}

void snapshot_free(struct snapshot *s)
{
    if (!s)
        return;
    free(s->entries);
    buf_free(&s->names);
    free(s);
}

uint64_t snapshot_bytes(const struct snapshot *s)
{
    return sizeof(*s) + (uint64_t)s->size * sizeof(*s->entries) + s->names.size;
}

const char *snapshot_name(const struct snapshot *s, uint32_t i)
{
    return s->names.data + s->entries[i].name;
}

// --- order ---

// A key of an entry: its name, and a '/' behind a directory's.
struct key {
    const char *name;
    size_t len;
    bool dir;
};

static int compare(const struct key *a, const struct key *b)
{
    size_t common = MIN(a->len, b->len);
    int c = memcmp(a->name, b->name, common), next_a, next_b;

    if (c)
        return c;
    // what follows the common bytes; -1: nothing
    next_a = a->len > common ? (uint8_t)a->name[common] : a->dir ? '/' : -1;
    next_b = b->len > common ? (uint8_t)b->name[common] : b->dir ? '/' : -1;
    if (next_a != next_b)
        return next_a - next_b;
    // no name has a '/' in it, so both end here
    return 0;
}

static struct key key_of(const struct snapshot *s, uint32_t i)
{
    return (struct key){snapshot_name(s, i), s->entries[i].name_len,
                        s->entries[i].flags & SNAP_DIR};
}

static int compare_at(const struct snapshot *s, uint32_t i, const struct key *k)
{
    struct key ki = key_of(s, i);

    return compare(&ki, k);
}

// The first entry that is not before k, of [0, n).
static uint32_t lower_bound(const struct snapshot *s, uint32_t n, const struct key *k)
{
    uint32_t from = 0;

    while (from < n) {
        uint32_t mid = from + (n - from) / 2;

        if (compare_at(s, mid, k) < 0)
            from = mid + 1;
        else
            n = mid;
    }
    return from;
}

static int compare_entries(const void *a, const void *b, void *arg)
{
    const struct snapshot *s = arg;
    const struct snap_entry *x = a, *y = b;
    struct key kx = {s->names.data + x->name, x->name_len, x->flags & SNAP_DIR};
    struct key ky = {s->names.data + y->name, y->name_len, y->flags & SNAP_DIR};

    return compare(&kx, &ky);
}

// --- adding ---

int snapshot_add(struct snapshot *s, const char *name, size_t len,
                 const struct node_version *version)
{
    struct snap_entry *e;

    if (s->n == s->size) {
        uint32_t size = s->size < 64 ? 64 : s->size + s->size / 2;
        struct snap_entry *entries = realloc(s->entries, size * sizeof(*entries));

        if (!entries)
            return -ENOMEM;
        s->entries = entries;
        s->size = size;
    }
    if (s->names.len > UINT32_MAX - 1024 || s->n > INT32_MAX - 16)
        return -ENOMEM;
    e = &s->entries[s->n++];
    *e = (struct snap_entry){.name = (uint32_t)s->names.len, .name_len = (uint8_t)len};
    buf_add(&s->names, name, len);
    if (!version) {
        e->flags = SNAP_DIR;
        return 0;
    }
    e->size = version->size;
    e->mtime_s = version->mtime_s;
    e->flags = version->archived ? SNAP_ARCHIVED : 0;
    e->etag_kind = version->etag.kind;
    e->etag_parts = version->etag.parts;
    memcpy(e->md5, version->etag.md5, sizeof(e->md5));
    if (e->etag_kind == ETAG_TEXT) {
        e->etag_len = version->etag.text_len;
        buf_add(&s->names, version->etag.text, e->etag_len);
    }
    return 0;
}

// Hides the object that has the name of the directory at i.
static void hide_twin(struct snapshot *s, uint32_t i)
{
    struct key twin = {snapshot_name(s, i), s->entries[i].name_len, false};
    uint32_t at = lower_bound(s, i, &twin);

    if (at < i && compare_at(s, at, &twin) == 0) {
        s->entries[at].flags |= SNAP_HIDDEN;
        s->hidden++;
    }
}

// Sorts [from, n) and takes out what is there twice.
static void sort_from(struct snapshot *s, uint32_t from)
{
    uint32_t to = from;

    qsort_r(s->entries + from, s->n - from, sizeof(*s->entries), compare_entries, s);
    for (uint32_t i = from; i < s->n; i++)
        if (to == 0 || compare_entries(&s->entries[to - 1], &s->entries[i], s) != 0)
            s->entries[to++] = s->entries[i];
    s->n = to;
}

void snapshot_page_end(struct snapshot *s)
{
    uint32_t page = s->page;

    if (s->n == page)
        return;
    if (!s->disordered) {
        sort_from(s, page);
        // keys of a page are all behind those of the page before, says S3
        if (page > 0 && s->n > page &&
            compare_entries(&s->entries[page - 1], &s->entries[page], s) > 0)
            s->disordered = true;
    }
    if (!s->disordered)
        for (uint32_t i = page; i < s->n; i++)
            if (s->entries[i].flags & SNAP_DIR)
                hide_twin(s, i);
    s->page = s->n;
}

// Gives back the room that was kept for growing.
static void trim(struct snapshot *s)
{
    if (s->n && s->n < s->size) {
        s->entries = xrealloc(s->entries, s->n * sizeof(*s->entries));
        s->size = s->n;
    }
    if (s->names.len) {
        s->names.data = xrealloc(s->names.data, s->names.len + 1);
        s->names.size = s->names.len + 1;
    }
}

void snapshot_complete(struct snapshot *s)
{
    snapshot_page_end(s);
    if (s->disordered) {
        for (uint32_t i = 0; i < s->n; i++)
            s->entries[i].flags &= (uint8_t)~SNAP_HIDDEN;
        sort_from(s, 0);
        s->page = s->n; // some were there twice
        for (uint32_t i = 0; i < s->n; i++)
            if (s->entries[i].flags & SNAP_DIR)
                hide_twin(s, i);
        s->disordered = false;
    }
    trim(s);
    s->complete = true;
}

void snapshot_drop_front(struct snapshot *s, uint32_t k)
{
    struct buf names = {0};

    assert(k <= s->page && s->page == s->n);
    memmove(s->entries, s->entries + k, (s->n - k) * sizeof(*s->entries));
    s->n -= k;
    s->page -= k;
    for (uint32_t i = 0; i < s->n; i++) {
        struct snap_entry *e = &s->entries[i];
        uint32_t at = (uint32_t)names.len;

        buf_add(&names, s->names.data + e->name, (size_t)e->name_len + e->etag_len);
        e->name = at;
    }
    buf_free(&s->names);
    s->names = names;
}

// --- reading ---

void snapshot_version(const struct snapshot *s, uint32_t i, struct node_version *ret)
{
    const struct snap_entry *e = &s->entries[i];

    *ret = (struct node_version){.size = e->size,
                                 .mtime_s = e->mtime_s,
                                 .archived = e->flags & SNAP_ARCHIVED,
                                 .etag = {.kind = e->etag_kind,
                                          .parts = e->etag_parts,
                                          .text_len = e->etag_len,
                                          .text = snapshot_name(s, i) + e->name_len}};
    memcpy(ret->etag.md5, e->md5, sizeof(e->md5));
}

void snapshot_update(struct snapshot *s, uint32_t i, const struct node_version *v)
{
    struct snap_entry *e = &s->entries[i];

    if (e->flags & SNAP_DIR || e->etag_kind == ETAG_TEXT || v->etag.kind == ETAG_TEXT)
        return; // its text may not fit: the entry stays doubtful
    e->size = v->size;
    e->mtime_s = v->mtime_s;
    e->etag_kind = v->etag.kind;
    e->etag_parts = v->etag.parts;
    memcpy(e->md5, v->etag.md5, sizeof(e->md5));
    e->flags = v->archived ? SNAP_ARCHIVED : 0;
}

// Whether the listing has come past a key that may still follow.
static bool passed(const struct snapshot *s, const struct key *k)
{
    if (s->complete)
        return true;
    return !s->disordered && s->page > 0 && compare_at(s, s->page - 1, k) > 0;
}

bool snapshot_settled(const struct snapshot *s, uint32_t i)
{
    struct key dir = {snapshot_name(s, i), s->entries[i].name_len, true};

    if (s->complete)
        return true;
    if (s->disordered)
        return false;
    return s->entries[i].flags & SNAP_DIR ? i < s->page : passed(s, &dir);
}

enum snap_answer snapshot_lookup(const struct snapshot *s, const char *name, size_t len,
                                 uint32_t *ret_i)
{
    struct key file = {name, len, false}, dir = {name, len, true};
    uint32_t n = s->complete ? s->n : s->page, i;

    if (s->disordered)
        return SNAP_UNKNOWN;
    i = lower_bound(s, n, &dir);
    if (i < n && compare_at(s, i, &dir) == 0) {
        *ret_i = i;
        return SNAP_THERE;
    }
    if (!passed(s, &dir))
        return SNAP_UNKNOWN;
    i = lower_bound(s, n, &file);
    if (i < n && compare_at(s, i, &file) == 0) {
        *ret_i = i;
        return SNAP_THERE;
    }
    return SNAP_ABSENT;
}

uint32_t snapshot_behind(const struct snapshot *s, const char *key, size_t len)
{
    bool dir = len > 0 && key[len - 1] == '/';
    struct key k = {key, len - dir, dir};
    uint32_t n = s->complete ? s->n : s->page, i = lower_bound(s, n, &k);

    return i < n && compare_at(s, i, &k) == 0 ? i + 1 : i;
}

// --- cookies ---

static uint32_t cookie_hash(const struct snapshot *s, uint32_t i)
{
    return (uint32_t)fs_hash(snapshot_name(s, i), s->entries[i].name_len,
                             s->entries[i].flags & SNAP_DIR);
}

uint64_t snapshot_cookie(const struct snapshot *s, uint32_t i, uint64_t base)
{
    // a host's offsets are signed: 31 bits for the number
    uint64_t number = (base + i + COOKIE_FIRST) & INT32_MAX;

    return number << 32 | cookie_hash(s, i);
}

bool snapshot_seek(const struct snapshot *s, uint64_t cookie, uint64_t base, uint32_t *ret_next)
{
    uint64_t number = cookie_number(cookie);
    uint32_t hash = (uint32_t)cookie, n = s->complete ? s->n : s->page, at;

    if (number < COOKIE_FIRST + base)
        return false;
    at = (uint32_t)MIN(number - COOKIE_FIRST - base, (uint64_t)n);
    if (at < n && cookie_hash(s, at) == hash) {
        *ret_next = at + 1;
        return true;
    }
    // the directory has changed: the same name, as near as it is to where it was
    for (uint32_t d = 1; d <= n; d++) {
        if (at >= d && at - d < n && cookie_hash(s, at - d) == hash) {
            *ret_next = at - d + 1;
            return true;
        }
        if ((uint64_t)at + d < n && cookie_hash(s, at + d) == hash) {
            *ret_next = at + d + 1;
            return true;
        }
    }
    return false;
}
