// SPDX-License-Identifier: Apache-2.0
#include "prefetch/window.h"

// Where latency holds the reader up, twice the window is nearly twice the rate; noise is less.
#define PAYS 1.25
// What half the window may cost before it is taken back.
#define COSTS 0.9
// So many windows are read between trials, once the first growth has ended.
#define PATIENCE 64

void window_init(struct window *w)
{
    *w = (struct window){.bytes = WINDOW_MIN, .next_larger = true};
}

static void try_next(struct window *w, double rate, uint64_t max)
{
    bool can_grow = w->bytes<max, can_shrink = w->bytes> WINDOW_EASY;

    if (w->run < w->next_trial || (!can_grow && !can_shrink))
        return;
    if (can_grow && (w->next_larger || !can_shrink)) {
        w->trial = WINDOW_LARGER;
        w->bytes = MIN(2 * w->bytes, max);
    } else {
        w->trial = WINDOW_SMALLER;
        w->bytes = MAX(w->bytes / 2, WINDOW_EASY);
    }
    w->rate_before = rate;
}

static void judge(struct window *w, double rate, uint64_t max)
{
    enum window_trial trial = w->trial;

    w->trial = WINDOW_STEADY;
    if (trial == WINDOW_LARGER && rate >= PAYS * w->rate_before) {
        w->next_larger = true; // and on at once
    } else if (trial == WINDOW_LARGER) {
        w->bytes = MAX(w->bytes / 2, WINDOW_EASY);
        w->next_larger = false;
        w->next_trial = w->run + PATIENCE * w->bytes;
        return;
    } else if (trial == WINDOW_SMALLER) {
        if (rate < COSTS * w->rate_before)
            w->bytes = MIN(2 * w->bytes, max);
        w->next_larger = true;
        w->next_trial = w->run + PATIENCE * w->bytes;
        return;
    }
    try_next(w, rate, max);
}

uint64_t window_read(struct window *w, uint64_t len, uint64_t now_ns, uint64_t max)
{
    uint64_t easy = MIN(WINDOW_EASY, max);

    w->run += len;
    w->bytes = MIN(w->bytes, MAX(max, WINDOW_MIN));
    if (w->bytes < easy) {
        while (w->bytes < easy && w->bytes <= 2 * w->run)
            w->bytes = MIN(2 * w->bytes, easy);
        w->stretch_bytes = 0;
        w->stretch_start_ns = now_ns;
        return w->bytes;
    }
    w->stretch_bytes += len;
    // long enough that most of it was asked for with this window
    if (w->stretch_bytes >= 2 * w->bytes && now_ns > w->stretch_start_ns) {
        judge(w, (double)w->stretch_bytes / (double)(now_ns - w->stretch_start_ns), max);
        w->stretch_bytes = 0;
        w->stretch_start_ns = now_ns;
    }
    return w->bytes;
}
