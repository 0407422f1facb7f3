// SPDX-License-Identifier: Apache-2.0
#include "core.h"

int add_type(PyObject *module, PyType_Spec *spec, PyTypeObject **ret)
{
    PyObject *type = PyType_FromSpec(spec);

    if (!type)
        return -1;
    *ret = (PyTypeObject *)type;
    Py_INCREF(type);
    if (PyModule_AddObject(module, strrchr(spec->name, '.') + 1, type) == 0)
        return 0;
    Py_DECREF(type);
    return -1;
}

void object_free(PyObject *self)
{
    PyTypeObject *type = Py_TYPE(self);
    freefunc give = (freefunc)PyType_GetSlot(type, Py_tp_free);

    give(self);
    Py_DECREF(type);
}

PyObject *object_refuse_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    PyErr_Format(PyExc_TypeError, "%R is not made this way", (PyObject *)type);
    return NULL;
}

// --- names ---

PyObject *key_bytes(PyObject *key)
{
    if (PyBytes_Check(key)) {
        Py_INCREF(key);
        return key;
    }
    if (PyUnicode_Check(key))
        return PyUnicode_AsEncodedString(key, "utf-8", "surrogateescape");
    PyErr_Format(PyExc_TypeError, "a key is str or bytes, not %R", (PyObject *)Py_TYPE(key));
    return NULL;
}

PyObject *path_bytes(PyObject *path)
{
    PyObject *bytes = key_bytes(path);
    char *data;
    Py_ssize_t len;

    if (!bytes)
        return NULL;
    PyBytes_AsStringAndSize(bytes, &data, &len);
    if (!memchr(data, 0, (size_t)len))
        return bytes;
    Py_DECREF(bytes);
    PyErr_SetString(PyExc_ValueError, "a zero byte in a name");
    return NULL;
}

PyObject *key_str(const char *name, size_t len)
{
    return PyUnicode_DecodeUTF8(name, (Py_ssize_t)len, "surrogateescape");
}

// --- the module ---

static PyMethodDef functions[] = {
    {"error", make_error, METH_VARARGS, "error(errno, name) -> OSError"},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, .m_name = "os2g._core", .m_doc = "libos2g",
    .m_size = -1,          .m_methods = functions,
};

PyMODINIT_FUNC PyInit__core(void);

PyMODINIT_FUNC PyInit__core(void)
{
    PyObject *module = PyModule_Create(&definition);

    if (!module)
        return NULL;
    if (connection_init(module) == 0 && memory_init(module) == 0 && handle_init(module) == 0 &&
        batch_init(module) == 0 && plan_init(module) == 0 &&
        PyModule_AddStringConstant(module, "version", os2g_version()) == 0)
        return module;
    Py_DECREF(module);
    return NULL;
}
