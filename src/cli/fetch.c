// SPDX-License-Identifier: Apache-2.0
#include "cli/fetch.h"

#include "cli/daemon_fetch.h"

#include <stdlib.h>
#include <string.h>

// Of the bytes in buffers at once, however many parts are in flight.
#define MAX_BYTES_IN_FLIGHT (16 * FETCH_PART)

struct part {
    struct fetch *fetch;
    struct fetch_object *object; // NULL while idle
    struct s3_get get;
    uint64_t offset, len;
    uint64_t landed;
    bool complete; // ordered: waits for its turn
    char *buffer;  // grows with the largest part it held
    size_t buffer_size;
};

struct fetch {
    struct session *session;
    const struct fetch_config *config;
    struct fetch_object *objects;
    size_t n_objects;
    size_t asking;  // index of the object whose parts are asked for next
    size_t handing; // ordered: index of the object whose bytes are handed over next
    unsigned busy;  // parts that are not idle
    uint64_t bytes_in_flight;
    bool stopped; // ordered: after the first error
    int error;
    struct part *parts;
    struct session_wait wait;
};

static void advance(struct fetch *f);

static int on_room(struct s3_get *g, struct iovec *iov, int max)
{
    struct part *p = container_of(g, struct part, get);

    iov[0] = (struct iovec){p->buffer + p->landed, p->len - p->landed};
    return 1;
}

static void on_landed(struct s3_get *g, size_t n)
{
    struct part *p = container_of(g, struct part, get);
    const struct fetch_config *c = p->fetch->config;

    p->landed += n;
    if (c->progress)
        c->progress(c->arg, n);
}

static void object_fail(struct fetch *f, struct fetch_object *o, int error, const char *text)
{
    if (o->error)
        return;
    o->error = error;
    memcpy(o->error_text, text, sizeof(o->error_text));
    if (!f->error)
        f->error = error;
    if (f->config->ordered)
        f->stopped = true;
}

static void object_end_if_over(struct fetch *f, struct fetch_object *o)
{
    bool all_asked = o->error || f->stopped || (o->opened && o->next_offset >= o->size);

    if (o->ended || !all_asked || o->parts_in_flight)
        return;
    o->ended = true;
    f->config->end(f->config->arg, o, o->error, o->error_text);
}

static void part_hand_over(struct part *p)
{
    struct fetch *f = p->fetch;
    struct fetch_object *o = p->object;
    static const char no_text[S3_ERROR_TEXT];

    if (!o->error && !f->stopped) {
        int rc = f->config->write(f->config->arg, o, p->offset, p->buffer, p->len);

        if (rc < 0)
            object_fail(f, o, rc, no_text);
    }
    o->due_offset = p->offset + p->len;
    o->parts_in_flight--;
    p->object = NULL;
    p->complete = false;
    f->busy--;
    f->bytes_in_flight -= p->len;
    object_end_if_over(f, o);
}

// Ordered: hands over what has become due, of one object after the other.
static void hand_over_due(struct fetch *f)
{
    bool again = true;

    while (again && f->handing < f->n_objects) {
        struct fetch_object *o = &f->objects[f->handing];

        again = false;
        for (unsigned i = 0; i < f->config->parallel; i++) {
            struct part *p = &f->parts[i];

            if (p->complete && p->object == o && (p->offset == o->due_offset || f->stopped)) {
                part_hand_over(p);
                again = true;
            }
        }
        if (o->ended) {
            f->handing++;
            again = true;
        }
    }
}

static void on_done(struct s3_get *g, int error)
{
    struct part *p = container_of(g, struct part, get);
    struct fetch *f = p->fetch;

    if (error)
        object_fail(f, p->object, error, g->error_text);
    if (f->config->ordered) {
        p->complete = true;
        hand_over_due(f);
    } else {
        part_hand_over(p);
    }
    advance(f);
}

static void part_start(struct part *p, struct fetch_object *o)
{
    p->object = o;
    p->offset = o->next_offset;
    p->len = MIN(FETCH_PART, o->size - o->next_offset);
    p->landed = 0;
    if (p->buffer_size < p->len) {
        free(p->buffer);
        p->buffer = xmalloc(p->len);
        p->buffer_size = p->len;
    }
    p->get = (struct s3_get){
        .key = o->key,
        .key_len = strlen(o->key),
        .if_match = o->etag,
        .offset = p->offset,
        .len = p->len,
        .priority = HTTP_DEMAND,
        .on_room = on_room,
        .on_landed = on_landed,
        .done = on_done,
    };
    o->next_offset += p->len;
    o->parts_in_flight++;
    p->fetch->busy++;
    p->fetch->bytes_in_flight += p->len;
    s3_get_start(p->fetch->session->client, &p->get);
}

// The object whose next part is to be asked for, opened; NULL when there is none left.
static struct fetch_object *next_to_ask(struct fetch *f)
{
    while (f->asking < f->n_objects) {
        struct fetch_object *o = &f->objects[f->asking];
        static const char no_text[S3_ERROR_TEXT];

        if (!o->opened && !f->stopped) {
            int rc = f->config->open(f->config->arg, o);

            o->opened = true;
            o->next_offset = o->due_offset = o->offset;
            if (rc < 0)
                object_fail(f, o, rc, no_text);
        }
        if (!o->error && !f->stopped && o->next_offset < o->size)
            return o;
        object_end_if_over(f, o);
        f->asking++;
    }
    return NULL;
}

static void advance(struct fetch *f)
{
    struct fetch_object *o = NULL;

    for (unsigned i = 0; i < f->config->parallel; i++) {
        if (f->parts[i].object)
            continue;
        o = next_to_ask(f);
        if (!o || (f->busy && f->bytes_in_flight + FETCH_PART > MAX_BYTES_IN_FLIGHT))
            break;
        part_start(&f->parts[i], o);
    }
    // empty objects and those after an error end without a part
    if (f->config->ordered)
        hand_over_due(f);
    if (!f->busy && f->asking == f->n_objects)
        session_wait_done(&f->wait, f->error, NULL);
}

static void start_on_loop(void *arg)
{
    advance(arg);
}

int fetch_run(struct session *s, const struct fetch_config *c, struct fetch_object *objects,
              size_t n)
{
    struct fetch f = {.session = s, .config = c, .objects = objects, .n_objects = n};
    int rc;

    if (s->daemon)
        return daemon_fetch_run(s, c, objects, n);
    f.parts = xcalloc(c->parallel, sizeof(*f.parts));
    for (unsigned i = 0; i < c->parallel; i++)
        f.parts[i].fetch = &f;
    session_wait_init(&f.wait);
    session_call(s, start_on_loop, &f);
    rc = session_wait_for(&f.wait);
    for (unsigned i = 0; i < c->parallel; i++)
        free(f.parts[i].buffer);
    free(f.parts);
    return rc;
}
