// SPDX-License-Identifier: Apache-2.0
// Memory(connection, size, kind, device, owner=None, address=0, fd=-1, offset=0): a buffer of
// libos2g; with an owner, memory that is there already, at address or where the owner's buffer is,
// and that the owner keeps. Views (the buffer protocol, DLPack, reads under way) are counted:
// close() frees it with the last of them.
#include "core.h"

struct memory {
    PyObject_HEAD PyObject *connection, *owner;
    struct os2g_buffer *b; // NULL: freed
    Py_buffer view;        // of the owner
    bool has_view;
    Py_ssize_t users;
    bool closed;
    bool lent; // its address has been told: it goes with the object, not before
    int device;
};

PyTypeObject *memory_type;

static struct memory *of(PyObject *self)
{
    return (struct memory *)self;
}

// --- its life ---

static void free_buffer(struct memory *m)
{
    struct os2g_buffer *b = m->b;
    PyObject *type, *value, *trace;
    struct waiting w;

    m->b = NULL;
    if (b) {
        PyErr_Fetch(&type, &value, &trace);
        wait_begin_deaf(&w);
        os2g_buffer_free(b);
        wait_end(&w);
        PyErr_Restore(type, value, trace);
    }
    if (m->has_view)
        PyBuffer_Release(&m->view);
    m->has_view = false;
    Py_CLEAR(m->owner);
}

static void free_unused(struct memory *m)
{
    if (m->closed && !m->users && !m->lent)
        free_buffer(m);
}

static int allocate(struct memory *m, struct os2g *c, unsigned long long size, int kind)
{
    struct waiting w;
    int rc;

    wait_begin(&w);
    rc = os2g_buffer_alloc(c, &m->b, size, (enum os2g_memory)kind, m->device);
    if (!wait_end(&w))
        return -1;
    if (rc < 0)
        raise_last(rc, NULL);
    return rc < 0 ? -1 : 0;
}

static int adopt(struct memory *m, struct os2g *c, unsigned long long size, int kind, void *base,
                 int fd, long long offset)
{
    struct waiting w;
    int rc;

    if (kind != OS2G_MEMORY_CUDA) {
        if (PyObject_GetBuffer(m->owner, &m->view, PyBUF_WRITABLE | PyBUF_C_CONTIGUOUS) < 0)
            return -1;
        m->has_view = true;
        base = m->view.buf;
        size = (unsigned long long)m->view.len;
    }
    wait_begin(&w);
    rc = kind == OS2G_MEMORY_CUDA ? os2g_buffer_register_cuda(c, &m->b, base, size)
                                  : os2g_buffer_register_fd(c, &m->b, base, size, fd, offset);
    if (!wait_end(&w))
        return -1;
    if (rc < 0)
        raise_last(rc, NULL);
    return rc < 0 ? -1 : 0;
}

static PyObject *memory_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    PyObject *connection, *owner = Py_None, *address = NULL;
    unsigned long long size;
    void *base;
    int kind, device, fd = -1, rc;
    long long offset = 0;
    struct memory *m;
    struct os2g *c;

    if (!PyArg_ParseTuple(args, "O!Kii|OOiL", connection_type, &connection, &size, &kind, &device,
                          &owner, &address, &fd, &offset))
        return NULL;
    base = address ? PyLong_AsVoidPtr(address) : NULL;
    if (PyErr_Occurred())
        return NULL;
    c = connection_of(connection);
    m = (struct memory *)PyType_GenericAlloc(type, 0);
    if (!m)
        return NULL;
    Py_INCREF(connection);
    m->connection = connection;
    m->device = device;
    if (owner == Py_None) {
        rc = allocate(m, c, size, kind);
    } else {
        Py_INCREF(owner);
        m->owner = owner;
        rc = adopt(m, c, size, kind, base, fd, offset);
    }
    if (rc == 0)
        return (PyObject *)m;
    Py_DECREF(m);
    return NULL;
}

static void memory_dealloc(PyObject *self)
{
    free_buffer(of(self));
    Py_XDECREF(of(self)->connection);
    object_free(self);
}

// --- users ---

static int check(const struct memory *m)
{
    if (m->b && !m->closed)
        return 0;
    PyErr_SetString(PyExc_ValueError, "a buffer that is closed");
    return -1;
}

int memory_hold(PyObject *self, void **ret_base, size_t *ret_size)
{
    if (check(of(self)) < 0)
        return -1;
    of(self)->users++;
    *ret_base = os2g_buffer_base(of(self)->b);
    *ret_size = os2g_buffer_size(of(self)->b);
    return 0;
}

void memory_drop(PyObject *self)
{
    of(self)->users--;
    free_unused(of(self));
}

int memory_device(PyObject *self, int *ret_type, int *ret_id)
{
    if (check(of(self)) < 0)
        return -1;
    // kDLCUDA, kDLCPU
    *ret_type = os2g_buffer_memory(of(self)->b) == OS2G_MEMORY_CUDA ? 2 : 1;
    *ret_id = *ret_type == 2 ? of(self)->device : 0;
    return 0;
}

static int get_view(PyObject *self, Py_buffer *view, int flags)
{
    struct memory *m = of(self);

    view->obj = NULL;
    if (check(m) < 0)
        return -1;
    if (os2g_buffer_memory(m->b) == OS2G_MEMORY_CUDA) {
        PyErr_SetString(PyExc_BufferError, "memory of a GPU: use DLPack");
        return -1;
    }
    if (PyBuffer_FillInfo(view, self, os2g_buffer_base(m->b), (Py_ssize_t)os2g_buffer_size(m->b), 0,
                          flags) < 0)
        return -1;
    m->users++;
    return 0;
}

static void release_view(PyObject *self, Py_buffer *view)
{
    memory_drop(self);
}

// --- what Python sees ---

static PyObject *memory_close(PyObject *self, PyObject *none)
{
    of(self)->closed = true;
    free_unused(of(self));
    Py_RETURN_NONE;
}

static PyObject *memory_lend(PyObject *self, PyObject *none)
{
    if (check(of(self)) < 0)
        return NULL;
    of(self)->lent = true;
    return PyLong_FromVoidPtr(os2g_buffer_base(of(self)->b));
}

static PyObject *get_closed(PyObject *self, void *unused)
{
    return PyBool_FromLong(of(self)->closed);
}

static PyObject *get_address(PyObject *self, void *unused)
{
    return check(of(self)) < 0 ? NULL : PyLong_FromVoidPtr(os2g_buffer_base(of(self)->b));
}

static PyObject *get_kind(PyObject *self, void *unused)
{
    return check(of(self)) < 0 ? NULL : PyLong_FromLong(os2g_buffer_memory(of(self)->b));
}

static PyObject *get_device(PyObject *self, void *unused)
{
    return PyLong_FromLong(of(self)->device);
}

static Py_ssize_t memory_len(PyObject *self)
{
    return check(of(self)) < 0 ? -1 : (Py_ssize_t)os2g_buffer_size(of(self)->b);
}

static PyMethodDef methods[] = {
    {"close", memory_close, METH_NOARGS, "Frees it as soon as nobody looks at it any more."},
    {"_lend", memory_lend, METH_NOARGS, "Its address; it will live as long as this object."},
    {"_dlpack", memory_dlpack, METH_VARARGS, "_dlpack(offset, size, versioned) -> capsule"},
    {NULL, NULL, 0, NULL},
};

static PyGetSetDef getters[] = {
    {"closed", get_closed, NULL, NULL, NULL},
    {"address", get_address, NULL, "Of its first byte; a device pointer for GPU memory.", NULL},
    {"_kind", get_kind, NULL, NULL, NULL},
    {"device", get_device, NULL, NULL, NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyType_Slot slots[] = {
    {Py_tp_new, memory_new},
    {Py_tp_dealloc, memory_dealloc},
    {Py_tp_methods, methods},
    {Py_tp_getset, getters},
    {Py_sq_length, memory_len},
    {Py_bf_getbuffer, get_view},
    {Py_bf_releasebuffer, release_view},
    {0, NULL},
};

static PyType_Spec spec = {
    .name = "os2g._core.Memory",
    .basicsize = sizeof(struct memory),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE,
    .slots = slots,
};

int memory_init(PyObject *module)
{
    return add_type(module, &spec, &memory_type);
}
