// SPDX-License-Identifier: Apache-2.0
#include "core.h"

// Of this thread, in a call that waits. A signal's handler may make another such call.
static _Thread_local struct waiting *current;

static void begin(struct waiting *w, bool deaf)
{
    w->interrupted = false;
    w->deaf = deaf;
    w->outer = current;
    current = w;
    w->state = PyEval_SaveThread();
}

void wait_begin(struct waiting *w)
{
    begin(w, false);
}

void wait_begin_deaf(struct waiting *w)
{
    begin(w, true);
}

bool wait_end(struct waiting *w)
{
    PyEval_RestoreThread(w->state);
    current = w->outer;
    return !w->interrupted;
}

bool wait_interrupted(void *arg)
{
    struct waiting *w = current;

    if (!w || w->deaf || w->interrupted)
        return w && w->interrupted;
    PyEval_RestoreThread(w->state);
    w->interrupted = PyErr_CheckSignals() < 0; // does nothing but in the main thread
    w->state = PyEval_SaveThread();
    return w->interrupted;
}
