// SPDX-License-Identifier: Apache-2.0
// The stall report: how long readers waited, on which objects and why, epoch by epoch; see
// docs/design/stalls.md. Bounded memory; on the namespace loop only; time is an input.
//
//   stalls.c          epochs, and whose fault a wait is
//   stall_spans.c     the time in which at least one reader waited
//   stall_objects.c   the objects that were waited for longest
//   stalls_json.c     what people and programs get to see: .os2g/stalls, `os2g status`
//   stalls_file.c     that file
#pragma once

#include "base/buf.h"
#include "cache/waited.h"
#include "fs/stall_objects.h"
#include "fs/stall_spans.h"
#include "prefetch/plan.h"

// The program reads, or its kernel ahead of it; or FETCHes, often long before it needs the bytes.
enum stall_way { STALL_READ, STALL_FETCH, STALL_WAYS };

struct stall_sums {
    uint64_t waits;
    uint64_t ns[CACHE_WAITS];        // by what was waited for
    uint64_t cause_ns[STALL_CAUSES]; // the same time, by what would have to be changed
};

// An epoch, or the time between two.
struct stall_interval {
    uint64_t epoch;              // 0: no plan was there
    uint64_t begun_ns, ended_ns; // ended_ns 0: it is under way
    unsigned plans;
    struct stall_sums sums[STALL_WAYS];
    // In which somebody waited: one way or the other, and either. While it is under way, what had
    // been counted before it; then, what it took.
    uint64_t waited_ns[STALL_WAYS + 1];
    struct stall_objects objects;
};

#define STALL_INTERVALS 16
#define STALL_OWNERS    64

// Who declares plans: a process of a host.
struct stall_owner {
    uint64_t id;
    unsigned live; // plans
    bool declared; // one or more in this epoch
};

struct stalls {
    uint64_t begun_ns;
    int64_t begun_s; // since 1970
    struct stall_sums totals[STALL_WAYS];
    struct stall_spans spans[STALL_WAYS + 1];

    struct stall_interval intervals[STALL_INTERVALS]; // a ring
    unsigned first, n;
    uint64_t epochs; // so far
    struct stall_owner owners[STALL_OWNERS];
    unsigned n_owners, live;
};

// What one opening of an object, or one fetch of it, has waited in an interval.
struct stall_tally {
    uint64_t begun_ns; // the interval
    uint64_t waited_to_ns;
    // Reads of one object at a time are no reason to count time more than once here.
    uint64_t waits, ns[STALL_CAUSES];
};

void stalls_init(struct stalls *s, uint64_t now_ns, int64_t now_s);
void stalls_fini(struct stalls *s);

// Whose fault w is, of an object for which the plans had done that much. ret_shares: w, of which
// parts that waited at the same time have a share each.
void stall_causes(const struct cache_waited *w, enum plan_lead lead,
                  struct cache_waited *ret_shares, uint64_t ret[STALL_CAUSES]);
// key: below the export. A w that never waited is nothing.
void stalls_wait(struct stalls *s, enum stall_way way, enum plan_lead lead,
                 const struct cache_waited *w, const char *key, size_t len, struct stall_tally *t);

// A plan was committed, and has been dropped, by this owner.
void stalls_plan_begun(struct stalls *s, uint64_t owner, uint64_t now_ns);
void stalls_plan_ended(struct stalls *s, uint64_t owner, uint64_t now_ns);

// i counts from the oldest, 0 .. s->n - 1.
const struct stall_interval *stalls_interval(const struct stalls *s, unsigned i);
uint64_t stall_seconds_ns(const struct stall_interval *i, uint64_t now_ns); // how long it took
// In which somebody waited; way STALL_WAYS: either way.
uint64_t stalls_waited_ns(const struct stalls *s, const struct stall_interval *i, unsigned way,
                          uint64_t now_ns);

// --- stalls_json.c ---

// under_way: READs and FETCHes not answered at the moment.
void stalls_json(const struct stalls *s, unsigned under_way, uint64_t now_ns, struct buf *out);
