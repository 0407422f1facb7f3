// SPDX-License-Identifier: Apache-2.0
// The cache and the pre-reading of streams on a real client, against os2g-s3d: every byte is
// checked, also when the store misbehaves and memory is short.
#include "test.h"

#include "base/clock.h"
#include "base/rand.h"
#include "cache/cache.h"
#include "prefetch/stream.h"
#include "s3_fixture.h"

#include <pthread.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MANY      "cache"
#define MANY_KEYS MANY ": m%02d 12M x 64; s%03d 100K x 64; one 64M"

static struct s3_fixture fixture;
static struct cache *cache;

static int start(void **state)
{
    static const char *const args[] = {"--synthetic", MANY_KEYS, NULL};

    s3_fixture_start(&fixture,
                     (struct s3_settings){.bucket = MANY, .retry_timeout_ns = 20 * NS_PER_S}, args);
    return 0;
}

static int stop(void **state)
{
    s3_fixture_stop(&fixture);
    return 0;
}

static void begin(uint64_t memory, unsigned data_loops, const char *faults)
{
    struct cache_config c = {.memory = memory, .data_loops = data_loops, .bucket = fixture.bucket};
    char *error = NULL;

    assert_int_equal(cache_new(&cache, &c, &error), 0);
    s3d_process_set_faults(&fixture.server, faults);
    s3d_process_reset_counters(&fixture.server);
}

static void finish(void)
{
    cache_free(cache);
    s3d_process_set_faults(&fixture.server, "");
}

static struct cache_stats stats(void)
{
    struct cache_stats s;

    cache_stats_read(cache, &s);
    return s;
}

// What the store has sent, and what it was asked for.
static uint64_t bytes_in(void)
{
    uint64_t sum = 0;

    for (unsigned i = 0; i < cache_data_loops(cache); i++)
        sum += counter_read(&s3_client_stats(cache_s3_client(cache, i))->bytes_in);
    return sum;
}

static uint64_t gets(void)
{
    return s3d_process_counter(&fixture.server, "operations.GetObject");
}

// --- reading one object ---

struct file {
    struct cache_object *object;
    struct s3d_name name;
    struct stream stream;
};

static void file_open(struct file *f, const char *key, uint64_t size)
{
    char etag[40];

    s3d_name_hash(&f->name, MANY, key, 0);
    snprintf(etag, sizeof(etag), "\"%s\"", f->name.etag);
    f->object = cache_object_new(cache, key, strlen(key), etag, size);
    stream_init(&f->stream, size, 0);
}

static void file_close(struct file *f)
{
    struct prefetch_range r;

    for (stream_close(&f->stream, &r); r.len; stream_close(&f->stream, &r))
        cache_unwant(cache, f->object, r.offset, r.len);
    cache_object_unref(f->object);
}

struct reading {
    struct cache_read r;
    struct file *file;
    sem_t done;
    int error;
    bool wrong;
};

static void on_read(struct cache_read *r, int error)
{
    struct reading *x = container_of(r, struct reading, r);
    uint64_t at = r->offset;

    x->error = error;
    for (int i = 0; i < r->n_iov && !error; i++) {
        x->wrong |= s3d_synthetic_check(&fixture.table, x->file->name.start, at, r->iov[i].iov_base,
                                        r->iov[i].iov_len) >= 0;
        at += r->iov[i].iov_len;
    }
    if (!error) {
        x->wrong |= at != r->offset + r->len;
        cache_read_release(r);
    }
    sem_post(&x->done);
}

static void reading_start(struct reading *x, struct file *f, uint64_t offset, uint32_t len)
{
    x->r.object = f->object;
    x->r.offset = offset;
    x->r.len = len;
    x->r.done = on_read;
    x->file = f;
    x->wrong = false;
    sem_init(&x->done, 0, 0);
    cache_read_start(cache, &x->r);
}

// 0, an error of the read, or -EBADMSG when a byte was wrong.
static int reading_wait(struct reading *x)
{
    while (sem_wait(&x->done) < 0 && errno == EINTR)
        ;
    sem_destroy(&x->done);
    return x->error ? x->error : x->wrong ? -EBADMSG : 0;
}

static int read_one(struct file *f, uint64_t offset, uint32_t len)
{
    struct reading x;

    reading_start(&x, f, offset, len);
    return reading_wait(&x);
}

// As the kernel's read-ahead does: some reads under way at a time, in order.
static int read_stream(struct file *f, uint32_t len)
{
    struct reading x[4];
    uint64_t n = (f->object->size + len - 1) / len;
    int rc = 0;

    for (uint64_t i = 0; i < n + ARRAY_LEN(x) && rc == 0; i++) {
        struct stream_action a;
        uint64_t at = i * len;

        if (i >= ARRAY_LEN(x))
            rc = reading_wait(&x[i % ARRAY_LEN(x)]);
        if (i >= n)
            continue;
        stream_read(&f->stream, at, MIN(len, f->object->size - at), clock_monotonic_ns(),
                    cache_pressure(cache), &a);
        if (a.unwant.len)
            cache_unwant(cache, f->object, a.unwant.offset, a.unwant.len);
        for (int k = 0; k < a.n_fetch; k++)
            cache_prefetch(cache, f->object, a.fetch[k].offset, a.fetch[k].len);
        reading_start(&x[i % ARRAY_LEN(x)], f, at, (uint32_t)MIN(len, f->object->size - at));
    }
    return rc;
}

// --- the store behaves ---

static void a_stream_is_fetched_once_in_large_pieces(void **state)
{
    struct file f;

    begin(128 * MIB, 2, "");
    file_open(&f, "one", 64 * MIB);
    assert_int_equal(read_stream(&f, 1 * MIB), 0);
    assert_int_equal(bytes_in(), 64 * MIB);
    assert_true(gets() <= 20);
    file_close(&f);
    finish();
}

static void a_stream_of_small_unaligned_reads_is_fetched_once(void **state)
{
    struct file f;

    begin(128 * MIB, 2, "");
    file_open(&f, "one", 64 * MIB);
    assert_int_equal(read_stream(&f, 100001), 0);
    assert_in_range(bytes_in(), 64 * MIB, 64 * MIB + 64 * KIB);
    file_close(&f);
    finish();
}

static void random_reads_fetch_what_they_ask_for(void **state)
{
    struct file f;
    struct rand r;
    uint64_t asked = 0;

    begin(32 * MIB, 2, "");
    file_open(&f, "one", 64 * MIB);
    rand_seed(&r, 1);
    for (int i = 0; i < 300; i++) {
        uint32_t len = (uint32_t)(4 * KIB + rand_below(&r, 252 * KIB));
        uint64_t at = rand_below(&r, 64 * MIB - len);

        assert_int_equal(read_one(&f, at, len), 0);
        asked += len;
    }
    assert_true(bytes_in() <= asked + asked / 10);
    file_close(&f);
    finish();
}

struct loading {
    struct cache_load l;
    sem_t done;
    int error;
};

static void on_load(struct cache_load *l, int error)
{
    struct loading *x = container_of(l, struct loading, l);

    x->error = error;
    sem_post(&x->done);
}

static int load(struct file *f, bool background)
{
    struct loading x = {.l = {.object = f->object, .background = background, .done = on_load}};

    sem_init(&x.done, 0, 0);
    cache_load_start(cache, &x.l);
    while (sem_wait(&x.done) < 0 && errno == EINTR)
        ;
    sem_destroy(&x.done);
    return x.error;
}

static void a_small_object_is_one_get(void **state)
{
    begin(32 * MIB, 2, "");
    for (int i = 0; i < 64; i++) {
        struct file f;
        char key[8];

        snprintf(key, sizeof(key), "s%03d", i);
        file_open(&f, key, 100 * KIB);
        assert_int_equal(load(&f, i % 2), 0);
        for (uint64_t at = 0; at < 100 * KIB; at += 32 * KIB)
            assert_int_equal(read_one(&f, at, (uint32_t)MIN(32 * KIB, 100 * KIB - at)), 0);
        file_close(&f);
    }
    assert_int_equal(gets(), 64);
    finish();
}

static void another_version_is_stale_and_never_mixed(void **state)
{
    struct file f;

    begin(32 * MIB, 1, "");
    file_open(&f, "one", 64 * MIB);
    assert_int_equal(read_one(&f, 0, 1 * MIB), 0);
    s3d_process_set_faults(&fixture.server, "GET * always etag wrong\n");
    assert_int_equal(read_one(&f, 1 * MIB, 1 * MIB), -ESTALE);
    assert_true(atomic_load(&f.object->stale));
    assert_int_equal(read_one(&f, 0, 1 * MIB), 0);
    file_close(&f);
    finish();
}

static void an_object_that_is_gone_is_not_there(void **state)
{
    struct file f;

    begin(32 * MIB, 1, "");
    file_open(&f, "nothing", 1 * MIB);
    assert_int_equal(load(&f, false), -ENOENT);
    assert_int_equal(read_one(&f, 0, 4 * KIB), -ENOENT);
    file_close(&f);
    finish();
}

// --- the store misbehaves, memory is short ---

struct reader {
    pthread_t thread;
    unsigned number;
    bool streams;
    int error;
};

static int read_at_random(struct file *f, struct rand *r, int n)
{
    int rc = 0;

    for (int i = 0; i < n && rc == 0; i++) {
        uint64_t at = rand_below(r, f->object->size);
        uint64_t most = MIN(i % 8 ? 256 * KIB : CACHE_READ_MAX, f->object->size - at);

        rc = read_one(f, at, (uint32_t)(1 + rand_below(r, most)));
    }
    return rc;
}

static void *run_reader(void *arg)
{
    struct reader *me = arg;
    struct file f;
    struct rand r;
    char key[8];

    rand_seed(&r, me->number);
    snprintf(key, sizeof(key), "m%02u", me->number % 64);
    file_open(&f, key, 12 * MIB);
    me->error = me->streams ? read_stream(&f, 1 * MIB) : read_at_random(&f, &r, 30);
    file_close(&f);
    return NULL;
}

static void run_readers(unsigned n, bool streams)
{
    struct reader *readers = xcalloc(n, sizeof(*readers));

    for (unsigned i = 0; i < n; i++) {
        readers[i] = (struct reader){.number = i, .streams = streams || i % 2};
        assert_int_equal(pthread_create(&readers[i].thread, NULL, run_reader, &readers[i]), 0);
    }
    for (unsigned i = 0; i < n; i++) {
        pthread_join(readers[i].thread, NULL);
        assert_int_equal(readers[i].error, 0);
    }
    free(readers);
}

static void sixty_four_streams_share_sixteen_mebibytes(void **state)
{
    begin(16 * MIB, 1, "");
    run_readers(64, true);
    assert_true(stats().peak_bytes <= 16 * MIB);
    assert_int_equal(stats().waiting, 0);
    finish();
}

static void faults_never_reach_a_reader(void **state)
{
    begin(64 * MIB, 2, S3D_FAULTS);
    run_readers(16, false);
    finish();
}

static void faults_and_too_little_memory_never_reach_a_reader(void **state)
{
    begin(32 * MIB, 2, S3D_FAULTS);
    run_readers(64, false);
    assert_true(stats().peak_bytes <= 32 * MIB);
    finish();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_stream_is_fetched_once_in_large_pieces),
        cmocka_unit_test(a_stream_of_small_unaligned_reads_is_fetched_once),
        cmocka_unit_test(random_reads_fetch_what_they_ask_for),
        cmocka_unit_test(a_small_object_is_one_get),
        cmocka_unit_test(another_version_is_stale_and_never_mixed),
        cmocka_unit_test(an_object_that_is_gone_is_not_there),
        cmocka_unit_test(sixty_four_streams_share_sixteen_mebibytes),
        cmocka_unit_test(faults_never_reach_a_reader),
        cmocka_unit_test(faults_and_too_little_memory_never_reach_a_reader),
    };

    return cmocka_run_group_tests(tests, start, stop);
}
