// SPDX-License-Identifier: Apache-2.0
// The buffer protocol. It has been part of the stable ABI since Python 3.11, as it had been for all
// of 3.x before: a module for 3.9 and newer may use it, but has to declare it itself.
#pragma once

#if defined(Py_LIMITED_API) && Py_LIMITED_API + 0 < 0x030b0000

typedef struct {
    void *buf;
    PyObject *obj;
    Py_ssize_t len;
    Py_ssize_t itemsize;
    int readonly;
    int ndim;
    char *format;
    Py_ssize_t *shape;
    Py_ssize_t *strides;
    Py_ssize_t *suboffsets;
    void *internal;
} Py_buffer;

#define Py_bf_getbuffer     1
#define Py_bf_releasebuffer 2
#define PyBUF_WRITABLE      0x0001
#define PyBUF_C_CONTIGUOUS  (0x0020 | 0x0010 | 0x0008)

PyAPI_FUNC(int) PyObject_GetBuffer(PyObject *object, Py_buffer *view, int flags);
PyAPI_FUNC(int) PyObject_CheckBuffer(PyObject *object);
PyAPI_FUNC(int) PyBuffer_FillInfo(Py_buffer *view, PyObject *object, void *buf, Py_ssize_t len,
                                  int readonly, int flags);
PyAPI_FUNC(void) PyBuffer_Release(Py_buffer *view);

#endif
