// SPDX-License-Identifier: Apache-2.0
#include "cli/progress.h"

#include "base/clock.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define REDRAW_NS (100 * NS_PER_MS)
#define BAR_WIDTH 30

void progress_format_bytes(uint64_t bytes, char out[static 16])
{
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB"};
    double v = (double)bytes;
    size_t unit = 0;

    while (v >= 1024 && unit + 1 < ARRAY_LEN(units)) {
        v /= 1024;
        unit++;
    }
    snprintf(out, 16, unit ? "%.1f %s" : "%.0f %s", v, units[unit]);
}

void progress_init(struct progress *p, const char *what, uint64_t total_bytes, uint64_t total_items,
                   bool quiet)
{
    *p = (struct progress){
        .what = what,
        .total_bytes = total_bytes,
        .total_items = total_items,
        .start_ns = clock_monotonic_ns(),
        .terminal = !quiet && isatty(STDERR_FILENO),
    };
}

static void draw(struct progress *p, uint64_t now)
{
    double seconds = (double)(now - p->start_ns) / 1e9, part;
    char bar[BAR_WIDTH + 1], bytes[16], rate[16];
    size_t full;

    if (p->total_bytes)
        part = (double)p->bytes / (double)p->total_bytes;
    else
        part = p->total_items ? (double)p->items / (double)p->total_items : 1;
    full = (size_t)(MIN(part, 1.0) * BAR_WIDTH);
    memset(bar, ' ', BAR_WIDTH);
    memset(bar, '=', full);
    bar[BAR_WIDTH] = 0;
    progress_format_bytes(p->bytes, bytes);
    progress_format_bytes(seconds > 0 ? (uint64_t)((double)p->bytes / seconds) : 0, rate);
    p->drawn_ns = now;
    if (!p->total_bytes && !p->total_items) {
        fprintf(stderr, "\r%s %lu  %s  %s/s \033[K", p->what, p->items, bytes, rate);
        return;
    }
    fprintf(stderr, "\r%s [%s] %3.0f%%  %lu/%lu  %s  %s/s \033[K", p->what, bar,
            MIN(part, 1.0) * 100, p->items, p->total_items, bytes, rate);
}

void progress_update(struct progress *p, uint64_t bytes, uint64_t items)
{
    uint64_t now;

    p->bytes = bytes;
    p->items = items;
    if (!p->terminal)
        return;
    now = clock_monotonic_ns();
    if (now - p->drawn_ns >= REDRAW_NS)
        draw(p, now);
}

void progress_finish(struct progress *p)
{
    if (p->terminal && p->drawn_ns)
        fputs("\r\033[K", stderr);
}
