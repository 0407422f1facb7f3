// SPDX-License-Identifier: Apache-2.0
#include "scratch.h"

#include <stdlib.h>
#include <unistd.h>

#define IDLE_MAX 4

static void scratch_free(struct scratch *s)
{
    struct waiting w;

    wait_begin_deaf(&w);
    os2g_buffer_free(s->b);
    wait_end(&w);
    free(s);
}

static struct scratch *pop(struct scratches *all)
{
    struct scratch *s = all->idle;

    if (s) {
        all->idle = s->next;
        all->n--;
    }
    return s;
}

static struct scratch *scratch_new(struct os2g *c)
{
    struct scratch *s = calloc(1, sizeof(*s));
    struct waiting w;
    bool whole;
    int rc;

    if (!s) {
        PyErr_NoMemory();
        return NULL;
    }
    s->pid = getpid();
    wait_begin(&w);
    rc = os2g_buffer_alloc(c, &s->b, SCRATCH_SIZE, OS2G_MEMORY_HOST, 0);
    whole = wait_end(&w);
    if (whole && rc == 0)
        return s;
    if (whole)
        raise_last(rc, NULL);
    if (rc == 0)
        scratch_free(s);
    else
        free(s);
    return NULL;
}

struct scratch *scratch_take(struct scratches *all, struct os2g *c)
{
    struct scratch *s;

    while ((s = pop(all)) && s->pid != getpid())
        scratch_free(s);
    return s ? s : scratch_new(c);
}

void scratch_give(struct scratches *all, struct scratch *s, bool clean)
{
    if (!clean || all->n >= IDLE_MAX) {
        PyObject *type, *value, *trace;

        PyErr_Fetch(&type, &value, &trace);
        scratch_free(s);
        PyErr_Restore(type, value, trace);
        return;
    }
    s->next = all->idle;
    all->idle = s;
    all->n++;
}

void scratches_free(struct scratches *all)
{
    struct scratch *s;

    while ((s = pop(all)))
        scratch_free(s);
}
