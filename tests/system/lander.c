// SPDX-License-Identifier: Apache-2.0
// lander: a program on libos2g for the system tests. Objects land between canaries.
//
//   lander check WHERE FILE [--op fetch|read] [--memory host|malloc] [--depth N] [--block N]
//                           [--wait status|poll] [--cancel N]
//       Each line of FILE, "SIZE KEY", by batch into a room of SIZE bytes. A line for each end:
//       "RESULT OBJECT-SIZE SHA256 KEY"; a canary that was touched ends it with status 3. Waits in
//       os2g_batch_status, or in poll() for its descriptor; after N ends cancels all under way.
//   lander plan WHERE FILE
//       Sets a plan of the keys and says "set"; for each line on standard input then a line of
//       status: "ENTRIES FETCHED USED DROPPED MISSING BYTES". The plan ends with standard input.
#include "base/base.h"
#include "base/rand.h"
#include "base/text.h"

#include <err.h>
#include <openssl/sha.h>
#include <os2g/os2g.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CANARY       ((size_t)4096)
#define CANARY_BYTE  0xc5
#define UNALIGNED_BY 64 // rooms begin up to so many bytes behind a page's beginning

struct object {
    char *key;
    uint64_t size;
};

struct room {
    struct object *object;
    struct os2g_file *file; // READ
    uint64_t offset;        // of the room in the memory
    uint64_t next, landed;  // READ: what is asked for next; so far
    unsigned under_way;
    int64_t result;
    uint64_t object_size;
};

struct check {
    struct os2g *c;
    struct os2g_batch *batch;
    enum os2g_io_kind op;
    unsigned char *memory;
    uint64_t room_size, block;
    struct rand rand;
    struct room *rooms;
    unsigned n_rooms;
    bool polls;
    unsigned cancel_after, n_ended; // 0: never
};

static struct object *read_objects(const char *file, size_t *ret_n)
{
    FILE *f = fopen(file, "r");
    struct object *objects = NULL;
    char *line = NULL, *blank;
    size_t room = 0, n = 0;
    ssize_t len;

    if (!f)
        err(1, "%s", file);
    while ((len = getline(&line, &room, f)) > 0) {
        if (line[len - 1] == '\n')
            line[len - 1] = 0;
        objects = xrealloc(objects, (n + 1) * sizeof(*objects));
        objects[n].size = strtoull(line, &blank, 10);
        objects[n++].key = xstrdup(*blank ? blank + 1 : "");
    }
    free(line);
    fclose(f);
    *ret_n = n;
    return objects;
}

static void free_objects(struct object *objects, size_t n)
{
    for (size_t i = 0; i < n; i++)
        free(objects[i].key);
    free(objects);
}

// --- check ---

static void check_canary(const unsigned char *p, const struct room *r)
{
    for (size_t i = 0; i < CANARY; i++) {
        if (p[i] != CANARY_BYTE) {
            fprintf(stderr, "lander: %s: bytes beside its room were touched\n", r->object->key);
            exit(3);
        }
    }
}

static void report(struct check *k, struct room *r)
{
    unsigned char *at = k->memory + r->offset, digest[SHA256_DIGEST_LENGTH];
    char hex[2 * sizeof(digest) + 1];

    check_canary(at - CANARY, r);
    check_canary(at + r->object->size, r);
    SHA256(at, r->result > 0 ? (size_t)r->result : 0, digest);
    text_hex(digest, sizeof(digest), hex);
    printf("%ld %lu %s %s\n", r->result, r->object_size, hex, r->object->key);
    os2g_file_close(r->file);
    r->file = NULL;
    r->object = NULL;
}

static void submit(struct check *k, struct room *r, uint64_t offset, uint64_t size)
{
    struct os2g_io io = {.kind = k->op,
                         .file = r->file,
                         .key = r->object->key,
                         .buffer_base = k->memory,
                         .size = size,
                         .file_offset = (off_t)offset,
                         .buffer_offset = (off_t)(r->offset + offset),
                         .cookie = r};

    if (os2g_batch_submit(k->batch, &io, 1) < 0)
        errx(1, "submit %s: %s", r->object->key, os2g_last_error());
    r->under_way++;
}

// The next blocks of a read; the whole of a fetch.
static void advance(struct check *k, struct room *r)
{
    if (k->op == OS2G_IO_FETCH) {
        submit(k, r, 0, r->object->size);
        return;
    }
    while (r->under_way < 2 && (r->next < r->object->size || (r->next == 0 && !r->under_way))) {
        uint64_t size = MIN(k->block, r->object->size - r->next);

        submit(k, r, r->next, size);
        r->next += size;
        if (!size)
            break;
    }
}

static void begin(struct check *k, unsigned number, struct object *object)
{
    struct room *r = &k->rooms[number];
    uint64_t place = number * k->room_size;

    *r = (struct room){.object = object,
                       .offset = place + CANARY + rand_below(&k->rand, UNALIGNED_BY)};
    memset(k->memory + place, CANARY_BYTE, k->room_size);
    if (k->op == OS2G_IO_READ) {
        int rc = os2g_open(k->c, object->key, &r->file);

        if (rc < 0) {
            r->result = rc;
            report(k, r);
            return;
        }
        r->object_size = os2g_file_size(r->file);
    }
    advance(k, r);
}

static void end(struct check *k, const struct os2g_io_event *e)
{
    struct room *r = e->cookie;

    r->under_way--;
    if (e->result < 0)
        r->result = e->result;
    else if (r->result >= 0)
        r->result += e->result;
    if (k->op == OS2G_IO_FETCH)
        r->object_size = e->object_size;
    else if (r->result >= 0 && r->next < r->object->size)
        advance(k, r);
    if (!r->under_way)
        report(k, r);
}

static int wait_for_some(struct check *k, struct os2g_io_event *events, unsigned max)
{
    struct pollfd p = {.fd = os2g_batch_eventfd(k->batch), .events = POLLIN};
    int got;

    if (!k->polls)
        return os2g_batch_status(k->batch, 1, max, events, NULL);
    while ((got = os2g_batch_status(k->batch, 0, max, events, NULL)) == 0)
        if (poll(&p, 1, -1) < 0)
            err(1, "poll");
    return got;
}

static void run(struct check *k, struct object *objects, size_t n)
{
    size_t next = 0;
    unsigned busy;

    do {
        struct os2g_io_event events[8];
        int got;

        busy = 0;
        for (unsigned i = 0; i < k->n_rooms; i++) {
            while (!k->rooms[i].object && next < n)
                begin(k, i, &objects[next++]);
            busy += k->rooms[i].object ? 1 : 0;
        }
        got = busy ? wait_for_some(k, events, ARRAY_LEN(events)) : 0;
        if (got < 0)
            errx(1, "status: %s", os2g_last_error());
        for (int i = 0; i < got; i++) {
            end(k, &events[i]);
            if (++k->n_ended == k->cancel_after && os2g_batch_cancel(k->batch) < 0)
                errx(1, "cancel: %s", os2g_last_error());
        }
    } while (busy);
}

static const char *option(int argc, char **argv, const char *name, const char *value)
{
    for (int i = 4; i + 1 < argc; i += 2)
        if (!strcmp(argv[i], name))
            value = argv[i + 1];
    return value;
}

static void check(struct os2g *c, int argc, char **argv)
{
    struct check k = {.c = c,
                      .op = strcmp(option(argc, argv, "--op", "fetch"), "read") ? OS2G_IO_FETCH
                                                                                : OS2G_IO_READ,
                      .n_rooms = (unsigned)atoi(option(argc, argv, "--depth", "8")),
                      .polls = !strcmp(option(argc, argv, "--wait", "status"), "poll"),
                      .cancel_after = (unsigned)atoi(option(argc, argv, "--cancel", "0")),
                      .block = strtoull(option(argc, argv, "--block", "1048576"), NULL, 10)};
    bool plain = !strcmp(option(argc, argv, "--memory", "host"), "malloc");
    struct os2g_buffer *buffer = NULL;
    size_t n;
    struct object *objects = read_objects(argv[3], &n);

    for (size_t i = 0; i < n; i++)
        k.room_size = MAX(k.room_size, objects[i].size);
    k.room_size = ALIGN_UP(k.room_size + UNALIGNED_BY + 2 * CANARY, CANARY);
    rand_seed(&k.rand, 1);
    k.rooms = xcalloc(k.n_rooms, sizeof(*k.rooms));
    if (plain)
        k.memory = xmalloc(k.n_rooms * k.room_size);
    else if (os2g_buffer_alloc(c, &buffer, k.n_rooms * k.room_size, OS2G_MEMORY_HOST, 0) < 0)
        errx(1, "%s", os2g_last_error());
    else
        k.memory = os2g_buffer_base(buffer);
    if (os2g_batch_new(c, &k.batch, 2 * k.n_rooms) < 0)
        errx(1, "%s", os2g_last_error());
    run(&k, objects, n);
    os2g_batch_free(k.batch);
    os2g_buffer_free(buffer);
    if (plain)
        free(k.memory);
    free(k.rooms);
    free_objects(objects, n);
}

// --- plan ---

static void plan(struct os2g *c, const char *file)
{
    size_t n;
    struct object *objects = read_objects(file, &n);
    const char **keys = xcalloc(n, sizeof(*keys));
    struct os2g_plan_status s;
    struct os2g_plan *p;
    char line[16];

    for (size_t i = 0; i < n; i++)
        keys[i] = objects[i].key;
    if (os2g_plan_new(c, &p, 0) < 0 || os2g_plan_add(p, keys, n) < 0 || os2g_plan_commit(p) < 0)
        errx(1, "%s", os2g_last_error());
    puts("set");
    fflush(stdout);
    while (fgets(line, sizeof(line), stdin)) {
        if (os2g_plan_status(p, &s) < 0)
            errx(1, "%s", os2g_last_error());
        printf("%lu %lu %lu %lu %lu %lu\n", s.entries, s.fetched, s.used, s.dropped, s.missing,
               s.bytes);
        fflush(stdout);
    }
    os2g_plan_free(p);
    free(keys);
    free_objects(objects, n);
}

static void on_event(void *arg, enum os2g_event event, const char *text)
{
    fprintf(stderr, "lander: %s\n", text);
}

int main(int argc, char **argv)
{
    struct os2g_options options = {.size = sizeof(options), .no_start = true, .event = on_event};
    struct os2g *c;

    if (argc < 4)
        errx(2, "usage: lander check|plan WHERE FILE [options]");
    if (os2g_connect(&c, argv[2], &options) < 0)
        errx(1, "%s: %s", argv[2], os2g_last_error());
    if (!strcmp(argv[1], "plan"))
        plan(c, argv[3]);
    else
        check(c, argc, argv);
    os2g_close(c);
    return 0;
}
