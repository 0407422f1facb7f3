// SPDX-License-Identifier: Apache-2.0
// What each call begins with; errors, devices, contexts.
#include "double.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

pthread_mutex_t double_mutex = PTHREAD_MUTEX_INITIALIZER;
pthread_cond_t double_cond = PTHREAD_COND_INITIALIZER;

#define FAILS_MAX 8
#define CONTEXTS  16 // of a thread, on its stack

static struct {
    char name[48];
    unsigned left; // calls until it fails; 0: not any more
    CUresult code;
} fails[FAILS_MAX];

static pid_t initialised;
static CUresult sticky;
static int n_devices, visible[DEVICES_MAX];
static struct CUctx_st primary[DEVICES_MAX]; // of physical devices
static _Thread_local struct CUctx_st *stack[CONTEXTS];
static _Thread_local unsigned depth;
static _Thread_local bool in_host_function;

// --- errors ---

static void read_fails(const char *spec)
{
    char *copy = xstrdup(spec), *save = NULL;
    unsigned n = 0;

    memset(fails, 0, sizeof(fails));
    for (char *w = strtok_r(copy, ",", &save); w && n < FAILS_MAX; w = strtok_r(NULL, ",", &save)) {
        fails[n].code = CUDA_ERROR_ILLEGAL_ADDRESS;
        if (sscanf(w, "%47[^:]:%u:%d", fails[n].name, &fails[n].left, &fails[n].code) < 2 ||
            fails[n].code == CUDA_SUCCESS)
            double_undefined("OS2G_CUDA_DOUBLE_FAIL is NAME:N[:CODE]");
        n++;
    }
    free(copy);
}

bool double_must_fail(const char *name, CUresult *ret)
{
    for (size_t i = 0; i < FAILS_MAX; i++) {
        if (!fails[i].left || strcmp(fails[i].name, name) || --fails[i].left)
            continue;
        *ret = fails[i].code;
        double_stick(fails[i].code);
        return true;
    }
    return false;
}

// The errors after which the real driver lets a process do nothing more.
void double_stick(CUresult r)
{
    if (r == CUDA_ERROR_ECC_UNCORRECTABLE || r == CUDA_ERROR_ILLEGAL_ADDRESS || r == 702 ||
        r == 710 || (r >= 714 && r <= 719)) {
        sticky = r;
        pthread_cond_broadcast(&double_cond);
    }
}

CUresult double_sticky(void)
{
    return sticky;
}

_Noreturn void double_undefined(const char *what)
{
    fprintf(stderr, "cuda double: %s\n", what);
    abort();
}

void cuda_double_fail(const char *spec)
{
    pthread_mutex_lock(&double_mutex);
    sticky = CUDA_SUCCESS;
    read_fails(spec);
    pthread_mutex_unlock(&double_mutex);
}

uint64_t cuda_double_count(const char *what)
{
    uint64_t n = 0;

    pthread_mutex_lock(&double_mutex);
    if (!strcmp(what, "pageable") || !strcmp(what, "copy"))
        n = stream_copies(!strcmp(what, "pageable"));
    else if (!strcmp(what, "allocated"))
        n = memory_allocated();
    else if (!strcmp(what, "registered"))
        n = host_ranges();
    else
        double_undefined("cuda_double_count of something unknown");
    pthread_mutex_unlock(&double_mutex);
    return n;
}

unsigned double_delay_us(void)
{
    const char *s = getenv("OS2G_CUDA_DOUBLE_DELAY_US");

    return s ? (unsigned)atoi(s) : 0;
}

bool double_without(const char *what)
{
    const char *s = getenv("OS2G_CUDA_DOUBLE_WITHOUT");

    return s && !strcmp(s, what);
}

// --- entering and leaving ---

CUresult double_enter(const char *name, struct CUctx_st **ret_context)
{
    struct CUctx_st *current = depth ? stack[depth - 1] : NULL;
    CUresult r = CUDA_SUCCESS;

    if (in_host_function)
        return CUDA_ERROR_NOT_PERMITTED;
    pthread_mutex_lock(&double_mutex);
    if (initialised != getpid())
        r = CUDA_ERROR_NOT_INITIALIZED;
    else if (sticky)
        r = sticky;
    else if (!double_must_fail(name, &r) && ret_context && (!current || !current->refs))
        r = CUDA_ERROR_INVALID_CONTEXT;
    if (r != CUDA_SUCCESS)
        pthread_mutex_unlock(&double_mutex);
    else if (ret_context)
        *ret_context = current;
    return r;
}

CUresult double_leave(CUresult r)
{
    pthread_mutex_unlock(&double_mutex);
    return r;
}

void double_host_function(CUhostFn fn, void *arg)
{
    in_host_function = true;
    fn(arg);
    in_host_function = false;
}

static void read_devices(void)
{
    const char *count = getenv("OS2G_CUDA_DOUBLE_DEVICES"), *v = getenv("CUDA_VISIBLE_DEVICES");
    int physical = count ? atoi(count) : 1;

    physical = MIN(MAX(physical, 0), DEVICES_MAX);
    n_devices = 0;
    for (int i = 0; i < physical && !v; i++)
        visible[n_devices++] = i;
    for (; v && *v >= '0' && *v < '0' + physical && n_devices < DEVICES_MAX; v += v[1] ? 2 : 1)
        visible[n_devices++] = *v - '0';
}

CUresult cuInit(unsigned flags)
{
    const char *spec = getenv("OS2G_CUDA_DOUBLE_FAIL");
    CUresult r = CUDA_SUCCESS;

    pthread_mutex_lock(&double_mutex);
    if (flags) {
        r = CUDA_ERROR_INVALID_VALUE;
    } else if (!initialised) {
        if (spec)
            read_fails(spec);
        read_devices();
        for (int i = 0; i < DEVICES_MAX; i++) {
            primary[i].device = i;
            list_init(&primary[i].streams);
        }
        initialised = getpid();
        if (!double_must_fail("cuInit", &r) && !n_devices)
            r = CUDA_ERROR_NO_DEVICE;
    } else if (initialised != getpid()) {
        r = CUDA_ERROR_NOT_INITIALIZED;
    }
    pthread_mutex_unlock(&double_mutex);
    return r;
}

static const struct {
    CUresult code;
    const char *name, *text;
} errors[] = {
    {CUDA_SUCCESS, "CUDA_SUCCESS", "no error"},
    {CUDA_ERROR_INVALID_VALUE, "CUDA_ERROR_INVALID_VALUE", "invalid argument"},
    {CUDA_ERROR_OUT_OF_MEMORY, "CUDA_ERROR_OUT_OF_MEMORY", "out of memory"},
    {CUDA_ERROR_NOT_INITIALIZED, "CUDA_ERROR_NOT_INITIALIZED", "initialization error"},
    {CUDA_ERROR_NO_DEVICE, "CUDA_ERROR_NO_DEVICE", "no CUDA-capable device is detected"},
    {CUDA_ERROR_INVALID_DEVICE, "CUDA_ERROR_INVALID_DEVICE", "invalid device ordinal"},
    {CUDA_ERROR_INVALID_CONTEXT, "CUDA_ERROR_INVALID_CONTEXT", "invalid device context"},
    {CUDA_ERROR_MAP_FAILED, "CUDA_ERROR_MAP_FAILED", "mapping of buffer object failed"},
    {CUDA_ERROR_ECC_UNCORRECTABLE, "CUDA_ERROR_ECC_UNCORRECTABLE",
     "uncorrectable ECC error encountered"},
    {CUDA_ERROR_INVALID_HANDLE, "CUDA_ERROR_INVALID_HANDLE", "invalid resource handle"},
    {CUDA_ERROR_NOT_READY, "CUDA_ERROR_NOT_READY", "device not ready"},
    {CUDA_ERROR_ILLEGAL_ADDRESS, "CUDA_ERROR_ILLEGAL_ADDRESS",
     "an illegal memory access was encountered"},
    {CUDA_ERROR_LAUNCH_FAILED, "CUDA_ERROR_LAUNCH_FAILED", "unspecified launch failure"},
    {CUDA_ERROR_NOT_PERMITTED, "CUDA_ERROR_NOT_PERMITTED", "operation not permitted"},
    {CUDA_ERROR_NOT_SUPPORTED, "CUDA_ERROR_NOT_SUPPORTED", "operation not supported"},
};

CUresult cuGetErrorName(CUresult error, const char **ret)
{
    for (size_t i = 0; i < ARRAY_LEN(errors); i++)
        if (errors[i].code == error) {
            *ret = errors[i].name;
            return CUDA_SUCCESS;
        }
    *ret = NULL;
    return CUDA_ERROR_INVALID_VALUE;
}

CUresult cuGetErrorString(CUresult error, const char **ret)
{
    for (size_t i = 0; i < ARRAY_LEN(errors); i++)
        if (errors[i].code == error) {
            *ret = errors[i].text;
            return CUDA_SUCCESS;
        }
    *ret = NULL;
    return CUDA_ERROR_INVALID_VALUE;
}

// --- devices ---

bool double_device_valid(int device)
{
    return device >= 0 && device < n_devices;
}

CUresult cuDeviceGetCount(int *ret)
{
    CUresult r = double_enter("cuDeviceGetCount", NULL);

    if (r != CUDA_SUCCESS)
        return r;
    *ret = n_devices;
    return double_leave(CUDA_SUCCESS);
}

// A device is its ordinal, as with the real driver.
CUresult cuDeviceGet(CUdevice *ret, int ordinal)
{
    CUresult r = double_enter("cuDeviceGet", NULL);

    if (r != CUDA_SUCCESS)
        return r;
    if (!double_device_valid(ordinal))
        return double_leave(CUDA_ERROR_INVALID_DEVICE);
    *ret = ordinal;
    return double_leave(CUDA_SUCCESS);
}

CUresult cuDeviceGetName(char *name, int len, CUdevice device)
{
    CUresult r = double_enter("cuDeviceGetName", NULL);

    if (r != CUDA_SUCCESS)
        return r;
    if (!double_device_valid(device) || len <= 0)
        return double_leave(CUDA_ERROR_INVALID_VALUE);
    snprintf(name, (size_t)len, "test double %d", visible[device]);
    return double_leave(CUDA_SUCCESS);
}

static CUresult uuid(const char *call, CUuuid *ret, CUdevice device)
{
    CUresult r = double_enter(call, NULL);

    if (r != CUDA_SUCCESS)
        return r;
    if (!double_device_valid(device))
        return double_leave(CUDA_ERROR_INVALID_DEVICE);
    memcpy(ret->bytes, "os2g-test-double", sizeof(ret->bytes));
    ret->bytes[15] = (char)visible[device];
    return double_leave(CUDA_SUCCESS);
}

CUresult cuDeviceGetUuid(CUuuid *ret, CUdevice device)
{
    return uuid("cuDeviceGetUuid", ret, device);
}

CUresult cuDeviceGetUuid_v2(CUuuid *ret, CUdevice device)
{
    return uuid("cuDeviceGetUuid_v2", ret, device);
}

CUresult cuDeviceGetAttribute(int *ret, int attribute, CUdevice device)
{
    CUresult r = double_enter("cuDeviceGetAttribute", NULL);

    if (r != CUDA_SUCCESS)
        return r;
    if (!double_device_valid(device))
        return double_leave(CUDA_ERROR_INVALID_DEVICE);
    switch (attribute) {
    case CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED:
        *ret = 1;
        break;
    case CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED:
        *ret = !double_without("fd");
        break;
    default:
        r = CUDA_ERROR_INVALID_VALUE;
    }
    return double_leave(r);
}

// --- contexts: primary ones only ---

CUresult cuDevicePrimaryCtxRetain(CUcontext *ret, CUdevice device)
{
    CUresult r = double_enter("cuDevicePrimaryCtxRetain", NULL);

    if (r != CUDA_SUCCESS)
        return r;
    if (!double_device_valid(device))
        return double_leave(CUDA_ERROR_INVALID_DEVICE);
    primary[device].refs++;
    *ret = &primary[device];
    return double_leave(CUDA_SUCCESS);
}

CUresult cuDevicePrimaryCtxRelease_v2(CUdevice device)
{
    CUresult r = double_enter("cuDevicePrimaryCtxRelease", NULL);

    if (r != CUDA_SUCCESS)
        return r;
    if (!double_device_valid(device) || !primary[device].refs)
        return double_leave(CUDA_ERROR_INVALID_CONTEXT);
    if (--primary[device].refs == 0)
        stream_close_all(&primary[device]);
    return double_leave(CUDA_SUCCESS);
}

CUresult cuCtxGetCurrent(CUcontext *ret)
{
    CUresult r = double_enter("cuCtxGetCurrent", NULL);

    if (r != CUDA_SUCCESS)
        return r;
    *ret = depth ? stack[depth - 1] : NULL;
    return double_leave(CUDA_SUCCESS);
}

CUresult cuCtxSetCurrent(CUcontext context)
{
    CUresult r = double_enter("cuCtxSetCurrent", NULL);

    if (r != CUDA_SUCCESS)
        return r;
    if (!context)
        depth -= depth > 0;
    else if (depth)
        stack[depth - 1] = context;
    else
        stack[depth++] = context;
    return double_leave(CUDA_SUCCESS);
}

CUresult cuCtxPushCurrent_v2(CUcontext context)
{
    CUresult r = double_enter("cuCtxPushCurrent", NULL);

    if (r != CUDA_SUCCESS)
        return r;
    if (!context || depth == CONTEXTS)
        return double_leave(CUDA_ERROR_INVALID_CONTEXT);
    stack[depth++] = context;
    return double_leave(CUDA_SUCCESS);
}

CUresult cuCtxPopCurrent_v2(CUcontext *ret)
{
    CUresult r = double_enter("cuCtxPopCurrent", NULL);

    if (r != CUDA_SUCCESS)
        return r;
    if (!depth)
        return double_leave(CUDA_ERROR_INVALID_CONTEXT);
    depth--;
    if (ret)
        *ret = stack[depth];
    return double_leave(CUDA_SUCCESS);
}

CUresult cuCtxGetDevice(CUdevice *ret)
{
    struct CUctx_st *c;
    CUresult r = double_enter("cuCtxGetDevice", &c);

    if (r != CUDA_SUCCESS)
        return r;
    *ret = c->device;
    return double_leave(CUDA_SUCCESS);
}
