// SPDX-License-Identifier: Apache-2.0
#include "connect.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>

#define LOOK_NS 50000000L

// The caller's until the thread has begun; then of whichever of the two is the last.
struct connecting {
    struct os2g_options options;
    char *where, *program;
    char **export_options;
    struct events *events;

    pthread_mutex_t lock;
    pthread_cond_t ended;
    bool done, abandoned;

    struct os2g *c;
    int rc;
    char sentence[512];
};

static void connecting_free(struct connecting *k)
{
    for (char **o = k->export_options; o && *o; o++)
        free(*o);
    free(k->export_options);
    free(k->where);
    free(k->program);
    events_free(k->events);
    pthread_cond_destroy(&k->ended);
    pthread_mutex_destroy(&k->lock);
    free(k);
}

static int copy_options(struct connecting *k, const struct os2g_options *o)
{
    size_t n = 0;

    while (o->export_options[n])
        n++;
    k->export_options = calloc(n + 1, sizeof(char *));
    if (!k->export_options || !k->where || !k->events ||
        (o->program && !(k->program = strdup(o->program))))
        return -1;
    for (size_t i = 0; i < n; i++) {
        k->export_options[i] = strdup(o->export_options[i]);
        if (!k->export_options[i])
            return -1;
    }
    k->options = *o;
    k->options.program = k->program;
    k->options.export_options = (const char *const *)k->export_options;
    k->options.event = events_add;
    k->options.arg = k->events;
    return 0;
}

static struct connecting *connecting_new(PyObject *where, const struct os2g_options *o)
{
    struct connecting *k = calloc(1, sizeof(*k));
    pthread_condattr_t attr;

    if (!k)
        return NULL;
    pthread_mutex_init(&k->lock, NULL);
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&k->ended, &attr);
    pthread_condattr_destroy(&attr);
    k->events = events_new();
    k->where = strdup(PyBytes_AsString(where));
    if (copy_options(k, o) == 0)
        return k;
    connecting_free(k);
    return NULL;
}

static void *run(void *arg)
{
    struct connecting *k = arg;
    bool abandoned;

    k->rc = os2g_connect(&k->c, k->where, &k->options);
    if (k->rc < 0)
        snprintf(k->sentence, sizeof(k->sentence), "%s", os2g_last_error());
    pthread_mutex_lock(&k->lock);
    k->done = true;
    abandoned = k->abandoned;
    pthread_cond_signal(&k->ended);
    pthread_mutex_unlock(&k->lock);
    if (abandoned) {
        if (k->rc == 0)
            os2g_close(k->c);
        connecting_free(k);
    }
    return NULL;
}

// Signals are the program's threads'.
static int start(struct connecting *k)
{
    pthread_attr_t attr;
    sigset_t all, before;
    pthread_t thread;
    int rc;

    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    pthread_attr_init(&attr);
    pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
    rc = pthread_create(&thread, &attr, run, k);
    pthread_attr_destroy(&attr);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return -rc;
}

// A while, or until it is done.
static bool look(struct connecting *k)
{
    struct timespec until;
    bool done;

    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_nsec += LOOK_NS;
    if (until.tv_nsec >= 1000000000L) {
        until.tv_nsec -= 1000000000L;
        until.tv_sec++;
    }
    pthread_mutex_lock(&k->lock);
    if (!k->done)
        pthread_cond_timedwait(&k->ended, &k->lock, &until);
    done = k->done;
    pthread_mutex_unlock(&k->lock);
    return done;
}

// False: it was done by then.
static bool abandon(struct connecting *k)
{
    bool done;

    pthread_mutex_lock(&k->lock);
    k->abandoned = true;
    done = k->done;
    pthread_mutex_unlock(&k->lock);
    return !done;
}

int connect_wait(struct os2g **ret, struct events **ret_events, PyObject *where,
                 const struct os2g_options *o)
{
    struct connecting *k = connecting_new(where, o);
    bool interrupted = false, done = false;
    PyObject *name;
    int rc;

    if (!k) {
        PyErr_NoMemory();
        return -1;
    }
    rc = start(k);
    if (rc < 0) {
        connecting_free(k);
        raise_error(rc, strerror(-rc), NULL);
        return -1;
    }
    while (!done && !interrupted) {
        Py_BEGIN_ALLOW_THREADS done = look(k);
        Py_END_ALLOW_THREADS interrupted = PyErr_CheckSignals() < 0;
    }
    if (interrupted && abandon(k))
        return -1;
    if (!interrupted && k->rc == 0) {
        *ret = k->c;
        *ret_events = k->events;
        k->events = NULL;
    } else if (k->rc == 0) {
        Py_BEGIN_ALLOW_THREADS os2g_close(k->c);
        Py_END_ALLOW_THREADS
    } else if (!interrupted) {
        name = key_str(PyBytes_AsString(where), (size_t)PyBytes_Size(where));
        raise_error(k->rc, k->sentence, name);
        Py_XDECREF(name);
    }
    rc = interrupted ? -1 : k->rc;
    connecting_free(k);
    return rc;
}
