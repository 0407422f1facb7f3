// SPDX-License-Identifier: Apache-2.0
// Batch(connection, target, max): reads and fetches into one target, numbered by the caller; not
// for several threads at a time. close() cancels what is under way and waits for its end. A device
// that does not give the memory back keeps it: batch, target and connection then stay for as long
// as the process does.
#include "core.h"

#include <stdlib.h>
#include <time.h>

#define END_WAIT_S 5

// An operation under way: its cookie.
struct op {
    Py_ssize_t number;
    struct op *next_idle;
};

struct batch {
    PyObject_HEAD PyObject *connection;
    struct os2g_batch *b; // NULL: closed
    struct target to;
    unsigned max, under_way;
    PyObject *handles; // a list, by number; NULL: fetches
    struct op *ops, *idle;
    struct os2g_io *io;
    struct os2g_io_event *events;
};

PyTypeObject *batch_type;

static struct batch *of(PyObject *self)
{
    return (struct batch *)self;
}

// --- its life ---

static void give_op(struct batch *self, struct op *op)
{
    op->next_idle = self->idle;
    self->idle = op;
}

static PyObject *batch_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    PyObject *connection, *target;
    struct batch *self;
    struct waiting w;
    unsigned max;
    int rc;

    if (!PyArg_ParseTuple(args, "O!OI", connection_type, &connection, &target, &max))
        return NULL;
    self = (struct batch *)PyType_GenericAlloc(type, 0);
    if (!self)
        return NULL;
    Py_INCREF(connection);
    self->connection = connection;
    self->max = max;
    self->ops = calloc(max, sizeof(*self->ops));
    self->io = calloc(max, sizeof(*self->io));
    self->events = calloc(max, sizeof(*self->events));
    for (unsigned i = 0; self->ops && i < max; i++)
        give_op(self, &self->ops[i]);
    if (!self->ops || !self->io || !self->events) {
        PyErr_NoMemory();
    } else if (target_get(&self->to, target) == 0) {
        wait_begin_deaf(&w);
        rc = os2g_batch_new(connection_of(connection), &self->b, max);
        wait_end(&w);
        if (rc == 0)
            return (PyObject *)self;
        raise_last(rc, NULL);
    }
    Py_DECREF(self);
    return NULL;
}

static void ended(struct batch *self, const struct os2g_io_event *events, int n)
{
    for (int i = 0; i < n; i++) {
        struct op *op = events[i].cookie;

        if (self->handles)
            handle_drop(PyList_GetItem(self->handles, op->number));
        give_op(self, op);
    }
    self->under_way -= (unsigned)n;
}

// Whether nothing can land any more.
static bool end(struct batch *self)
{
    const struct timespec timeout = {.tv_sec = END_WAIT_S};
    struct waiting w;
    int n = 0;

    wait_begin_deaf(&w);
    if (self->under_way)
        n = os2g_batch_cancel(self->b);
    if (self->under_way && n == 0)
        n = os2g_batch_status(self->b, self->under_way, self->max, self->events, &timeout);
    wait_end(&w);
    if (n < 0)
        return true; // of the process before fork(): nothing is under way here
    ended(self, self->events, n);
    return self->under_way == 0;
}

static void drop(struct batch *self)
{
    struct waiting w;

    if (!self->b)
        return;
    if (!end(self)) {
        // the device's for good
        Py_INCREF(self->connection);
        self->to = (struct target){0};
        self->handles = NULL;
        self->b = NULL;
        return;
    }
    wait_begin_deaf(&w);
    os2g_batch_free(self->b);
    wait_end(&w);
    self->b = NULL;
    target_put(&self->to);
    Py_CLEAR(self->handles);
}

static void batch_dealloc(PyObject *self)
{
    PyObject *type, *value, *trace;

    PyErr_Fetch(&type, &value, &trace);
    drop(of(self));
    target_put(&of(self)->to);
    PyErr_Restore(type, value, trace);
    free(of(self)->ops);
    free(of(self)->io);
    free(of(self)->events);
    Py_DECREF(of(self)->connection);
    object_free(self);
}

static PyObject *batch_close(PyObject *self, PyObject *none)
{
    drop(of(self));
    Py_RETURN_NONE;
}

// --- submitting ---

static int number(PyObject *list, Py_ssize_t i, unsigned long long *ret)
{
    PyObject *item = PyList_GetItem(list, i);

    *ret = item ? PyLong_AsUnsignedLongLong(item) : 0;
    return PyErr_Occurred() ? -1 : 0;
}

static int fill(struct batch *self, struct os2g_io *io, Py_ssize_t i, PyObject *offsets,
                PyObject *sizes)
{
    unsigned long long offset, size;

    if (number(offsets, i, &offset) < 0 || number(sizes, i, &size) < 0 ||
        !target_holds(&self->to, offset, size))
        return -1;
    *io = (struct os2g_io){
        .buffer_base = self->to.base, .buffer_offset = (off_t)offset, .size = size};
    return 0;
}

static int fill_fetch(struct os2g_io *io, PyObject *key)
{
    Py_ssize_t len;
    char *data;

    if (!key || PyBytes_AsStringAndSize(key, &data, &len) < 0)
        return -1;
    io->kind = OS2G_IO_FETCH;
    io->key = data;
    io->key_len = (size_t)len;
    return 0;
}

// The first n of io, numbered from from.
static int submit(struct batch *self, Py_ssize_t from, unsigned n)
{
    struct waiting w;
    int rc;

    for (unsigned i = 0; i < n; i++) {
        struct op *op = self->idle;

        self->idle = op->next_idle;
        op->number = from + i;
        self->io[i].cookie = op;
    }
    wait_begin_deaf(&w);
    rc = os2g_batch_submit(self->b, self->io, n);
    wait_end(&w);
    if (rc == 0) {
        self->under_way += n;
        return 0;
    }
    raise_last(rc, NULL);
    for (unsigned i = 0; i < n; i++)
        give_op(self, self->io[i].cookie);
    return -1;
}

static bool may_submit(const struct batch *self, Py_ssize_t from, Py_ssize_t to)
{
    if (self->b && from <= to && to - from <= (Py_ssize_t)(self->max - self->under_way))
        return true;
    PyErr_SetString(PyExc_ValueError, "a batch has no room for that");
    return false;
}

static PyObject *batch_fetch(PyObject *self, PyObject *args)
{
    PyObject *keys, *offsets, *sizes;
    Py_ssize_t from, to;

    if (!PyArg_ParseTuple(args, "O!O!O!nn", &PyList_Type, &keys, &PyList_Type, &offsets,
                          &PyList_Type, &sizes, &from, &to) ||
        !may_submit(of(self), from, to))
        return NULL;
    for (Py_ssize_t i = from; i < to; i++) {
        struct os2g_io *io = &of(self)->io[i - from];

        if (fill(of(self), io, i, offsets, sizes) < 0 ||
            fill_fetch(io, PyList_GetItem(keys, i)) < 0)
            return NULL;
    }
    if (submit(of(self), from, (unsigned)(to - from)) < 0)
        return NULL;
    Py_RETURN_NONE;
}

static void drop_handles(PyObject *handles, Py_ssize_t from, Py_ssize_t to)
{
    for (Py_ssize_t i = from; i < to; i++)
        handle_drop(PyList_GetItem(handles, i));
}

static int fill_read(struct os2g_io *io, PyObject *handles, PyObject *starts, Py_ssize_t i)
{
    PyObject *handle = PyList_GetItem(handles, i);
    unsigned long long start;

    if (!handle || number(starts, i, &start) < 0)
        return -1;
    if (!PyObject_TypeCheck(handle, handle_type)) {
        PyErr_SetString(PyExc_TypeError, "a read wants a handle");
        return -1;
    }
    io->file = handle_hold(handle);
    io->file_offset = (off_t)start;
    return io->file ? 0 : -1;
}

static PyObject *batch_read(PyObject *self, PyObject *args)
{
    PyObject *handles, *starts, *offsets, *sizes;
    Py_ssize_t from, to, i;

    if (!PyArg_ParseTuple(args, "O!O!O!O!nn", &PyList_Type, &handles, &PyList_Type, &starts,
                          &PyList_Type, &offsets, &PyList_Type, &sizes, &from, &to) ||
        !may_submit(of(self), from, to))
        return NULL;
    Py_INCREF(handles);
    Py_XDECREF(of(self)->handles);
    of(self)->handles = handles;
    for (i = from; i < to; i++) {
        struct os2g_io *io = &of(self)->io[i - from];

        if (fill(of(self), io, i, offsets, sizes) < 0 || fill_read(io, handles, starts, i) < 0)
            break;
    }
    if (i == to && submit(of(self), from, (unsigned)(to - from)) == 0)
        Py_RETURN_NONE;
    drop_handles(handles, from, i);
    return NULL;
}

// --- reporting ---

// Waits for min of them, at most so many seconds; how many have ended, or -1 with an exception.
static int wait_for(struct batch *self, unsigned min, double seconds)
{
    const time_t whole_s = (time_t)seconds;
    const struct timespec timeout = {whole_s, (long)((seconds - (double)whole_s) * 1e9)};
    struct waiting w;
    bool whole;
    int n;

    if (!self->b) {
        PyErr_SetString(PyExc_ValueError, "a batch that is closed");
        return -1;
    }
    wait_begin(&w);
    n = os2g_batch_status(self->b, min, self->max, self->events, &timeout);
    whole = wait_end(&w);
    if (n > 0)
        ended(self, self->events, n);
    if (whole && n < 0)
        raise_last(n, NULL);
    return whole && n >= 0 ? n : -1;
}

static int report(PyObject *list, const struct os2g_io_event *event)
{
    const struct op *op = event->cookie;
    PyObject *item = Py_BuildValue("(nLK)", op->number, (long long)event->result,
                                   (unsigned long long)event->object_size);
    int rc = item ? PyList_Append(list, item) : -1;

    Py_XDECREF(item);
    return rc;
}

static PyObject *batch_wait(PyObject *self, PyObject *args)
{
    PyObject *list;
    double seconds;
    unsigned min;
    int n;

    if (!PyArg_ParseTuple(args, "Id", &min, &seconds))
        return NULL;
    n = wait_for(of(self), min, seconds);
    list = n < 0 ? NULL : PyList_New(0);
    for (int i = 0; list && i < n; i++)
        if (report(list, &of(self)->events[i]) < 0)
            Py_CLEAR(list);
    return list;
}

static int note_size(PyObject *sizes, const struct os2g_io_event *event)
{
    const struct op *op = event->cookie;
    PyObject *size = PyLong_FromLongLong(event->result);

    return size ? PyList_SetItem(sizes, op->number, size) : -1;
}

static PyObject *batch_gather(PyObject *self, PyObject *args)
{
    PyObject *sizes, *failed;
    double seconds;
    unsigned min;
    int n, rc = 0;

    if (!PyArg_ParseTuple(args, "O!Id", &PyList_Type, &sizes, &min, &seconds))
        return NULL;
    n = wait_for(of(self), min, seconds);
    failed = n < 0 ? NULL : PyList_New(0);
    for (int i = 0; failed && rc == 0 && i < n; i++) {
        const struct os2g_io_event *event = &of(self)->events[i];

        rc = event->result < 0 ? report(failed, event) : note_size(sizes, event);
    }
    if (failed && rc == 0)
        return Py_BuildValue("(iN)", n, failed);
    Py_XDECREF(failed);
    return NULL;
}

static PyMethodDef methods[] = {
    {"fetch", batch_fetch, METH_VARARGS, "fetch(keys, offsets, rooms, from, to): submits these"},
    {"read", batch_read, METH_VARARGS,
     "read(handles, starts, offsets, sizes, from, to): submits these"},
    {"wait", batch_wait, METH_VARARGS, "wait(min, seconds) -> [(number, result, object size)]"},
    {"gather", batch_gather, METH_VARARGS,
     "gather(sizes, min, seconds) -> (n, [(number, result, object size)]): wait, but what has\n"
     "landed is noted in sizes, and only the others are told of"},
    {"close", batch_close, METH_NOARGS, NULL},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot slots[] = {
    {Py_tp_new, batch_new},
    {Py_tp_dealloc, batch_dealloc},
    {Py_tp_methods, methods},
    {0, NULL},
};

static PyType_Spec spec = {
    .name = "os2g._core.Batch",
    .basicsize = sizeof(struct batch),
    .flags = Py_TPFLAGS_DEFAULT,
    .slots = slots,
};

int batch_init(PyObject *module)
{
    return add_type(module, &spec, &batch_type);
}
