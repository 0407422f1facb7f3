// SPDX-License-Identifier: Apache-2.0
// Landing while the store misbehaves, memory is short, or the host takes its memory away.
#include "land_fixture.h"

#include "base/rand.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

// Stops within the first GET, for longer than any of these tests waits, and early enough for the
// cache not to think that it might as well go on.
#define STALL "GET * nth=1 stall 20% 5s\n"

// --- versions ---

static void another_version_is_stale(void **state)
{
    struct host_memory m;
    struct object o;

    land_begin(32 * MIB, 2, "");
    host_memory_new(&m, 1 * MIB, 3, true);
    object_open(&o, "big", BIG);
    s3d_process_set_faults(&fixture.server, "GET * always etag wrong\n");
    assert_int_equal(land_now(&o, 0, 1 * MIB, &m, 0), -ESTALE);
    assert_true(atomic_load(&o.cache->stale));
    assert_true(host_memory_untouched(&m, 0, 1 * MIB));
    object_close(&o);
    host_memory_free(&m);
    land_end();
}

static void an_object_that_is_gone_is_not_there(void **state)
{
    struct host_memory m;
    struct object o;

    land_begin(32 * MIB, 2, "");
    host_memory_new(&m, 1 * MIB, 1, true);
    object_open(&o, "nothing", 1 * MIB);
    assert_int_equal(land_now(&o, 0, 1 * MIB, &m, 0), -ENOENT);
    object_close(&o);
    host_memory_free(&m);
    land_end();
}

static void a_store_that_only_fails_is_an_error_in_the_end(void **state)
{
    struct host_memory m;
    struct object o;

    s3_fixture_reconnect(&fixture,
                         (struct s3_settings){.bucket = LAND_BUCKET, .retry_timeout_ns = NS_PER_S});
    land_begin(32 * MIB, 1, "GET * always status 500\n");
    host_memory_new(&m, 1 * MIB, 1, true);
    object_open(&o, "big", BIG);
    assert_int_equal(land_now(&o, 0, 1 * MIB, &m, 0), -EIO);
    assert_true(land_gets() > 1);
    object_close(&o);
    host_memory_free(&m);
    land_end();
    s3_fixture_reconnect(
        &fixture, (struct s3_settings){.bucket = LAND_BUCKET, .retry_timeout_ns = 20 * NS_PER_S});
}

// --- the host takes its memory away ---

// Nothing is written any more: what is filled with the pattern now stays so.
static void expect_quiet(struct host_memory *m)
{
    host_memory_wipe(m);
    usleep(200000);
    assert_true(host_memory_untouched(m, 0, m->dest.len));
}

static void after_a_fence_nothing_lands_in_what_was_cut_off(void **state)
{
    struct host_memory m;
    struct landing x;
    struct object o;

    // it goes on just after the fence
    land_begin(32 * MIB, 2, "GET * nth=1 stall 50% 150ms\n");
    host_memory_new(&m, 8 * MIB, 5, true);
    object_open(&o, "big", BIG);
    landing_start(&x, &o, 0, 8 * MIB, &m, 0);
    assert_false(landing_is_done(&x, 50));
    atomic_store(&m.dest.cut, true);
    fence_now();
    expect_quiet(&m);
    assert_int_equal(landing_wait(&x), -ECANCELED);
    object_close(&o);
    host_memory_free(&m);
    land_end();
}

static void a_fence_cuts_a_flood_off(void **state)
{
    struct landing x[5];
    struct host_memory m;
    struct object o;

    land_begin(64 * MIB, 2, "GET * always rate 8M\n");
    host_memory_new(&m, BIG, 5, true);
    object_open(&o, "big", BIG);
    for (unsigned i = 0; i < ARRAY_LEN(x); i++)
        landing_start(&x[i], &o, i * 8 * MIB, 8 * MIB, &m, i * 8 * MIB);
    for (int i = 0; i < 500 && land_stats().direct_bytes < 256 * KIB; i++)
        usleep(1000);
    assert_true(land_stats().direct_bytes > 0);
    atomic_store(&m.dest.cut, true);
    fence_now();
    expect_quiet(&m);
    for (unsigned i = 0; i < ARRAY_LEN(x); i++)
        assert_int_equal(landing_wait(&x[i]), -ECANCELED);
    object_close(&o);
    host_memory_free(&m);
    land_end();
}

static void what_was_cut_off_before_is_not_begun(void **state)
{
    struct host_memory m;
    struct object o;

    land_begin(32 * MIB, 2, "");
    host_memory_new(&m, 1 * MIB, 1, true);
    object_open(&o, "big", BIG);
    atomic_store(&m.dest.cut, true);
    assert_int_equal(land_now(&o, 0, 1 * MIB, &m, 0), -ECANCELED);
    assert_int_equal(land_gets(), 0);
    assert_true(host_memory_untouched(&m, 0, 1 * MIB));
    object_close(&o);
    host_memory_free(&m);
    land_end();
}

static void a_fence_ends_a_landing_that_waits_for_the_store(void **state)
{
    struct host_memory m;
    struct landing x;
    struct object o;

    land_begin(32 * MIB, 2, STALL);
    host_memory_new(&m, 8 * MIB, 1, true);
    object_open(&o, "big", BIG);
    landing_start(&x, &o, 0, 8 * MIB, &m, 0);
    assert_false(landing_is_done(&x, 50));
    atomic_store(&m.dest.cut, true);
    fence_now();
    assert_true(landing_is_done(&x, 1000));
    assert_int_equal(landing_wait(&x), -ECANCELED);
    object_close(&o);
    host_memory_free(&m);
    land_end();
}

static void a_cancelled_landing_writes_nothing_more(void **state)
{
    for (int direct = 0; direct < 2; direct++) {
        struct host_memory m;
        struct landing x;
        struct object o;

        land_begin(32 * MIB, 2, STALL);
        host_memory_new(&m, 8 * MIB, 5, direct);
        object_open(&o, "big", BIG);
        landing_start(&x, &o, 0, 8 * MIB, &m, 0);
        assert_false(landing_is_done(&x, 50));
        cache_land_cancel(&x.land);
        assert_true(landing_is_done(&x, 1000));
        assert_int_equal(landing_wait(&x), -ECANCELED);
        expect_quiet(&m);
        // and holds nothing
        assert_int_equal(land_stats().pinned_bytes, 0);
        assert_int_equal(land_stats().waiting, 0);
        object_close(&o);
        host_memory_free(&m);
        land_end();
    }
}

static void a_cancel_that_comes_too_late_does_nothing(void **state)
{
    struct host_memory m;
    struct landing x;
    struct object o;

    land_begin(32 * MIB, 2, "");
    host_memory_new(&m, 1 * MIB, 1, true);
    object_open(&o, "big", BIG);
    landing_start(&x, &o, 0, 1 * MIB, &m, 0);
    assert_true(landing_is_done(&x, 5000));
    cache_land_cancel(&x.land);
    assert_int_equal(landing_wait(&x), 0);
    assert_int_equal(land_now(&o, 1 * MIB, 1 * MIB, &m, 0), 0);
    object_close(&o);
    host_memory_free(&m);
    land_end();
}

// Its first piece stays, the others go.
static void shrink(struct host_memory *m)
{
    assert_int_equal(ftruncate(m->fd, (off_t)(64 * KIB + 2 * 4096)), 0);
}

// As if it were unmapped, but its addresses go to nobody else.
static void unmap(struct host_memory *m)
{
    uint8_t *second = m->iov[1].iov_base;
    size_t rest = m->size - (uint64_t)(second - m->base);
    void *p = mmap(second, rest, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);

    assert_ptr_equal(p, second);
}

// Of two landings one loses its memory; the other one does not notice.
static void lose_memory(void (*lose)(struct host_memory *m))
{
    struct host_memory bad, good;
    struct landing x, y;
    struct object o, p;

    land_begin(32 * MIB, 1, "");
    host_memory_new(&bad, 640 * KIB, 10, true);
    host_memory_new(&good, 8 * MIB, 3, true);
    object_open(&o, "big", BIG);
    object_open(&p, "mid", 12 * MIB);
    lose(&bad);
    landing_start(&y, &p, 0, 8 * MIB, &good, 0);
    landing_start(&x, &o, 0, 640 * KIB, &bad, 0);
    assert_int_equal(landing_wait(&x), -EFAULT);
    assert_int_equal(landing_wait(&y), 0);
    assert_true(landed_right(&p, 0, 8 * MIB, &good, 0));
    // nobody was asked again for what had nowhere to go
    assert_int_equal(land_gets(), 2);
    assert_false(atomic_load(&o.cache->stale));
    assert_int_equal(read_now(&o, 0, 1 * MIB), 0);
    object_close(&o);
    object_close(&p);
    host_memory_free(&bad);
    host_memory_free(&good);
    land_end();
}

static void memory_that_shrinks_ends_its_own_landing(void **state)
{
    lose_memory(shrink);
}

static void memory_that_is_unmapped_ends_its_own_landing(void **state)
{
    lose_memory(unmap);
}

// --- everything at once ---

struct host {
    pthread_t thread;
    unsigned number;
    bool direct, engine;
    int error;
};

static int land_at_random(struct object *o, struct host_memory *m, struct rand *r)
{
    uint64_t at = rand_below(r, 12 * MIB);
    uint64_t most = MIN(CACHE_EXTENT - at % CACHE_EXTENT, 12 * MIB - at);
    uint32_t len = (uint32_t)(1 + rand_below(r, rand_below(r, 4) ? MIN(most, 300 * KIB) : most));
    uint64_t to = rand_below(r, m->dest.len - len + 1);
    int rc;

    if (rand_below(r, 4) == 0)
        return read_now(o, at, (uint32_t)MIN(len, CACHE_READ_MAX));
    host_memory_wipe(m);
    rc = land_now(o, at, len, m, to);
    return rc ? rc : landed_right(o, at, len, m, to) ? 0 : -EBADMSG;
}

static void *run_host(void *arg)
{
    struct host *me = arg;
    struct host_memory m;
    struct object o;
    struct rand r;
    char key[16];

    rand_seed(&r, me->number);
    host_memory_new(&m, 9 * MIB, 1 + (int)me->number % 7, me->direct);
    m.engine = me->engine;
    // four hosts share an object
    snprintf(key, sizeof(key), "m%02u", me->number / 4);
    object_open(&o, key, 12 * MIB);
    for (int i = 0; i < 12 && me->error == 0; i++)
        me->error = land_at_random(&o, &m, &r);
    object_close(&o);
    host_memory_free(&m);
    return NULL;
}

static void run_hosts(unsigned n)
{
    struct host hosts[32];

    for (unsigned i = 0; i < n; i++) {
        hosts[i] = (struct host){.number = i, .direct = i % 3 != 0, .engine = i % 2};
        assert_int_equal(pthread_create(&hosts[i].thread, NULL, run_host, &hosts[i]), 0);
    }
    for (unsigned i = 0; i < n; i++) {
        pthread_join(hosts[i].thread, NULL);
        assert_int_equal(hosts[i].error, 0);
    }
    assert_int_equal(land_stats().pinned_bytes, 0);
    assert_int_equal(land_stats().waiting, 0);
}

static void faults_never_reach_a_host(void **state)
{
    land_begin(64 * MIB, 2, S3D_FAULTS);
    run_hosts(12);
    land_end();
}

static void faults_and_too_little_memory_never_reach_a_host(void **state)
{
    land_begin(32 * MIB, 2, S3D_FAULTS);
    run_hosts(32);
    assert_true(land_stats().peak_bytes <= 32 * MIB);
    land_end();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(another_version_is_stale),
        cmocka_unit_test(an_object_that_is_gone_is_not_there),
        cmocka_unit_test(a_store_that_only_fails_is_an_error_in_the_end),
        cmocka_unit_test(after_a_fence_nothing_lands_in_what_was_cut_off),
        cmocka_unit_test(a_fence_cuts_a_flood_off),
        cmocka_unit_test(what_was_cut_off_before_is_not_begun),
        cmocka_unit_test(a_fence_ends_a_landing_that_waits_for_the_store),
        cmocka_unit_test(a_cancelled_landing_writes_nothing_more),
        cmocka_unit_test(a_cancel_that_comes_too_late_does_nothing),
        cmocka_unit_test(memory_that_shrinks_ends_its_own_landing),
        cmocka_unit_test(memory_that_is_unmapped_ends_its_own_landing),
        cmocka_unit_test(faults_never_reach_a_host),
        cmocka_unit_test(faults_and_too_little_memory_never_reach_a_host),
    };

    return cmocka_run_group_tests(tests, land_fixture_start, land_fixture_stop);
}
