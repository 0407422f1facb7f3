// SPDX-License-Identifier: Apache-2.0
// fetch_run by way of a daemon: parts land in memory that it shares with us. Whole small objects
// are fetched by their key, parts of larger ones read from a file, which stays on its version.
#include "cli/daemon_fetch.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MEMORY_BYTES (16 * FETCH_PART)
#define SLOTS_MAX    64
#define SLOT_BYTES   FETCH_PART // at most

struct slot {
    struct fetch_object *object; // NULL: idle
    uint64_t offset, len;        // of the part
    int64_t result;
    bool landed;
};

// Parts are numbered in the order of asking; each has the slot of its number.
struct daemon_fetch {
    struct os2g *c;
    const struct fetch_config *config;
    struct fetch_object *objects;
    size_t n_objects, asking; // number of the object whose parts are asked for next
    struct os2g_file *file;   // its, unless it is fetched whole
    struct os2g_file **files; // by number of the object
    struct os2g_buffer *buffer;
    struct os2g_batch *batch;
    struct slot slots[SLOTS_MAX];
    unsigned n_slots, busy;
    uint64_t slot_bytes, next, due; // numbers of parts
    bool stopped;
    int error;
};

static void fail(struct daemon_fetch *f, struct fetch_object *o, int error, const char *text)
{
    if (o->error)
        return;
    o->error = error;
    snprintf(o->error_text, sizeof(o->error_text), "%s", text);
    if (!f->error)
        f->error = error;
    f->stopped = f->stopped || f->config->ordered;
}

static void end_if_over(struct daemon_fetch *f, struct fetch_object *o)
{
    size_t number = (size_t)(o - f->objects);

    if (o->ended || o->parts_in_flight ||
        !(o->error || f->stopped || (o->opened && o->next_offset >= o->size)))
        return;
    o->ended = true;
    os2g_file_close(f->files[number]);
    f->files[number] = NULL;
    f->config->end(f->config->arg, o, o->error, o->error_text);
}

// --- what has landed ---

static void hand_over(struct daemon_fetch *f, struct slot *s)
{
    struct fetch_object *o = s->object;
    const char *base = os2g_buffer_base(f->buffer);
    uint64_t at = (uint64_t)(s - f->slots) * f->slot_bytes;
    int rc;

    if (s->result < 0)
        fail(f, o, (int)s->result, "");
    else if ((uint64_t)s->result != s->len)
        fail(f, o, -ESTALE, "it has become shorter");
    if (!o->error && !f->stopped) {
        rc = f->config->write(f->config->arg, o, s->offset, base + at, s->len);
        if (rc < 0)
            fail(f, o, rc, "");
    }
    o->parts_in_flight--;
    *s = (struct slot){0};
    f->busy--;
    end_if_over(f, o);
}

static void take(struct daemon_fetch *f, const struct os2g_io_event *e)
{
    struct slot *s = e->cookie;

    s->landed = true;
    s->result = e->result;
    if (f->config->progress && e->result > 0)
        f->config->progress(f->config->arg, (uint64_t)e->result);
    if (!f->config->ordered)
        hand_over(f, s);
    while (f->config->ordered && f->slots[f->due % f->n_slots].landed)
        hand_over(f, &f->slots[f->due++ % f->n_slots]);
}

// --- what is asked for ---

static bool is_whole(const struct daemon_fetch *f, const struct fetch_object *o)
{
    return !o->part && o->offset == 0 && o->size <= f->slot_bytes;
}

static void open_object(struct daemon_fetch *f, struct fetch_object *o)
{
    struct os2g_stat st = {0};
    struct os2g_file **file = &f->files[o - f->objects];
    int rc = f->config->open(f->config->arg, o);

    o->opened = true;
    o->next_offset = o->offset;
    if (rc < 0) {
        fail(f, o, rc, "");
        return;
    }
    if (o->offset >= o->size || is_whole(f, o))
        return;
    rc = os2g_open(f->c, o->key, file);
    if (rc == 0)
        rc = os2g_file_stat(*file, &st);
    if (rc < 0)
        fail(f, o, rc, os2g_last_error());
    else if (st.size < o->size || (*o->etag && *st.etag && strcmp(o->etag, st.etag) != 0))
        fail(f, o, -ESTALE, "the store has another version of it now");
}

// The object whose next part is to be asked for; NULL when there is none left.
static struct fetch_object *next_object(struct daemon_fetch *f)
{
    for (; f->asking < f->n_objects; f->asking++) {
        struct fetch_object *o = &f->objects[f->asking];

        if (!o->opened && !f->stopped)
            open_object(f, o);
        if (!o->error && !f->stopped && o->next_offset < o->size)
            return o;
        // ordered: not before those ahead of it; the last part's end does it otherwise
        end_if_over(f, o);
    }
    return NULL;
}

static int ask(struct daemon_fetch *f, struct fetch_object *o)
{
    unsigned number = (unsigned)(f->next % f->n_slots);
    struct slot *s = &f->slots[number];
    struct os2g_io io = {.kind = is_whole(f, o) ? OS2G_IO_FETCH : OS2G_IO_READ,
                         .file = f->files[o - f->objects],
                         .key = o->key,
                         .buffer_base = os2g_buffer_base(f->buffer),
                         .buffer_offset = (off_t)(number * f->slot_bytes),
                         .file_offset = (off_t)o->next_offset,
                         .size = MIN(f->slot_bytes, o->size - o->next_offset),
                         .cookie = s};

    *s = (struct slot){.object = o, .offset = o->next_offset, .len = io.size};
    f->next++;
    f->busy++;
    o->parts_in_flight++;
    o->next_offset += io.size;
    return os2g_batch_submit(f->batch, &io, 1);
}

// Unordered, any idle slot is as good as the next number's.
static bool find_slot(struct daemon_fetch *f)
{
    for (unsigned i = 0; i < f->n_slots; i++) {
        if (!f->slots[f->next % f->n_slots].object)
            return true;
        if (f->config->ordered)
            return false;
        f->next++;
    }
    return false;
}

static int run(struct daemon_fetch *f)
{
    struct os2g_io_event events[SLOTS_MAX];
    struct fetch_object *o = NULL;
    int rc = 0;

    for (;;) {
        while (rc >= 0 && find_slot(f) && (o = next_object(f)))
            rc = ask(f, o);
        if (rc < 0 || !f->busy)
            return MIN(rc, 0); // nothing under way, and all slots idle: all was asked for
        rc = os2g_batch_status(f->batch, 1, f->n_slots, events, NULL);
        for (int i = 0; i < rc; i++)
            take(f, &events[i]);
    }
}

int daemon_fetch_run(struct session *s, const struct fetch_config *config,
                     struct fetch_object *objects, size_t n)
{
    struct os2g *c = s->daemon;
    struct daemon_fetch f = {.c = c, .config = config, .objects = objects, .n_objects = n};
    int rc;

    f.n_slots = MIN(config->parallel, SLOTS_MAX);
    f.slot_bytes = MIN(SLOT_BYTES, MEMORY_BYTES / f.n_slots);
    f.files = xcalloc(n, sizeof(struct os2g_file *));
    rc = os2g_buffer_alloc(c, &f.buffer, f.n_slots * f.slot_bytes, OS2G_MEMORY_HOST, 0);
    if (rc == 0)
        rc = os2g_batch_new(c, &f.batch, f.n_slots);
    if (rc == 0)
        rc = run(&f);
    os2g_batch_free(f.batch);
    // what a connection that broke has left
    for (size_t i = 0; i < n; i++) {
        if (rc < 0)
            fail(&f, &objects[i], rc, os2g_last_error());
        objects[i].parts_in_flight = 0;
        f.stopped = true;
        end_if_over(&f, &objects[i]);
    }
    os2g_buffer_free(f.buffer);
    free(f.files);
    return f.error;
}
