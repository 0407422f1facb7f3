// SPDX-License-Identifier: Apache-2.0
// A Memory as a tensor of bytes for DLPack (https://dmlc.github.io/dlpack): the struct of
// version 1.0 for consumers that ask for it, and the one before.
#include "core.h"

#include <stdint.h>
#include <stdlib.h>

struct tensor {
    void *data;
    int32_t device_type, device_id;
    int32_t ndim;
    uint8_t code, bits; // of the type
    uint16_t lanes;
    int64_t *shape, *strides;
    uint64_t byte_offset;
};

struct managed {
    struct tensor tensor;
    void *context;
    void (*deleter)(struct managed *self);
};

struct managed_versioned {
    uint32_t major, minor;
    void *context;
    void (*deleter)(struct managed_versioned *self);
    uint64_t flags;
    struct tensor tensor;
};

_Static_assert(sizeof(struct tensor) == 48, "DLTensor");

#define UINT 1 // kDLUInt

// What a consumer holds.
struct lent {
    union {
        struct managed old;
        struct managed_versioned new;
    } managed;
    int64_t shape, stride;
    PyObject *memory;
};

static void give_back(struct lent *l)
{
    PyGILState_STATE state;

    // a consumer may outlive the interpreter, and the memory goes with the process
    if (!Py_IsInitialized())
        return;
    state = PyGILState_Ensure();
    memory_drop(l->memory);
    Py_DECREF(l->memory);
    free(l);
    PyGILState_Release(state);
}

static void delete_old(struct managed *m)
{
    give_back(m->context);
}

static void delete_new(struct managed_versioned *m)
{
    give_back(m->context);
}

// A consumer renames the capsule, and calls deleter itself.
static void end_capsule(PyObject *capsule)
{
    if (PyCapsule_IsValid(capsule, "dltensor"))
        delete_old(PyCapsule_GetPointer(capsule, "dltensor"));
    else if (PyCapsule_IsValid(capsule, "dltensor_versioned"))
        delete_new(PyCapsule_GetPointer(capsule, "dltensor_versioned"));
}

static PyObject *wrap(struct lent *l, const struct tensor *t, bool versioned)
{
    if (versioned) {
        l->managed.new = (struct managed_versioned){
            .major = 1, .context = l, .deleter = delete_new, .tensor = *t};
        return PyCapsule_New(&l->managed.new, "dltensor_versioned", end_capsule);
    }
    l->managed.old = (struct managed){.tensor = *t, .context = l, .deleter = delete_old};
    return PyCapsule_New(&l->managed.old, "dltensor", end_capsule);
}

PyObject *memory_dlpack(PyObject *self, PyObject *args)
{
    unsigned long long offset, size;
    int versioned, device_type, device_id;
    struct target whole;
    struct lent *l;
    PyObject *capsule;

    if (!PyArg_ParseTuple(args, "KKp", &offset, &size, &versioned) || target_get(&whole, self) < 0)
        return NULL;
    l = target_holds(&whole, offset, size) ? calloc(1, sizeof(*l)) : NULL;
    if (!l) {
        target_put(&whole);
        return PyErr_Occurred() ? NULL : PyErr_NoMemory();
    }
    memory_device(self, &device_type, &device_id);
    *l = (struct lent){.shape = (int64_t)size, .stride = 1, .memory = self};
    capsule = wrap(l,
                   &(struct tensor){
                       .data = (char *)whole.base + offset,
                       .device_type = device_type,
                       .device_id = device_id,
                       .ndim = 1,
                       .code = UINT,
                       .bits = 8,
                       .lanes = 1,
                       .shape = &l->shape,
                       .strides = &l->stride,
                   },
                   versioned);
    if (!capsule) {
        free(l);
        target_put(&whole);
    }
    return capsule; // holds what target_get has taken
}
