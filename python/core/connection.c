// SPDX-License-Identifier: Apache-2.0
// Connection(where, depth, timeout_ms, start, program, options): a struct os2g.
#include "connect.h"
#include "core.h"
#include "events.h"
#include "scratch.h"

#include <errno.h>
#include <stdlib.h>

struct connection {
    PyObject_HEAD struct os2g *c;
    struct events *events;
    struct scratches scratches;
};

PyTypeObject *connection_type;

static struct connection *of(PyObject *self)
{
    return (struct connection *)self;
}

struct os2g *connection_of(PyObject *self)
{
    return of(self)->c;
}

// --- its life ---

// The strings stay options'.
static const char **strings(PyObject *options)
{
    Py_ssize_t n = PyTuple_Size(options);
    const char **all = calloc((size_t)n + 1, sizeof(*all));

    if (!all) {
        PyErr_NoMemory();
        return NULL;
    }
    for (Py_ssize_t i = 0; i < n; i++) {
        all[i] = PyBytes_AsString(PyTuple_GetItem(options, i));
        if (!all[i]) {
            free(all);
            return NULL;
        }
    }
    return all;
}

static PyObject *connection_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    struct os2g_options o = {.size = sizeof(o), .interrupted = wait_interrupted};
    PyObject *options, *where;
    struct connection *self;
    const char **all = NULL;
    const char *program;
    int start;

    if (!PyArg_ParseTuple(args, "SIIpzO!", &where, &o.depth, &o.timeout_ms, &start, &program,
                          &PyTuple_Type, &options))
        return NULL;
    all = strings(options);
    self = all ? (struct connection *)PyType_GenericAlloc(type, 0) : NULL;
    if (self) {
        o.no_start = !start;
        o.program = program;
        o.export_options = all;
        if (connect_wait(&self->c, &self->events, where, &o) < 0)
            Py_CLEAR(self);
    }
    free(all);
    return (PyObject *)self;
}

static void connection_dealloc(PyObject *self)
{
    PyObject *type, *value, *trace;
    struct waiting w;

    PyErr_Fetch(&type, &value, &trace);
    scratches_free(&of(self)->scratches);
    wait_begin_deaf(&w);
    os2g_close(of(self)->c);
    wait_end(&w);
    PyErr_Restore(type, value, trace);
    events_free(of(self)->events);
    object_free(self);
}

// --- paths ---

static PyObject *connection_open(PyObject *self, PyObject *path)
{
    PyObject *bytes = path_bytes(path), *handle = NULL;
    struct os2g_file *f;
    struct waiting w;
    int rc;

    if (!bytes)
        return NULL;
    wait_begin(&w);
    rc = os2g_open(of(self)->c, PyBytes_AsString(bytes), &f);
    if (!wait_end(&w)) {
        if (rc == 0)
            os2g_file_close(f);
    } else if (rc < 0) {
        raise_last(rc, path);
    } else {
        handle = handle_new(self, path, f);
    }
    Py_DECREF(bytes);
    return handle;
}

static PyObject *connection_stat(PyObject *self, PyObject *path)
{
    PyObject *bytes = path_bytes(path), *result = NULL;
    struct os2g_stat st;
    struct waiting w;
    int rc;

    if (!bytes)
        return NULL;
    wait_begin(&w);
    rc = os2g_stat(of(self)->c, PyBytes_AsString(bytes), &st);
    if (wait_end(&w))
        result = rc < 0 ? raise_last(rc, path)
                        : Py_BuildValue("(KLNN)", (unsigned long long)st.size,
                                        (long long)st.mtime_s, PyBool_FromLong(st.directory),
                                        key_str(st.etag, strlen(st.etag)));
    Py_DECREF(bytes);
    return result;
}

// Names gathered without the GIL.
struct names {
    struct name {
        char *name;
        uint64_t size;
        int64_t mtime_s;
        bool directory;
    } * all;
    size_t n, room;
};

static int add_name(void *arg, const char *name, const struct os2g_stat *st)
{
    struct names *l = arg;

    if (l->n == l->room) {
        size_t room = l->room ? 2 * l->room : 64;
        struct name *grown = realloc(l->all, room * sizeof(*grown));

        if (!grown)
            return 1;
        l->all = grown;
        l->room = room;
    }
    l->all[l->n] = (struct name){strdup(name), st->size, st->mtime_s, st->directory};
    return l->all[l->n++].name ? 0 : 1;
}

static PyObject *list_of(const struct names *l)
{
    PyObject *list = PyList_New((Py_ssize_t)l->n);

    for (size_t i = 0; list && i < l->n; i++) {
        const struct name *n = &l->all[i];
        PyObject *item =
            Py_BuildValue("(NKLN)", key_str(n->name, strlen(n->name)), (unsigned long long)n->size,
                          (long long)n->mtime_s, PyBool_FromLong(n->directory));

        if (!item || PyList_SetItem(list, (Py_ssize_t)i, item) < 0)
            Py_CLEAR(list);
    }
    return list;
}

static PyObject *connection_list(PyObject *self, PyObject *path)
{
    PyObject *bytes = path_bytes(path), *list = NULL;
    struct names names = {0};
    struct waiting w;
    int rc;

    if (!bytes)
        return NULL;
    wait_begin(&w);
    rc = os2g_list(of(self)->c, PyBytes_AsString(bytes), add_name, &names);
    if (wait_end(&w)) {
        if (rc < 0)
            raise_last(rc, path);
        else
            list = rc == 0 ? list_of(&names) : PyErr_NoMemory();
    }
    for (size_t i = 0; i < names.n; i++)
        free(names.all[i].name);
    free(names.all);
    Py_DECREF(bytes);
    return list;
}

// --- whole objects ---

// -1 with an exception, 0, or -EFBIG.
static int fetch(PyObject *self, PyObject *key, void *to, size_t size, uint64_t *ret_size)
{
    PyObject *bytes = key_bytes(key);
    struct waiting w;
    int rc;

    if (!bytes)
        return -1;
    wait_begin(&w);
    rc = os2g_fetch_key(of(self)->c, PyBytes_AsString(bytes), (size_t)PyBytes_Size(bytes), to, size,
                        0, ret_size);
    if (!wait_end(&w)) {
        rc = -1;
    } else if (rc < 0 && rc != -EFBIG) {
        raise_last(rc, key);
        rc = -1;
    }
    Py_DECREF(bytes);
    return rc;
}

// fetch(key) -> bytes, or how large it is if that is too large
static PyObject *connection_fetch(PyObject *self, PyObject *key)
{
    struct scratch *s = scratch_take(&of(self)->scratches, of(self)->c);
    PyObject *result = NULL;
    uint64_t size;
    int rc;

    if (!s)
        return NULL;
    rc = fetch(self, key, os2g_buffer_base(s->b), SCRATCH_SIZE, &size);
    if (rc == 0)
        result = PyBytes_FromStringAndSize(os2g_buffer_base(s->b), (Py_ssize_t)size);
    else if (rc == -EFBIG)
        result = PyLong_FromUnsignedLongLong(size);
    scratch_give(&of(self)->scratches, s, rc != -1);
    return result;
}

// fetch_sized(key, size) -> bytes, or how large it is if it has another size
static PyObject *connection_fetch_sized(PyObject *self, PyObject *args)
{
    PyObject *key, *bytes;
    Py_ssize_t size;
    uint64_t now;
    int rc;

    if (!PyArg_ParseTuple(args, "On", &key, &size))
        return NULL;
    bytes = PyBytes_FromStringAndSize(NULL, size);
    if (!bytes)
        return NULL;
    rc = fetch(self, key, PyBytes_AsString(bytes), (size_t)size, &now);
    if (rc == 0 && now == (uint64_t)size)
        return bytes;
    Py_DECREF(bytes);
    return rc == -1 ? NULL : PyLong_FromUnsignedLongLong(now);
}

// fetch_into(key, target, at, room) -> (landed, size)
static PyObject *connection_fetch_into(PyObject *self, PyObject *args)
{
    unsigned long long at, room;
    PyObject *key, *object;
    struct target to;
    uint64_t size = 0;
    int rc = -1;

    if (!PyArg_ParseTuple(args, "OOKK", &key, &object, &at, &room) || target_get(&to, object) < 0)
        return NULL;
    if (target_holds(&to, at, room))
        rc = fetch(self, key, (char *)to.base + at, room, &size);
    target_put(&to);
    return rc == -1 ? NULL
                    : Py_BuildValue("(NK)", PyBool_FromLong(rc == 0), (unsigned long long)size);
}

// --- what is known of it ---

static PyObject *connection_stats(PyObject *self, PyObject *none)
{
    struct os2g_stats s = {.size = sizeof(s)};
    struct waiting w;
    int rc;

    wait_begin(&w);
    rc = os2g_stats_read(of(self)->c, &s);
    if (!wait_end(&w))
        return NULL;
    if (rc < 0)
        return raise_last(rc, NULL);
    return Py_BuildValue("(KKKKKKss)", (unsigned long long)s.requests, (unsigned long long)s.bytes,
                         (unsigned long long)s.errors, (unsigned long long)s.bounced_bytes,
                         (unsigned long long)s.reconnects, (unsigned long long)s.cuda_bytes, s.way,
                         s.release);
}

static PyObject *connection_events(PyObject *self, PyObject *none)
{
    return events_take(of(self)->events);
}

static PyMethodDef methods[] = {
    {"open", connection_open, METH_O, "open(path) -> Handle"},
    {"stat", connection_stat, METH_O, "stat(path) -> (size, mtime, directory, etag)"},
    {"list", connection_list, METH_O, "list(path) -> [(name, size, mtime, directory)]"},
    {"fetch", connection_fetch, METH_O, "fetch(key) -> bytes, or the size of a large one"},
    {"fetch_sized", connection_fetch_sized, METH_VARARGS,
     "fetch_sized(key, size) -> bytes, or its size if that is another"},
    {"fetch_into", connection_fetch_into, METH_VARARGS,
     "fetch_into(key, target, at, room) -> (landed, size)"},
    {"stats", connection_stats, METH_NOARGS, NULL},
    {"events", connection_events, METH_NOARGS, "events() -> [(kind, text)] since the last call"},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot slots[] = {
    {Py_tp_new, connection_new},
    {Py_tp_dealloc, connection_dealloc},
    {Py_tp_methods, methods},
    {0, NULL},
};

static PyType_Spec spec = {
    .name = "os2g._core.Connection",
    .basicsize = sizeof(struct connection),
    .flags = Py_TPFLAGS_DEFAULT,
    .slots = slots,
};

int connection_init(PyObject *module)
{
    return add_type(module, &spec, &connection_type);
}
