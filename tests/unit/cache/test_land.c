// SPDX-License-Identifier: Apache-2.0
// Landing: which bytes come directly and which through pages, and what becomes of them when it ends
// early. The host's memory is a buffer; its engine copies when the test says so.
#include "world.h"

#include <stdlib.h>
#include <string.h>

#define SIZE (32 * MIB)

struct memory {
    struct cache_dest dest;
    struct iovec iov;
    bool engine;
    int error;              // of every put; 0: it is copied
    struct cache_put *held; // the engine's
    sem_t put;
    uint8_t *bytes;
};

static struct cache_object *o;
static struct memory memory;

static int put(struct cache_dest *d, uint64_t at, const struct iovec *iov, int n,
               struct cache_put *p)
{
    struct memory *m = container_of(d, struct memory, dest);

    if (m->error)
        return m->error;
    for (int i = 0; i < n; i++) {
        memcpy(m->bytes + at, iov[i].iov_base, iov[i].iov_len);
        at += iov[i].iov_len;
    }
    if (!m->engine)
        return 0;
    p->loop = loop_self();
    m->held = p;
    sem_post(&m->put);
    return -EINPROGRESS;
}

static const struct cache_dest_ops ops = {.put = put};

static void put_done(void *arg)
{
    struct cache_put *p = arg;

    p->done(p, p->error);
}

static void engine_ends(int error)
{
    memory.held->error = error;
    loop_call(memory.held->loop, put_done, memory.held);
}

static void begin(bool direct)
{
    world_begin(32 * MIB, 1);
    o = world_object("a", SIZE);
    memory = (struct memory){.bytes = xcalloc(1, CACHE_EXTENT)};
    memory.iov = (struct iovec){memory.bytes, CACHE_EXTENT};
    memory.dest = (struct cache_dest){
        .ops = &ops, .len = CACHE_EXTENT, .direct = direct, .iov = &memory.iov, .n_iov = 1};
    sem_init(&memory.put, 0, 0);
}

static void finish(void)
{
    cache_object_unref(o);
    world_end();
    free(memory.bytes);
}

struct landing {
    struct cache_land l;
    sem_t done;
    int error;
};

static void on_landed(struct cache_land *l, int error)
{
    struct landing *x = container_of(l, struct landing, l);

    x->error = error;
    sem_post(&x->done);
}

static void landing_start(struct landing *x, uint64_t offset, uint32_t len)
{
    x->l = (struct cache_land){
        .object = o, .offset = offset, .len = len, .dest = &memory.dest, .done = on_landed};
    x->error = 1;
    sem_init(&x->done, 0, 0);
    cache_land_start(world, &x->l);
}

static bool landing_is_done(struct landing *x)
{
    world_settle();
    if (sem_trywait(&x->done) < 0)
        return false;
    sem_post(&x->done);
    return true;
}

static int landing_wait(struct landing *x)
{
    while (sem_wait(&x->done) < 0 && errno == EINTR)
        ;
    return x->error;
}

static bool landed_right(uint64_t offset, uint64_t len)
{
    for (uint64_t i = 0; i < len; i++)
        if (memory.bytes[i] != fake_byte(o->key, offset + i))
            return false;
    return true;
}

static void an_absent_range_is_one_get_of_the_extents_own_length(void **state)
{
    struct landing x;

    begin(true);
    landing_start(&x, 8 * MIB, 8 * MIB);
    assert_int_equal(fake_offset(0), 8 * MIB);
    assert_int_equal(fake_len(0), 8 * MIB);
    assert_true(fake_is_demand(0));
    fake_succeed(0, SIZE);
    assert_int_equal(landing_wait(&x), 0);
    assert_true(landed_right(8 * MIB, 8 * MIB));
    assert_int_equal(world_stats().extents, 0);
    finish();
}

static void what_others_want_is_fetched_for_all(void **state)
{
    struct landing x;

    fake_set_connections(1);
    begin(true);
    // the first waits for its answer, the second in line
    cache_prefetch(world, o, 0, 1 * MIB);
    cache_prefetch(world, o, 8 * MIB, 8 * MIB);
    fake_wait(1);
    landing_start(&x, 8 * MIB, 8 * MIB);
    assert_int_equal(fake_offset(1), 8 * MIB);
    assert_int_equal(fake_len(1), 8 * MIB);
    fake_succeed(1, SIZE);
    assert_int_equal(landing_wait(&x), 0);
    assert_true(landed_right(8 * MIB, 8 * MIB));
    assert_int_equal(world_stats().direct_bytes, 0);
    fake_succeed(0, SIZE);
    world_settle();
    assert_int_equal(fake_count(), 2);
    finish();
}

static void scattered_pages_do_not_make_many_requests(void **state)
{
    struct landing x;

    begin(true);
    fake_set_automatic(1 * MIB);
    for (uint64_t at = 0; at < 8 * MIB; at += 128 * KIB)
        assert_int_equal(read_now(o, at, 4 * KIB, NULL), 0);
    fake_set_automatic(0);
    landing_start(&x, 0, 8 * MIB);
    assert_int_equal(fake_len(64), 8 * MIB);
    fake_succeed(64, SIZE);
    assert_int_equal(landing_wait(&x), 0);
    assert_true(landed_right(0, 8 * MIB));
    finish();
}

static void another_size_is_another_version(void **state)
{
    struct landing x;

    begin(true);
    landing_start(&x, 0, 1 * MIB);
    fake_head(0, SIZE + 1);
    assert_int_equal(landing_wait(&x), -ESTALE);
    assert_true(atomic_load(&o->stale));
    finish();
}

static void errors_are_those_of_a_read(void **state)
{
    static const struct {
        int get, land;
    } errors[] = {{-ENOENT, -ENOENT}, {-EACCES, -EACCES}, {-ESTALE, -ESTALE},
                  {-EFAULT, -EFAULT}, {-EIO, -EIO},       {-ETIMEDOUT, -EIO}};

    begin(true);
    for (unsigned i = 0; i < ARRAY_LEN(errors); i++) {
        struct landing x;

        landing_start(&x, 0, 1 * MIB);
        fake_finish(i, errors[i].get);
        assert_int_equal(landing_wait(&x), errors[i].land);
    }
    finish();
}

static void an_engine_keeps_its_pages_until_it_is_done(void **state)
{
    struct landing x;

    begin(false);
    memory.engine = true;
    fake_set_automatic(1 * MIB);
    landing_start(&x, 0, 64 * KIB);
    sem_wait(&memory.put);
    assert_int_equal(world_stats().pinned_bytes, 64 * KIB);
    cache_land_cancel(&x.l);
    assert_false(landing_is_done(&x));
    assert_int_equal(world_stats().pinned_bytes, 64 * KIB);
    engine_ends(-ECANCELED);
    assert_int_equal(landing_wait(&x), -ECANCELED);
    assert_int_equal(world_stats().pinned_bytes, 0);
    finish();
}

static void a_put_that_fails_ends_the_landing(void **state)
{
    struct landing x;

    begin(false);
    memory.error = -EFAULT;
    landing_start(&x, 0, 4 * MIB);
    fake_head(0, SIZE);
    fake_land(0, 1 * MIB);
    assert_int_equal(landing_wait(&x), -EFAULT);
    world_settle();
    assert_true(fake_cancelled(0));
    world_settle();
    assert_int_equal(world_stats().pinned_bytes, 0);
    finish();
}

static void a_range_for_an_engine_is_asked_for_at_once(void **state)
{
    struct landing x;

    begin(false);
    landing_start(&x, 0, 8 * MIB);
    world_settle();
    assert_int_equal(fake_count(), 1);
    assert_int_equal(fake_len(0), 8 * MIB);
    fake_succeed(0, SIZE);
    assert_int_equal(landing_wait(&x), 0);
    assert_true(landed_right(0, 8 * MIB));
    finish();
}

static void a_cancelled_range_for_an_engine_is_not_wanted_any_more(void **state)
{
    struct landing x;

    begin(false);
    landing_start(&x, 0, 8 * MIB);
    fake_wait(1);
    cache_land_cancel(&x.l);
    assert_int_equal(landing_wait(&x), -ECANCELED);
    world_settle();
    assert_true(fake_cancelled(0));
    assert_int_equal(fake_count(), 1);
    finish();
}

static void what_is_cut_off_does_not_begin(void **state)
{
    struct landing x;

    begin(true);
    atomic_store(&memory.dest.cut, true);
    landing_start(&x, 0, 8 * MIB);
    assert_int_equal(landing_wait(&x), -ECANCELED);
    assert_int_equal(fake_count(), 0);
    finish();
}

// --- fetches ---

struct fetch {
    struct cache_fetch f;
    sem_t done;
    int error;
};

static void on_fetched(struct cache_fetch *f, int error)
{
    struct fetch *x = container_of(f, struct fetch, f);

    x->error = error;
    sem_post(&x->done);
}

static void fetch_start(struct fetch *x)
{
    x->f = (struct cache_fetch){
        .key = o->key, .key_len = o->key_len, .dest = &memory.dest, .done = on_fetched};
    sem_init(&x->done, 0, 0);
    cache_fetch_start(world, &x->f);
}

static int fetch_wait(struct fetch *x)
{
    while (sem_wait(&x->done) < 0 && errno == EINTR)
        ;
    return x->error;
}

static void a_small_room_asks_for_all_of_the_object(void **state)
{
    struct fetch x;

    begin(true);
    fetch_start(&x);
    assert_int_equal(fake_len(0), UINT64_MAX);
    fake_head(0, 1000);
    fake_land(0, 1000);
    fake_finish(0, 0);
    assert_int_equal(fetch_wait(&x), 0);
    assert_int_equal(x.f.size, 1000);
    assert_string_equal(x.f.etag, "\"v1\"");
    assert_true(landed_right(0, 1000));
    finish();
}

static void a_large_room_asks_for_an_extent(void **state)
{
    struct fetch x;

    begin(true);
    memory.dest.len = CACHE_EXTENT + 1;
    fetch_start(&x);
    assert_int_equal(fake_len(0), CACHE_EXTENT);
    fake_finish(0, -ENOENT);
    assert_int_equal(fetch_wait(&x), -ENOENT);
    finish();
}

static void an_object_that_is_too_large_is_told_by_its_head(void **state)
{
    struct fetch x;

    begin(true);
    memory.dest.len = 100;
    fetch_start(&x);
    fake_head(0, 101);
    // a small rest is taken off the connection, and may as well fail
    fake_land(0, 50);
    fake_finish(0, -EIO);
    assert_int_equal(fetch_wait(&x), -EFBIG);
    assert_int_equal(x.f.size, 101);
    assert_int_equal(memory.bytes[0], 0);
    finish();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_absent_range_is_one_get_of_the_extents_own_length),
        cmocka_unit_test(what_others_want_is_fetched_for_all),
        cmocka_unit_test(scattered_pages_do_not_make_many_requests),
        cmocka_unit_test(another_size_is_another_version),
        cmocka_unit_test(errors_are_those_of_a_read),
        cmocka_unit_test(an_engine_keeps_its_pages_until_it_is_done),
        cmocka_unit_test(a_put_that_fails_ends_the_landing),
        cmocka_unit_test(a_range_for_an_engine_is_asked_for_at_once),
        cmocka_unit_test(a_cancelled_range_for_an_engine_is_not_wanted_any_more),
        cmocka_unit_test(what_is_cut_off_does_not_begin),
        cmocka_unit_test(a_small_room_asks_for_all_of_the_object),
        cmocka_unit_test(a_large_room_asks_for_an_extent),
        cmocka_unit_test(an_object_that_is_too_large_is_told_by_its_head),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
