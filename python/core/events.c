// SPDX-License-Identifier: Apache-2.0
#include "events.h"

#include <stdatomic.h>
#include <stdlib.h>

#define KEPT 256 // an event that nobody takes is no reason to grow

struct event {
    struct event *next;
    enum os2g_event kind;
    char text[];
};

struct events {
    _Atomic(struct event *) newest;
    atomic_uint n;
};

struct events *events_new(void)
{
    return calloc(1, sizeof(struct events));
}

static void free_all(struct event *e)
{
    while (e) {
        struct event *next = e->next;

        free(e);
        e = next;
    }
}

void events_free(struct events *e)
{
    if (!e)
        return;
    free_all(atomic_load(&e->newest));
    free(e);
}

void events_add(void *arg, enum os2g_event kind, const char *text)
{
    struct events *e = arg;
    size_t len = strlen(text) + 1;
    struct event *new = atomic_fetch_add(&e->n, 1) < KEPT ? malloc(sizeof(*new) + len) : NULL;

    if (!new) {
        atomic_fetch_sub(&e->n, 1);
        return;
    }
    new->kind = kind;
    memcpy(new->text, text, len);
    new->next = atomic_load(&e->newest);
    while (!atomic_compare_exchange_weak(&e->newest, &new->next, new))
        ;
}

PyObject *events_take(struct events *e)
{
    static const char *const names[] = {"lost", "reconnected", "fallback"};
    struct event *all = atomic_exchange(&e->newest, NULL), *oldest = NULL;
    PyObject *list = PyList_New(0);

    while (all) {
        struct event *next = all->next;

        all->next = oldest;
        oldest = all;
        all = next;
    }
    for (struct event *it = oldest; it; it = it->next) {
        PyObject *item =
            list ? Py_BuildValue("(sN)", names[it->kind], key_str(it->text, strlen(it->text)))
                 : NULL;

        atomic_fetch_sub(&e->n, 1);
        if (list && (!item || PyList_Append(list, item) < 0))
            Py_CLEAR(list);
        Py_XDECREF(item);
    }
    free_all(oldest);
    return list;
}
