// SPDX-License-Identifier: Apache-2.0
// What libos2g's event function is told, kept until Python asks. The function may be called while
// locks are held that a fork() waits for, and fork() holds the GIL: it takes neither the GIL nor a
// lock.
#pragma once

#include "core.h"

struct events;

struct events *events_new(void); // NULL: no memory
void events_free(struct events *e);
void events_add(void *arg, enum os2g_event event, const char *text); // os2g_options.event
PyObject *events_take(struct events *e);                             // [(kind, text)], oldest first
