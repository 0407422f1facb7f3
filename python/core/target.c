// SPDX-License-Identifier: Apache-2.0
#include "core.h"

static int get_address(struct target *t, PyObject *tuple)
{
    unsigned long long size;
    PyObject *address, *owner;

    if (!PyArg_ParseTuple(tuple, "OKO", &address, &size, &owner))
        return -1;
    t->base = PyLong_AsVoidPtr(address);
    if (PyErr_Occurred())
        return -1;
    Py_INCREF(owner);
    t->owner = owner;
    t->size = (size_t)size;
    return 0;
}

int target_get(struct target *t, PyObject *object)
{
    memset(t, 0, sizeof(*t));
    if (PyTuple_Check(object))
        return get_address(t, object);
    if (PyObject_TypeCheck(object, memory_type)) {
        if (memory_hold(object, &t->base, &t->size) < 0)
            return -1;
        Py_INCREF(object);
        t->owner = object;
        return 0;
    }
    if (PyObject_GetBuffer(object, &t->view, PyBUF_WRITABLE | PyBUF_C_CONTIGUOUS) < 0)
        return -1;
    t->has_view = true;
    t->base = t->view.buf;
    t->size = (size_t)t->view.len;
    return 0;
}

void target_put(struct target *t)
{
    if (t->has_view)
        PyBuffer_Release(&t->view);
    if (t->owner && PyObject_TypeCheck(t->owner, memory_type))
        memory_drop(t->owner);
    Py_XDECREF(t->owner);
    memset(t, 0, sizeof(*t));
}

bool target_holds(const struct target *t, unsigned long long offset, unsigned long long size)
{
    if (offset <= t->size && size <= t->size - offset)
        return true;
    PyErr_Format(PyExc_ValueError, "%llu bytes at %llu are not in memory of %zu", size, offset,
                 t->size);
    return false;
}
