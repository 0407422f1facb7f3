// SPDX-License-Identifier: Apache-2.0
// os2g._core: libos2g's calls as Python objects, for the package's own modules (os2g/*.py), which
// make of them what people use. Uses the public header of libos2g and Python's limited API of 3.9.
//
//   connection.c   Connection: connecting, paths, events, figures
//   memory.c       Memory: a buffer, with the buffer protocol; dlpack.c
//   handle.c       Handle: an open file
//   batch.c        Batch: many reads and fetches
//   plan.c         Plan
//   connect.c, events.c, scratch.c   parts of Connection
//   target.c       what bytes can land in: a Memory, a writable buffer, or (address, size, owner)
//   wait.c         calls that wait: without the GIL, ended by signals
//   error.c        OSError
//
// Everything made from a Connection holds it; it is closed when the last of them has gone.
#pragma once

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <os2g/os2g.h>
#include <stdbool.h>

#include "buffer_abi.h"

extern PyTypeObject *connection_type, *memory_type, *handle_type, *batch_type, *plan_type;

int connection_init(PyObject *module);
int memory_init(PyObject *module);
int handle_init(PyObject *module);
int batch_init(PyObject *module);
int plan_init(PyObject *module);

// --- objects; a new reference, or NULL with an exception ---

// Made by Connection.open alone. Owns f, also when it fails.
PyObject *handle_new(PyObject *connection, PyObject *path, struct os2g_file *f);
// Between these two it is not closed. NULL: it is, a ValueError has been set.
struct os2g_file *handle_hold(PyObject *handle);
void handle_drop(PyObject *handle);

struct os2g *connection_of(PyObject *connection);

// Makes type and adds it to module; -1 with an exception.
int add_type(PyObject *module, PyType_Spec *spec, PyTypeObject **ret);
// The end of a tp_dealloc.
void object_free(PyObject *self);
// A tp_new for what only this module makes.
PyObject *object_refuse_new(PyTypeObject *type, PyObject *args, PyObject *kwargs);

// --- calls that wait (wait.c) ---

struct waiting {
    PyThreadState *state;
    bool interrupted; // with the exception of a signal's handler
    bool deaf;        // signals are for later
    struct waiting *outer;
};

// Between these two the GIL is not held, and what libos2g waits for ends with -EINTR when a
// signal's handler raises. False: it has; that exception is set.
void wait_begin(struct waiting *w);
void wait_begin_deaf(struct waiting *w); // for ends that are to be waited for in any case
bool wait_end(struct waiting *w);
// As os2g_options.interrupted.
bool wait_interrupted(void *arg);

// --- what bytes land in (target.c) ---

struct target {
    void *base;
    size_t size;
    PyObject *owner; // a Memory, or another object that keeps the memory
    Py_buffer view;
    bool has_view;
};

// Of a Memory, a writable object with the buffer protocol, or a tuple (address, size, owner). It
// stays where it is until target_put. -1 with an exception.
int target_get(struct target *t, PyObject *object);
void target_put(struct target *t);
// Whether size bytes at offset are in t; else an exception is set.
bool target_holds(const struct target *t, unsigned long long offset, unsigned long long size);

// A user of its memory, as a view is one: it is not freed before the user has gone.
int memory_hold(PyObject *memory, void **ret_base, size_t *ret_size);
void memory_drop(PyObject *memory);
PyObject *memory_dlpack(PyObject *memory, PyObject *args); // dlpack.c
int memory_device(PyObject *memory, int *ret_type, int *ret_id);

// --- names ---

// bytes of a str (UTF-8, surrogates escaped) or bytes; NULL with an exception.
PyObject *key_bytes(PyObject *key);
// The same, for a path or a plan: without a zero byte.
PyObject *path_bytes(PyObject *path);
PyObject *key_str(const char *name, size_t len);

// --- errors (error.c) ---

// OSError of error (-errno) with libos2g's sentence of this thread, or text; name: its filename, or
// NULL. Always NULL.
PyObject *raise_last(int error, PyObject *name);
PyObject *raise_error(int error, const char *text, PyObject *name);
// The exception object alone: an operation of a batch, for which there is no sentence.
PyObject *make_error(PyObject *module, PyObject *args);
