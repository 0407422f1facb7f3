// SPDX-License-Identifier: Apache-2.0
#include "prefetch/stream.h"

#include "prefetch/pressure.h"

// What a track remembers of its density: of about the last this many bytes.
#define DENSITY_SPAN (32 * MIB)
// A stream that has read less than an eighth of at least this much is one no longer: more than
// one seek of STREAM_SEEK_MAX, so that a single one never ends it.
#define SPARSE_SPAN (20 * MIB)
// Reads out of order may still fill holes this far back.
#define LATE_SPAN (32 * MIB)
// From this window on, GETs are whole extents.
#define ALIGNED_WINDOW (16 * MIB)
#define ALIGNED_STEP   (8 * MIB)

#define PATIENCE_MIN (512 * KIB)

void stream_init(struct stream *s, uint64_t size, uint64_t window_max)
{
    *s = (struct stream){
        .size = size,
        .window_max = MAX(window_max ? window_max : STREAM_WINDOW_MAX, STREAM_WINDOW_MIN),
    };
}

// How far from a track a read of len bytes may lie and still belong to it.
static uint64_t track_reach(const struct stream_track *t, uint64_t len)
{
    if (t->streaming)
        return STREAM_SEEK_MAX;
    // a few threads reading the blocks of a file in turn; small against a random read's distance
    return MIN(MAX(8 * len, 64 * KIB), 8 * MIB);
}

static struct stream_track *track_find(struct stream *s, uint64_t offset, uint64_t len)
{
    struct stream_track *best = NULL;
    uint64_t best_distance = UINT64_MAX;

    for (int i = 0; i < STREAM_TRACKS; i++) {
        struct stream_track *t = &s->tracks[i];
        uint64_t distance = offset > t->end ? offset - t->end : t->end - offset;
        uint64_t reach = track_reach(t, len);

        if (!t->used || offset > t->end + reach)
            continue;
        // a candidate is short: measure from its beginning; a stream's reads may be late
        if (offset + len + reach < (t->streaming ? t->end : t->start))
            continue;
        if (distance < best_distance) {
            best = t;
            best_distance = distance;
        }
    }
    return best;
}

static struct stream_track *track_latest(struct stream *s)
{
    struct stream_track *latest = &s->tracks[0];

    for (int i = 1; i < STREAM_TRACKS; i++)
        if (s->tracks[i].used > latest->used)
            latest = &s->tracks[i];
    return latest;
}

static struct prefetch_range track_unread(const struct stream_track *t)
{
    bool some = t->streaming && (t->ahead > t->end || t->covered < t->span);

    return (struct prefetch_range){t->kept, some ? t->ahead - t->kept : 0};
}

// The handle has jumped. The longer the runs between jumps were, the more a run must show before
// it is read ahead of.
static void learn_from_jump(struct stream *s)
{
    const struct stream_track *t = track_latest(s);
    bool in_vain = !t->streaming || t->ahead - t->end > t->run;

    if (t->used && in_vain)
        s->patience = MAX(s->patience, MIN(MAX(2 * t->run, PATIENCE_MIN), STREAM_WINDOW_MAX));
}

static struct stream_track *track_new(struct stream *s, uint64_t offset, uint64_t len,
                                      struct stream_action *ret)
{
    struct stream_track *t = &s->tracks[0];

    learn_from_jump(s);
    for (int i = 1; i < STREAM_TRACKS; i++)
        if (s->tracks[i].used < t->used)
            t = &s->tracks[i];
    if (t->used)
        ret->unwant = track_unread(t);
    *t = (struct stream_track){
        .start = offset,
        .end = offset + len,
        .ahead = offset,
        .kept = offset,
        .run = len,
        .covered = len,
        .span = len,
        .reads = 1,
        // most programs that begin at the beginning go on
        .streaming = s->reads == 1 && offset == 0,
    };
    window_init(&t->window);
    return t;
}

static void track_advance(struct stream_track *t, uint64_t offset, uint64_t len)
{
    if (offset + len > t->end) {
        t->span += offset + len - t->end;
        t->end = offset + len;
    }
    if (offset < t->start) {
        t->span += t->start - offset;
        t->start = offset;
    }
    t->covered = MIN(t->covered + len, t->span);
    t->run += len;
    t->reads++;
    if (t->span > DENSITY_SPAN) {
        t->covered /= 2;
        t->span /= 2;
    }
}

// Threads that began at several places of one stream have met.
static void track_absorb(struct stream *s, struct stream_track *t)
{
    for (int i = 0; i < STREAM_TRACKS; i++) {
        struct stream_track *o = &s->tracks[i];

        if (o == t || !o->used || o->streaming || o->start > t->end || o->end < t->start)
            continue;
        t->start = MIN(t->start, o->start);
        t->end = MAX(t->end, o->end);
        t->covered += o->covered;
        t->span = MAX(t->span + o->span, t->covered);
        t->run += o->run;
        o->used = 0;
    }
}

static void track_demote(struct stream *s, struct stream_track *t, struct stream_action *ret)
{
    ret->unwant = track_unread(t);
    s->patience = MAX(s->patience, MIN(MAX(2 * t->run, PATIENCE_MIN), STREAM_WINDOW_MAX));
    *t = (struct stream_track){.start = t->end, .end = t->end, .ahead = t->end, .used = t->used};
}

// Streams become candidates and candidates streams.
static void track_judge(struct stream *s, struct stream_track *t, uint64_t offset, uint64_t len,
                        struct stream_action *ret)
{
    if (t->streaming) {
        if (t->span >= SPARSE_SPAN && t->covered < t->span / 8)
            track_demote(s, t, ret);
        else if (t->run >= 4 * s->patience)
            s->patience = 0;
        return;
    }
    // a read behind the furthest does not show that the reader goes forward
    if (t->reads >= 2 && offset + len == t->end && t->run >= s->patience &&
        t->covered * 2 >= t->span) {
        t->streaming = true;
        window_init(&t->window);
        t->window.run = t->run;
        t->ahead = offset;
        t->kept = offset;
    }
}

static void add_fetch(struct stream_track *t, uint64_t to, struct stream_action *ret)
{
    ret->fetch[ret->n_fetch++] = (struct prefetch_range){t->ahead, to - t->ahead};
    t->ahead = to;
}

static void run_ahead(struct stream *s, struct stream_track *t, uint64_t offset, uint64_t len,
                      uint64_t now_ns, unsigned pressure, struct stream_action *ret)
{
    uint64_t w = window_read(&t->window, len, now_ns, s->window_max), target, step;

    w = MAX(pressure_shrink(w, pressure), STREAM_WINDOW_MIN);
    target = MIN(t->end + w, s->size);
    if (pressure >= 100) {
        t->ahead = MAX(t->ahead, t->end);
        return;
    }
    if (t->ahead <= offset) {
        // nothing of this read was asked for: one GET for it and a little more
        t->ahead = offset;
        if (len < STREAM_WINDOW_MIN)
            add_fetch(t, MIN(offset + STREAM_WINDOW_MIN, s->size), ret);
        else
            t->ahead = offset + len;
    }
    step = MIN(w / 2, ALIGNED_STEP);
    if (target < s->size)
        target = ALIGN_DOWN(target, w >= ALIGNED_WINDOW ? ALIGNED_STEP : STREAM_WINDOW_MIN);
    else
        step = 1;
    if (target >= t->ahead + step)
        add_fetch(t, target, ret);
    t->ahead = MAX(t->ahead, t->end);
}

static void give_up_late(struct stream_track *t, struct stream_action *ret)
{
    if (t->end - t->kept < 2 * LATE_SPAN)
        return;
    if (t->covered < t->span)
        ret->unwant = (struct prefetch_range){t->kept, t->end - LATE_SPAN - t->kept};
    t->kept = t->end - LATE_SPAN;
}

void stream_read(struct stream *s, uint64_t offset, uint64_t len, uint64_t now_ns,
                 unsigned pressure, struct stream_action *ret)
{
    struct stream_track *t;

    *ret = (struct stream_action){0};
    s->reads++;
    t = track_find(s, offset, len);
    if (t) {
        track_advance(t, offset, len);
        track_absorb(s, t);
        track_judge(s, t, offset, len, ret);
    } else {
        t = track_new(s, offset, len, ret);
    }
    t->used = s->reads;
    if (t->streaming) {
        run_ahead(s, t, offset, len, now_ns, pressure, ret);
        give_up_late(t, ret);
    }
}

void stream_close(struct stream *s, struct prefetch_range *ret)
{
    *ret = (struct prefetch_range){0};
    for (int i = 0; i < STREAM_TRACKS && !ret->len; i++) {
        struct stream_track *t = &s->tracks[i];

        if (!t->used)
            continue;
        *ret = track_unread(t);
        t->used = 0;
    }
}
