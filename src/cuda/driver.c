// SPDX-License-Identifier: Apache-2.0
#include "cuda/cuda.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LIBRARY "libcuda.so.1"

struct symbol {
    const char *name;
    size_t at; // in struct cuda_driver
    bool optional;
};

static const struct symbol symbols[] = {
#define CALL(name, symbol, parameters)     {#symbol, offsetof(struct cuda_driver, name), false},
#define OPTIONAL(name, symbol, parameters) {#symbol, offsetof(struct cuda_driver, name), true},
    CUDA_CALLS(CALL) CUDA_OPTIONAL_CALLS(OPTIONAL)
#undef CALL
#undef OPTIONAL
};

static pthread_once_t once = PTHREAD_ONCE_INIT;
static struct cuda_driver driver;
static bool usable;
static char why[256];

static bool find_symbols(void *library)
{
    for (size_t i = 0; i < ARRAY_LEN(symbols); i++) {
        void *address = dlsym(library, symbols[i].name);

        if (!address && !symbols[i].optional) {
            snprintf(why, sizeof(why), "the CUDA driver is too old: it has no %s", symbols[i].name);
            return false;
        }
        memcpy((char *)&driver + symbols[i].at, &address, sizeof(address));
    }
    return true;
}

static void *open_library(int flags)
{
    const char *name = secure_getenv("OS2G_CUDA_LIBRARY");

    return dlopen(name && *name ? name : LIBRARY, RTLD_NOW | RTLD_LOCAL | flags);
}

bool cuda_driver_present(void)
{
    void *library = open_library(RTLD_NOLOAD);

    if (library)
        dlclose(library);
    return library;
}

static void load(void)
{
    void *library = open_library(0);
    int devices = 0;
    CUresult r;

    // never closed: the driver has threads
    if (!library) {
        snprintf(why, sizeof(why), "no CUDA driver: %s", dlerror());
        return;
    }
    if (!find_symbols(library))
        return;
    r = driver.cuInit(0);
    if (r == CUDA_SUCCESS)
        r = driver.cuDeviceGetCount(&devices);
    if (r == CUDA_SUCCESS && !devices)
        r = CUDA_ERROR_NO_DEVICE;
    if (r != CUDA_SUCCESS)
        snprintf(why, sizeof(why), "the CUDA driver does not start: %s", cuda_error(&driver, r));
    else
        usable = true;
}

const struct cuda_driver *cuda_driver_get(const char **ret_why)
{
    pthread_once(&once, load);
    if (!usable && ret_why)
        *ret_why = why;
    return usable ? &driver : NULL;
}

const char *cuda_error(const struct cuda_driver *d, CUresult r)
{
    const char *text = NULL;

    if (d->cuGetErrorString(r, &text) != CUDA_SUCCESS || !text)
        return "an error that the CUDA driver has no name for";
    return text;
}

CUresult cuda_device_uuid(const struct cuda_driver *d, CUdevice device, uint8_t ret[16])
{
    // the older call gives every partition of a GPU the GPU's own
    CUresult (*get)(CUuuid *, CUdevice) =
        d->cuDeviceGetUuidOfPart ? d->cuDeviceGetUuidOfPart : d->cuDeviceGetUuid;
    CUuuid uuid;
    CUresult r = get(&uuid, device);

    if (r == CUDA_SUCCESS)
        memcpy(ret, uuid.bytes, sizeof(uuid.bytes));
    return r;
}

CUresult cuda_device_find(const struct cuda_driver *d, const uint8_t uuid[16], CUdevice *ret)
{
    int n = 0;
    CUresult r = d->cuDeviceGetCount(&n);

    for (int i = 0; i < n && r == CUDA_SUCCESS; i++) {
        uint8_t here[16];
        CUdevice device;

        r = d->cuDeviceGet(&device, i);
        if (r == CUDA_SUCCESS)
            r = cuda_device_uuid(d, device, here);
        if (r == CUDA_SUCCESS && !memcmp(here, uuid, sizeof(here))) {
            *ret = device;
            return CUDA_SUCCESS;
        }
    }
    return r == CUDA_SUCCESS ? CUDA_ERROR_NO_DEVICE : r;
}
