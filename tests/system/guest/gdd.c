// SPDX-License-Identifier: Apache-2.0
// Commands on .os2g/gdd (src/wire/gdd.h), of which a worker opens one.
#include "guest.h"

#include "wire/gdd.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#define DEPTH_MAX 64

static int gdd = -1;

// gdd-open PATH
static int run_open(const struct command *c)
{
    if (gdd >= 0)
        close(gdd);
    gdd = open(word(c, 1), O_RDONLY | O_CLOEXEC);
    return gdd < 0 ? -errno : 0;
}

// gdd-close
static int run_close(const struct command *c)
{
    int rc = close(gdd) < 0 ? -errno : 0;

    gdd = -1;
    return rc;
}

// gdd-lease OFFSET SIZE; OFFSET -1: anywhere
static int run_lease(const struct command *c)
{
    struct os2g_gdd_lease l = {.offset = (uint64_t)strtoll(word(c, 1), NULL, 0),
                               .size = word_number(c, 2)};

    if (ioctl(gdd, OS2G_IOC_GDD_LEASE, &l) < 0)
        return -errno;
    say_number("offset", (int64_t)l.offset);
    say_number("memory", (int64_t)l.memory_size);
    return 0;
}

// gdd-unlease OFFSET
static int run_unlease(const struct command *c)
{
    struct os2g_gdd_lease l = {.offset = word_number(c, 1)};

    return ioctl(gdd, OS2G_IOC_GDD_UNLEASE, &l) < 0 ? -errno : 0;
}

static int submit(const struct os2g_gdd_entry *e, const char *key, uint64_t *ret_epoch)
{
    struct {
        struct os2g_gdd_submit head;
        struct os2g_gdd_entry e;
        char key[1024];
    } s = {.head = {.n = 1}, .e = *e};
    size_t len = sizeof(s.head) + sizeof(s.e);

    s.e.key_len = (uint32_t)strlen(key);
    memcpy(s.key, key, s.e.key_len);
    len += (s.e.key_len + 7) & ~7u;
    if (ioctl(gdd, OS2G_IOC_GDD_SUBMIT(len), &s) < 0)
        return -errno;
    *ret_epoch = s.head.epoch;
    return 0;
}

struct reaped {
    struct os2g_gdd_reap head;
    struct os2g_gdd_completion c[DEPTH_MAX];
};

static int reap(struct reaped *r)
{
    r->head = (struct os2g_gdd_reap){.min = 1, .timeout_ms = 1000};
    return ioctl(gdd, OS2G_IOC_GDD_REAP(sizeof(*r)), r) < 0 ? -errno : 0;
}

// One, from submit to its end.
static int one(const struct os2g_gdd_entry *e, const char *key)
{
    uint64_t epoch;
    struct reaped r;
    int rc = submit(e, key, &epoch);

    if (rc < 0)
        return rc;
    do {
        rc = reap(&r);
    } while (rc == 0 && !r.head.n && r.head.epoch == epoch);
    if (rc < 0)
        return rc;
    if (!r.head.n)
        return -ESTALE;
    say_number("result", r.c[0].result);
    say_number("size", (int64_t)r.c[0].size);
    return 0;
}

// gdd-fetch KEY PLACE ROOM
static int run_fetch(const struct command *c)
{
    return one(&(struct os2g_gdd_entry){.place = word_number(c, 2), .len = word_number(c, 3)},
               word(c, 1));
}

static int open_object(const char *path, struct os2g_gdd_id *ret)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);

    if (fd < 0)
        return -errno;
    if (ioctl(fd, OS2G_IOC_GDD_ID, ret) < 0) {
        int rc = -errno;

        close(fd);
        return rc;
    }
    return fd;
}

// gdd-read PATH OFFSET LENGTH PLACE
static int run_read(const struct command *c)
{
    struct os2g_gdd_id id;
    int fd = open_object(word(c, 1), &id), rc;

    if (fd < 0)
        return fd;
    rc = one(&(struct os2g_gdd_entry){.id = id.id,
                                      .offset = word_number(c, 2),
                                      .len = word_number(c, 3),
                                      .place = word_number(c, 4)},
             "");
    close(fd);
    return rc;
}

// --- many at once ---

struct slot {
    uint64_t epoch;
    int object; // which of the command's
    bool busy;
};

struct load {
    const struct command *c;
    uint64_t place, room, landed, bytes, cancelled, again, worst_ns, last_ns;
    unsigned depth, busy;
    int objects, next;
    bool check;
    struct slot slots[DEPTH_MAX];
    char wrong[200];
};

static const char *key_of(const struct load *l, int object)
{
    return word(l->c, 6 + 2 * object);
}

static int load_submit(struct load *l, unsigned i)
{
    struct slot *s = &l->slots[i];
    int rc =
        submit(&(struct os2g_gdd_entry){.tag = i, .place = l->place + i * l->room, .len = l->room},
               key_of(l, s->object), &s->epoch);

    if (rc < 0)
        snprintf(l->wrong, sizeof(l->wrong), "SUBMIT: %s", strerror(-rc));
    return rc;
}

static void load_check(struct load *l, unsigned i, const struct os2g_gdd_completion *done)
{
    const struct slot *s = &l->slots[i];
    void *base;
    uint64_t size;
    int64_t wrong = 0;

    if (done->result == -ECANCELED || done->result == -ENXIO) {
        l->cancelled++;
        return;
    }
    if (done->result < 0) {
        snprintf(l->wrong, sizeof(l->wrong), "%.100s: %s", key_of(l, s->object),
                 strerror((int)-done->result));
        return;
    }
    l->landed++;
    l->bytes += (uint64_t)done->result;
    if (!l->check)
        return;
    if (bar_map(0, &base, &size) == 0)
        wrong = synthetic_check(word_number(l->c, 7 + 2 * s->object), 0,
                                (char *)base + l->place + i * l->room, (size_t)done->result);
    if (wrong >= 0)
        snprintf(l->wrong, sizeof(l->wrong), "%.100s: byte %lld", key_of(l, s->object),
                 (long long)wrong);
}

// What an earlier worker of the daemon had taken is submitted again.
static int load_again(struct load *l, uint64_t epoch)
{
    for (unsigned i = 0; i < l->depth; i++) {
        int rc;

        if (!l->slots[i].busy || l->slots[i].epoch == epoch)
            continue;
        l->again++;
        rc = load_submit(l, i);
        if (rc < 0)
            return rc;
    }
    return 0;
}

static int load_step(struct load *l)
{
    struct reaped r;
    int rc = 0;

    for (unsigned i = 0; i < l->depth && !guest_stop && rc == 0; i++) {
        if (l->slots[i].busy)
            continue;
        l->slots[i].object = l->next++ % l->objects;
        l->slots[i].busy = true;
        l->busy++;
        rc = load_submit(l, i);
    }
    if (rc == 0)
        rc = reap(&r);
    if (rc == -EINTR) // told to stop
        return 0;
    if (rc == 0)
        rc = load_again(l, r.head.epoch);
    for (uint32_t i = 0; rc == 0 && i < r.head.n; i++) {
        uint64_t slot = r.c[i].tag, now = now_ns();

        if (slot >= l->depth || !l->slots[slot].busy) {
            snprintf(l->wrong, sizeof(l->wrong), "an end of nothing");
            return -EIO;
        }
        load_check(l, (unsigned)slot, &r.c[i]);
        l->slots[slot].busy = false;
        l->busy--;
        if (now - l->last_ns > l->worst_ns)
            l->worst_ns = now - l->last_ns;
        l->last_ns = now;
    }
    return rc;
}

// gdd-load CHECK DEPTH PLACE ROOM MAX KEY START [KEY START ...]: fetches them over and over, each
// slot of ROOM bytes one at a time, until it is stopped, MAX have landed or a byte is wrong.
// CHECK: the bytes are read in the BAR.
static int run_load(const struct command *c)
{
    static struct load l;
    int rc = 0;

    l = (struct load){.c = c,
                      .check = word_number(c, 1),
                      .depth = (unsigned)word_number(c, 2),
                      .place = word_number(c, 3),
                      .room = word_number(c, 4),
                      .objects = (c->argc - 6) / 2,
                      .last_ns = now_ns()};
    if (!l.depth || l.depth > DEPTH_MAX || l.objects < 1)
        return -EINVAL;
    synthetic_check(0, 0, "", 0); // makes the table
    while (rc == 0 && !l.wrong[0] && (l.busy || !guest_stop)) {
        if (word_number(c, 5) && l.landed >= word_number(c, 5))
            guest_stop = 1;
        rc = load_step(&l);
    }
    say_begin(c);
    say_number("landed", (int64_t)l.landed);
    say_number("bytes", (int64_t)l.bytes);
    say_number("cancelled", (int64_t)l.cancelled);
    say_number("again", (int64_t)l.again);
    say_number("worst_ms", (int64_t)(l.worst_ns / 1000000));
    say_text("wrong", l.wrong);
    return rc;
}

// gdd-stream PATH BLOCK DEPTH BYTES PLACE: front to back, again and again until so many bytes have
// landed, DEPTH blocks at a time
static int run_stream(const struct command *c)
{
    uint64_t block = word_number(c, 2), total = word_number(c, 4), done = 0, asked = 0, at = 0;
    unsigned depth = (unsigned)word_number(c, 3);
    struct os2g_gdd_id id;
    int fd = open_object(word(c, 1), &id), rc = 0;
    uint64_t before = now_ns(), epoch;
    struct reaped r = {.head = {.n = depth}};

    if (fd < 0 || depth > DEPTH_MAX)
        return fd < 0 ? fd : -EINVAL;
    for (unsigned i = 0; i < depth; i++)
        r.c[i].tag = i;
    while (rc == 0 && done < total) {
        // what has ended is asked for anew
        for (uint32_t i = 0; rc == 0 && i < r.head.n; i++) {
            if (asked >= total)
                continue;
            rc = submit(&(struct os2g_gdd_entry){.tag = r.c[i].tag,
                                                 .id = id.id,
                                                 .offset = at,
                                                 .len = block,
                                                 .place = word_number(c, 5) + r.c[i].tag * block},
                        "", &epoch);
            at = at + 2 * block > id.size ? 0 : at + block;
            asked += block;
        }
        if (rc == 0)
            rc = reap(&r);
        for (uint32_t i = 0; rc == 0 && i < r.head.n; i++) {
            if (r.c[i].result < 0)
                rc = (int)r.c[i].result;
            else
                done += (uint64_t)r.c[i].result;
        }
    }
    say_number("ns", (int64_t)(now_ns() - before));
    say_number("bytes", (int64_t)done);
    close(fd);
    return rc;
}

const struct command_kind gdd_commands[] = {
    {"gdd-open", run_open},       {"gdd-close", run_close},   {"gdd-lease", run_lease},
    {"gdd-unlease", run_unlease}, {"gdd-fetch", run_fetch},   {"gdd-read", run_read},
    {"gdd-load", run_load},       {"gdd-stream", run_stream}, {NULL},
};
