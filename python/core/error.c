// SPDX-License-Identifier: Apache-2.0
#include "core.h"

#include <errno.h>

// What errno has no good words for, as libos2g's own sentences have it.
static const char *text_of(int error)
{
    switch (error) {
    case -ENOTCONN:
        return "the daemon has gone and has not come back in time";
    case -ETIMEDOUT:
        return "no answer in time";
    case -ECANCELED:
        return "given up, as was asked for";
    case -ESTALE:
        return "the store has another version of it now; open it again";
    case -EFBIG:
        return "larger than the memory given for it";
    case -EACCES:
        return "the store does not allow it to these credentials";
    default:
        return strerror(-error);
    }
}

// The name is told once, as the error's filename.
static const char *without(const char *text, PyObject *name)
{
    PyObject *bytes = key_bytes(name);
    size_t len = bytes ? (size_t)PyBytes_Size(bytes) : 0;

    if (bytes && !strncmp(text, PyBytes_AsString(bytes), len) && !strncmp(text + len, ": ", 2))
        text += len + 2;
    Py_XDECREF(bytes);
    PyErr_Clear();
    return text;
}

static PyObject *new_error(int error, const char *text, PyObject *name)
{
    PyObject *sentence, *e;

    if (name)
        text = without(text, name);
    sentence = PyUnicode_DecodeUTF8(text, (Py_ssize_t)strlen(text), "replace");
    if (!sentence)
        return NULL;
    // picks the subclass
    e = name ? PyObject_CallFunction(PyExc_OSError, "iOO", -error, sentence, name)
             : PyObject_CallFunction(PyExc_OSError, "iO", -error, sentence);
    Py_DECREF(sentence);
    return e;
}

PyObject *raise_error(int error, const char *text, PyObject *name)
{
    PyObject *e = new_error(error, text, name);

    if (e) {
        PyErr_SetObject((PyObject *)Py_TYPE(e), e);
        Py_DECREF(e);
    }
    return NULL;
}

PyObject *raise_last(int error, PyObject *name)
{
    return raise_error(error, os2g_last_error(), name);
}

PyObject *make_error(PyObject *module, PyObject *args)
{
    PyObject *name;
    int error;

    if (!PyArg_ParseTuple(args, "iO", &error, &name))
        return NULL;
    return new_error(-error, text_of(-error), name);
}
