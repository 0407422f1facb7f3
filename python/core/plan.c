// SPDX-License-Identifier: Apache-2.0
// Plan(connection, keys, window): set, until close() and until no call about it is under way.
#include "core.h"

#include <stdlib.h>

struct plan {
    PyObject_HEAD PyObject *connection;
    struct os2g_plan *p; // NULL: ended
    Py_ssize_t users;
    bool closed;
};

PyTypeObject *plan_type;

static struct plan *of(PyObject *self)
{
    return (struct plan *)self;
}

// --- its life ---

static void end_unused(struct plan *self)
{
    struct os2g_plan *p = self->p;
    struct waiting w;

    if (!p || !self->closed || self->users)
        return;
    self->p = NULL;
    wait_begin_deaf(&w);
    os2g_plan_free(p);
    wait_end(&w);
}

// The strings stay those of the list of bytes.
static const char **strings(PyObject *keys, size_t *ret_n)
{
    Py_ssize_t n = PyList_Size(keys);
    const char **all = n < 0 ? NULL : calloc((size_t)n + 1, sizeof(*all));

    if (!all)
        return PyErr_Occurred() ? NULL : (PyErr_NoMemory(), NULL);
    for (Py_ssize_t i = 0; i < n; i++)
        all[i] = PyBytes_AsString(PyList_GetItem(keys, i));
    *ret_n = (size_t)n;
    return all;
}

static int set(struct plan *self, const char **keys, size_t n, unsigned long long window)
{
    struct os2g *c = connection_of(self->connection);
    struct waiting w;
    int rc;

    wait_begin(&w);
    rc = os2g_plan_new(c, &self->p, window);
    if (rc == 0)
        rc = os2g_plan_add(self->p, keys, n);
    if (rc == 0)
        rc = os2g_plan_commit(self->p);
    if (!wait_end(&w))
        return -1;
    if (rc < 0)
        raise_last(rc, NULL);
    return rc < 0 ? -1 : 0;
}

// A list of bytes.
static PyObject *bytes_of(PyObject *keys)
{
    PyObject *list = PySequence_List(keys);

    for (Py_ssize_t i = 0; list && i < PyList_Size(list); i++) {
        PyObject *bytes = path_bytes(PyList_GetItem(list, i));

        if (!bytes || PyList_SetItem(list, i, bytes) < 0)
            Py_CLEAR(list);
    }
    return list;
}

static PyObject *plan_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    PyObject *connection, *keys, *list;
    unsigned long long window;
    const char **all = NULL;
    struct plan *self;
    size_t n = 0;

    if (!PyArg_ParseTuple(args, "O!OK", connection_type, &connection, &keys, &window))
        return NULL;
    list = bytes_of(keys);
    if (list)
        all = strings(list, &n);
    self = all ? (struct plan *)PyType_GenericAlloc(type, 0) : NULL;
    if (self) {
        Py_INCREF(connection);
        self->connection = connection;
        if (set(self, all, n, window) < 0)
            Py_CLEAR(self);
    }
    free(all);
    Py_XDECREF(list);
    return (PyObject *)self;
}

static void plan_dealloc(PyObject *self)
{
    PyObject *type, *value, *trace;

    PyErr_Fetch(&type, &value, &trace);
    of(self)->closed = true;
    end_unused(of(self));
    PyErr_Restore(type, value, trace);
    Py_DECREF(of(self)->connection);
    object_free(self);
}

// --- what Python sees ---

static PyObject *plan_status(PyObject *self, PyObject *none)
{
    struct os2g_plan_status s;
    struct waiting w;
    bool whole;
    int rc;

    if (of(self)->closed) {
        PyErr_SetString(PyExc_ValueError, "a plan that is closed");
        return NULL;
    }
    of(self)->users++;
    wait_begin(&w);
    rc = os2g_plan_status(of(self)->p, &s);
    whole = wait_end(&w);
    if (whole && rc < 0)
        raise_last(rc, NULL);
    of(self)->users--;
    end_unused(of(self));
    if (!whole || rc < 0)
        return NULL;
    return Py_BuildValue("(KKKKKK)", (unsigned long long)s.entries, (unsigned long long)s.fetched,
                         (unsigned long long)s.used, (unsigned long long)s.dropped,
                         (unsigned long long)s.missing, (unsigned long long)s.bytes);
}

static PyObject *plan_close(PyObject *self, PyObject *none)
{
    of(self)->closed = true;
    end_unused(of(self));
    Py_RETURN_NONE;
}

static PyMethodDef methods[] = {
    {"status", plan_status, METH_NOARGS, NULL},
    {"close", plan_close, METH_NOARGS, NULL},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot slots[] = {
    {Py_tp_new, plan_new},
    {Py_tp_dealloc, plan_dealloc},
    {Py_tp_methods, methods},
    {0, NULL},
};

static PyType_Spec spec = {
    .name = "os2g._core.Plan",
    .basicsize = sizeof(struct plan),
    .flags = Py_TPFLAGS_DEFAULT,
    .slots = slots,
};

int plan_init(PyObject *module)
{
    return add_type(module, &spec, &plan_type);
}
