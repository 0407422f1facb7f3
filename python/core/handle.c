// SPDX-License-Identifier: Apache-2.0
// Handle: an object version, opened. close() takes effect when no read is under way any more.
#include "core.h"

struct handle {
    PyObject_HEAD PyObject *connection, *path;
    struct os2g_file *f; // NULL: closed
    Py_ssize_t users;
    bool closed;
};

PyTypeObject *handle_type;

static struct handle *of(PyObject *self)
{
    return (struct handle *)self;
}

// --- its life ---

PyObject *handle_new(PyObject *connection, PyObject *path, struct os2g_file *f)
{
    struct handle *h = (struct handle *)PyType_GenericAlloc(handle_type, 0);

    if (!h) {
        os2g_file_close(f);
        return NULL;
    }
    Py_INCREF(connection);
    h->connection = connection;
    Py_INCREF(path);
    h->path = path;
    h->f = f;
    return (PyObject *)h;
}

static void close_unused(struct handle *h)
{
    struct os2g_file *f = h->f;
    struct waiting w;

    if (!f || !h->closed || h->users)
        return;
    h->f = NULL;
    wait_begin_deaf(&w);
    os2g_file_close(f);
    wait_end(&w);
}

static void handle_dealloc(PyObject *self)
{
    PyObject *type, *value, *trace;

    PyErr_Fetch(&type, &value, &trace);
    of(self)->closed = true;
    close_unused(of(self));
    PyErr_Restore(type, value, trace);
    Py_DECREF(of(self)->path);
    Py_DECREF(of(self)->connection);
    object_free(self);
}

struct os2g_file *handle_hold(PyObject *self)
{
    if (of(self)->closed) {
        PyErr_SetString(PyExc_ValueError, "I/O operation on closed file.");
        return NULL;
    }
    of(self)->users++;
    return of(self)->f;
}

void handle_drop(PyObject *self)
{
    of(self)->users--;
    close_unused(of(self));
}

// --- reading ---

static ssize_t read_at(PyObject *self, void *to, size_t size, long long offset)
{
    struct os2g_file *f;
    struct waiting w;
    ssize_t n;

    if (offset < 0) {
        PyErr_SetString(PyExc_ValueError, "an offset before the file's beginning");
        return -1;
    }
    f = handle_hold(self);
    if (!f)
        return -1;
    wait_begin(&w);
    n = os2g_read(f, to, size, (off_t)offset, 0);
    if (!wait_end(&w))
        n = -1;
    else if (n < 0)
        raise_last((int)n, of(self)->path);
    handle_drop(self);
    return n < 0 ? -1 : n;
}

static PyObject *handle_read(PyObject *self, PyObject *args)
{
    long long offset, size;
    uint64_t left;
    PyObject *bytes, *whole;
    ssize_t n;

    if (!PyArg_ParseTuple(args, "LL", &size, &offset))
        return NULL;
    if (of(self)->closed) {
        PyErr_SetString(PyExc_ValueError, "I/O operation on closed file.");
        return NULL;
    }
    left = offset >= 0 && (uint64_t)offset < os2g_file_size(of(self)->f)
               ? os2g_file_size(of(self)->f) - (uint64_t)offset
               : 0;
    if (size < 0 || (uint64_t)size > left)
        size = (long long)left;
    bytes = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)size);
    if (!bytes)
        return NULL;
    n = size || offset < 0 ? read_at(self, PyBytes_AsString(bytes), (size_t)size, offset) : 0;
    if (n == size)
        return bytes;
    whole = n < 0 ? NULL : PyBytes_FromStringAndSize(PyBytes_AsString(bytes), n);
    Py_DECREF(bytes);
    return whole;
}

static PyObject *handle_read_into(PyObject *self, PyObject *args)
{
    unsigned long long to_offset;
    long long offset, size;
    PyObject *object;
    struct target to;
    ssize_t n = -1;

    if (!PyArg_ParseTuple(args, "OKLL", &object, &to_offset, &size, &offset) ||
        target_get(&to, object) < 0)
        return NULL;
    if (size < 0)
        size = to_offset <= to.size ? (long long)(to.size - to_offset) : 0;
    if (target_holds(&to, to_offset, (unsigned long long)size))
        n = size ? read_at(self, (char *)to.base + to_offset, (size_t)size, offset) : 0;
    target_put(&to);
    return n < 0 ? NULL : PyLong_FromSsize_t(n);
}

static PyObject *handle_close(PyObject *self, PyObject *none)
{
    of(self)->closed = true;
    close_unused(of(self));
    Py_RETURN_NONE;
}

static PyObject *handle_stat(PyObject *self, PyObject *none)
{
    struct os2g_stat st;

    if (of(self)->closed) {
        PyErr_SetString(PyExc_ValueError, "I/O operation on closed file.");
        return NULL;
    }
    os2g_file_stat(of(self)->f, &st);
    return Py_BuildValue("(KLN)", (unsigned long long)st.size, (long long)st.mtime_s,
                         key_str(st.etag, strlen(st.etag)));
}

static PyMethodDef methods[] = {
    {"read", handle_read, METH_VARARGS, "read(size, offset) -> bytes"},
    {"read_into", handle_read_into, METH_VARARGS, "read_into(target, at, size, offset) -> int"},
    {"stat", handle_stat, METH_NOARGS, "stat() -> (size, mtime, etag)"},
    {"close", handle_close, METH_NOARGS, NULL},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot slots[] = {
    {Py_tp_new, object_refuse_new},
    {Py_tp_dealloc, handle_dealloc},
    {Py_tp_methods, methods},
    {0, NULL},
};

static PyType_Spec spec = {
    .name = "os2g._core.Handle",
    .basicsize = sizeof(struct handle),
    .flags = Py_TPFLAGS_DEFAULT,
    .slots = slots,
};

int handle_init(PyObject *module)
{
    return add_type(module, &spec, &handle_type);
}
