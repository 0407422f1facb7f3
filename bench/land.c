// SPDX-License-Identifier: Apache-2.0
// land: what landing costs the device, without a host and a wire: the cache asks a store, unsigned,
// and lands in a region of shared memory that was touched before. Beside raw, which has no cache,
// it tells what of the device's CPU is ours.
//
//   land get  HOST:PORT BUCKET KEY SIZE [--depth 8]    one object, extent by extent, each to its
//                                                      place in the region
//   land keys HOST:PORT BUCKET FILE [--depth 64]       FETCHes of the keys in FILE, one a line
//
// [--loops 1] [--sign]. Prints one line of JSON as raw does. --sign needs the server's default
// keys.
#include "base/clock.h"
#include "base/text.h"
#include "cache/cache.h"
#include "lines.h"

#include <semaphore.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#define ROOM_OF_KEY MIB // each FETCH has so much

struct bench {
    struct loop *loop; // of the credentials
    struct credentials_provider *provider;
    struct s3_bucket *bucket;
    struct cache *cache;
    uint8_t *memory;
    unsigned depth;
    sem_t done;
    atomic_ulong next, running, bytes;

    struct cache_object *object;
    char **keys;
    size_t n;
};

// One of depth operations under way.
struct slot {
    struct bench *b;
    struct cache_dest dest;
    struct iovec iov;
    struct cache_land land;
    struct cache_fetch fetch;
};

static void die(const char *what, const char *why)
{
    fprintf(stderr, "land: %s: %s\n", what, why);
    exit(1);
}

static void next(struct slot *s);

static void end_one(struct slot *s, uint64_t bytes, int error)
{
    if (error)
        die("landing", strerror(-error));
    atomic_fetch_add(&s->b->bytes, bytes);
    next(s);
}

static void on_landed(struct cache_land *l, int error)
{
    end_one(container_of(l, struct slot, land), l->len, error);
}

static void on_fetched(struct cache_fetch *f, int error)
{
    end_one(container_of(f, struct slot, fetch), f->size, error);
}

// No put: all of it is direct, and nothing is in the cache.
static void next(struct slot *s)
{
    struct bench *b = s->b;
    uint64_t i = atomic_fetch_add(&b->next, 1);

    if (i >= b->n) {
        if (atomic_fetch_sub(&b->running, 1) == 1)
            sem_post(&b->done);
        return;
    }
    if (b->keys) {
        s->fetch = (struct cache_fetch){
            .key = b->keys[i], .key_len = strlen(b->keys[i]), .dest = &s->dest, .done = on_fetched};
        cache_fetch_start(b->cache, &s->fetch);
        return;
    }
    s->land = (struct cache_land){
        .object = b->object,
        .offset = i * CACHE_EXTENT,
        .len = (uint32_t)MIN(CACHE_EXTENT, b->object->size - i * CACHE_EXTENT),
        .dest = &s->dest,
        .dest_at = i * CACHE_EXTENT,
        .done = on_landed,
    };
    cache_land_start(b->cache, &s->land);
}

static void map_memory(struct bench *b, uint64_t size)
{
    int fd = memfd_create("region", MFD_CLOEXEC);

    if (fd < 0 || ftruncate(fd, (off_t)size) < 0)
        die("memfd", strerror(errno));
    b->memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, fd, 0);
    if (b->memory == MAP_FAILED)
        die("mmap", strerror(errno));
    memset(b->memory, 1, size);
}

static struct slot *make_slots(struct bench *b, uint64_t size)
{
    struct slot *slots = xcalloc(b->depth, sizeof(*slots));

    for (unsigned i = 0; i < b->depth; i++) {
        struct slot *s = &slots[i];

        s->b = b;
        s->iov = b->keys ? (struct iovec){b->memory + i * ROOM_OF_KEY, ROOM_OF_KEY}
                         : (struct iovec){b->memory, size};
        s->dest =
            (struct cache_dest){.len = s->iov.iov_len, .direct = true, .iov = &s->iov, .n_iov = 1};
    }
    return slots;
}

struct connecting {
    struct bench *b;
    const char *address, *bucket;
    bool sign;
};

static void connect_bucket(void *arg)
{
    struct connecting *c = arg;
    char *url = xasprintf("http://%s", c->address), *error = NULL;
    struct credentials_config keys = {.no_sign_request = !c->sign};
    struct s3_settings s = {
        .bucket = (char *)c->bucket, .endpoint_url = url, .no_sign_request = !c->sign};

    if (c->sign) {
        keys.access_key = "os2g";
        keys.secret_key = "os2g-secret";
    }
    if (credentials_provider_new(&c->b->provider, c->b->loop, &keys, NULL) < 0 ||
        s3_bucket_new(&c->b->bucket, &s, c->b->provider, &error) < 0)
        die("bucket", error ? error : "credentials");
    free(url);
}

static void disconnect(void *arg)
{
    struct bench *b = arg;

    s3_bucket_free(b->bucket);
    credentials_provider_free(b->provider);
}

static double cpu_seconds(void)
{
    struct rusage u;

    getrusage(RUSAGE_SELF, &u);
    return (double)u.ru_utime.tv_sec + (double)u.ru_stime.tv_sec +
           (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec) * 1e-6;
}

static void run(struct bench *b, uint64_t size)
{
    struct slot *slots = make_slots(b, size);
    double cpu = cpu_seconds();
    uint64_t start = clock_monotonic_ns(), requests = 0;

    sem_init(&b->done, 0, 0);
    atomic_store(&b->running, b->depth);
    for (unsigned i = 0; i < b->depth; i++)
        next(&slots[i]);
    while (sem_wait(&b->done) < 0 && errno == EINTR)
        ;
    start = clock_monotonic_ns() - start;
    cpu = cpu_seconds() - cpu;
    for (unsigned i = 0; i < cache_data_loops(b->cache); i++)
        requests += counter_read(&s3_client_stats(cache_s3_client(b->cache, i))->requests[S3_GET]);
    printf("{\"seconds\": %.6f, \"bytes\": %lu, \"requests\": %lu, \"cpu_s\": %.6f}\n",
           (double)start / 1e9, atomic_load(&b->bytes), requests, cpu);
    free(slots);
}

static uint64_t option(int argc, char **argv, const char *name, uint64_t value)
{
    for (int i = 1; i + 1 < argc; i++)
        if (!strcmp(argv[i], name) && text_parse_size(argv[i + 1], &value) < 0)
            die(name, argv[i + 1]);
    return value;
}

int main(int argc, char **argv)
{
    bool get = argc > 5 && !strcmp(argv[1], "get"), sign = false;
    struct connecting c;
    struct bench b = {0};
    uint64_t size = 0;
    char *error = NULL;

    if (!get && !(argc > 4 && !strcmp(argv[1], "keys"))) {
        fputs("usage: land get HOST:PORT BUCKET KEY SIZE | keys HOST:PORT BUCKET FILE  "
              "[--depth N] [--loops N] [--sign]\n",
              stderr);
        return 2;
    }
    for (int i = 4; i < argc; i++)
        sign |= !strcmp(argv[i], "--sign");
    signal(SIGPIPE, SIG_IGN);
    b.depth = (unsigned)option(argc, argv, "--depth", get ? 8 : 64);
    c = (struct connecting){.b = &b, .address = argv[2], .bucket = argv[3], .sign = sign};
    if (loop_start(&b.loop, "credentials") < 0)
        die("loop", strerror(errno));
    loop_call(b.loop, connect_bucket, &c);
    if (cache_new(&b.cache,
                  &(struct cache_config){.memory = 64 * MIB,
                                         .data_loops = (unsigned)option(argc, argv, "--loops", 1),
                                         .bucket = b.bucket},
                  &error) < 0)
        die("cache", error);
    if (get) {
        if (text_parse_size(argv[5], &size) < 0 || size == 0)
            die(argv[5], "no size");
        b.object = cache_object_new(b.cache, argv[4], strlen(argv[4]), "", size);
        b.n = (size + CACHE_EXTENT - 1) / CACHE_EXTENT;
        map_memory(&b, size);
    } else {
        b.keys = lines_read(argv[4], &b.n);
        map_memory(&b, b.depth * ROOM_OF_KEY);
    }
    run(&b, size);
    cache_object_unref(b.object);
    cache_free(b.cache);
    loop_call(b.loop, disconnect, &b);
    loop_stop(b.loop);
    return 0;
}
