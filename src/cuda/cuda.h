// SPDX-License-Identifier: Apache-2.0
// cuda/: the few calls of the CUDA driver that OS2G makes, opened with dlopen ("libcuda.so.1", or
// OS2G_CUDA_LIBRARY: tests put a double there), never linked. Types and values are the driver's
// ABI (cuda.h of the CUDA toolkit), declared here because the toolkit is not needed to build.
// Used by gdd/ (the helper process) and host/ (libos2g). Uses base/.
#pragma once

#include "base/base.h"

typedef int CUresult;
typedef int CUdevice;
typedef struct CUctx_st *CUcontext;
typedef struct CUstream_st *CUstream;
typedef struct CUevent_st *CUevent;
typedef unsigned long long CUdeviceptr;
typedef unsigned long long CUmemGenericAllocationHandle;
typedef struct {
    char bytes[16];
} CUuuid;
typedef struct {
    char reserved[64];
} CUipcMemHandle;
typedef void (*CUhostFn)(void *arg);

enum {
    CUDA_SUCCESS = 0,
    CUDA_ERROR_INVALID_VALUE = 1,
    CUDA_ERROR_OUT_OF_MEMORY = 2,
    CUDA_ERROR_NOT_INITIALIZED = 3,
    CUDA_ERROR_NO_DEVICE = 100,
    CUDA_ERROR_INVALID_DEVICE = 101,
    CUDA_ERROR_INVALID_CONTEXT = 201,
    CUDA_ERROR_MAP_FAILED = 205,
    CUDA_ERROR_ALREADY_MAPPED = 208,
    CUDA_ERROR_ECC_UNCORRECTABLE = 214,
    CUDA_ERROR_INVALID_HANDLE = 400,
    CUDA_ERROR_NOT_READY = 600,
    CUDA_ERROR_ILLEGAL_ADDRESS = 700,
    CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED = 712,
    CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED = 713,
    CUDA_ERROR_LAUNCH_FAILED = 719,
    CUDA_ERROR_NOT_PERMITTED = 800,
    CUDA_ERROR_NOT_SUPPORTED = 801,
};

enum { // CUdevice_attribute
    CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED = 102,
    CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED = 103,
};

enum { // CUpointer_attribute
    CU_POINTER_ATTRIBUTE_CONTEXT = 1,
    CU_POINTER_ATTRIBUTE_MEMORY_TYPE = 2,
    CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL = 9,
};

enum { CU_MEMORYTYPE_HOST = 1, CU_MEMORYTYPE_DEVICE = 2 };

enum {
    CU_STREAM_NON_BLOCKING = 1,
    CU_EVENT_BLOCKING_SYNC = 1,
    CU_EVENT_DISABLE_TIMING = 2,
    CU_MEMHOSTREGISTER_PORTABLE = 1,
    CU_MEMHOSTREGISTER_DEVICEMAP = 2,
    CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS = 1,
    CU_STREAM_WAIT_VALUE_GEQ = 0, // (int32_t)(*addr - value) >= 0
};

enum {
    CU_MEM_ALLOCATION_TYPE_PINNED = 1,
    CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR = 1,
    CU_MEM_LOCATION_TYPE_DEVICE = 1,
    CU_MEM_ACCESS_FLAGS_PROT_READWRITE = 3,
    CU_MEM_ALLOC_GRANULARITY_MINIMUM = 0,
};

typedef struct {
    int type; // CUmemLocationType
    int id;   // device
} CUmemLocation;

typedef struct {
    int type;                 // CUmemAllocationType
    int requestedHandleTypes; // CUmemAllocationHandleType
    CUmemLocation location;
    void *win32HandleMetaData;
    struct {
        unsigned char compressionType, gpuDirectRDMACapable;
        unsigned short usage;
        unsigned char reserved[4];
    } allocFlags;
} CUmemAllocationProp;
_Static_assert(sizeof(CUmemAllocationProp) == 32, "the driver's ABI");

typedef struct {
    CUmemLocation location;
    int flags; // CUmemAccess_flags
} CUmemAccessDesc;
_Static_assert(sizeof(CUmemAccessDesc) == 12, "the driver's ABI");

// call(name, symbol, parameters): the symbol is the version that the parameters fit; without
// _ptsz, so that stream NULL is the legacy default stream.
// clang-format off
#define CUDA_CALLS(call) \
    call(cuInit, cuInit, (unsigned flags)) \
    call(cuGetErrorName, cuGetErrorName, (CUresult error, const char **ret)) \
    call(cuGetErrorString, cuGetErrorString, (CUresult error, const char **ret)) \
    call(cuDeviceGetCount, cuDeviceGetCount, (int *ret)) \
    call(cuDeviceGet, cuDeviceGet, (CUdevice *ret, int ordinal)) \
    call(cuDeviceGetName, cuDeviceGetName, (char *name, int len, CUdevice device)) \
    call(cuDeviceGetUuid, cuDeviceGetUuid, (CUuuid *ret, CUdevice device)) \
    call(cuDeviceGetAttribute, cuDeviceGetAttribute, (int *ret, int attribute, CUdevice device)) \
    call(cuDevicePrimaryCtxRetain, cuDevicePrimaryCtxRetain, (CUcontext *ret, CUdevice device)) \
    call(cuDevicePrimaryCtxRelease, cuDevicePrimaryCtxRelease_v2, (CUdevice device)) \
    call(cuCtxGetCurrent, cuCtxGetCurrent, (CUcontext *ret)) \
    call(cuCtxSetCurrent, cuCtxSetCurrent, (CUcontext context)) \
    call(cuCtxPushCurrent, cuCtxPushCurrent_v2, (CUcontext context)) \
    call(cuCtxPopCurrent, cuCtxPopCurrent_v2, (CUcontext *ret)) \
    call(cuCtxGetDevice, cuCtxGetDevice, (CUdevice *ret)) \
    call(cuCtxGetStreamPriorityRange, cuCtxGetStreamPriorityRange, (int *least, int *greatest)) \
    call(cuMemAlloc, cuMemAlloc_v2, (CUdeviceptr *ret, size_t size)) \
    call(cuMemFree, cuMemFree_v2, (CUdeviceptr p)) \
    call(cuMemGetAddressRange, cuMemGetAddressRange_v2, \
         (CUdeviceptr *ret_base, size_t *ret_size, CUdeviceptr p)) \
    call(cuPointerGetAttribute, cuPointerGetAttribute, (void *ret, int attribute, CUdeviceptr p)) \
    call(cuMemcpyHtoDAsync, cuMemcpyHtoDAsync_v2, \
         (CUdeviceptr to, const void *from, size_t len, CUstream stream)) \
    call(cuMemcpyDtoH, cuMemcpyDtoH_v2, (void *to, CUdeviceptr from, size_t len)) \
    call(cuMemsetD8Async, cuMemsetD8Async, \
         (CUdeviceptr p, unsigned char value, size_t len, CUstream stream)) \
    call(cuMemHostRegister, cuMemHostRegister_v2, (void *p, size_t size, unsigned flags)) \
    call(cuMemHostUnregister, cuMemHostUnregister, (void *p)) \
    call(cuMemHostGetDevicePointer, cuMemHostGetDevicePointer_v2, \
         (CUdeviceptr *ret, void *p, unsigned flags)) \
    call(cuMemGetAllocationGranularity, cuMemGetAllocationGranularity, \
         (size_t *ret, const CUmemAllocationProp *prop, int option)) \
    call(cuMemCreate, cuMemCreate, \
         (CUmemGenericAllocationHandle *ret, size_t size, const CUmemAllocationProp *prop, \
          unsigned long long flags)) \
    call(cuMemRelease, cuMemRelease, (CUmemGenericAllocationHandle handle)) \
    call(cuMemExportToShareableHandle, cuMemExportToShareableHandle, \
         (void *ret, CUmemGenericAllocationHandle handle, int type, unsigned long long flags)) \
    call(cuMemImportFromShareableHandle, cuMemImportFromShareableHandle, \
         (CUmemGenericAllocationHandle *ret, void *os_handle, int type)) \
    call(cuMemAddressReserve, cuMemAddressReserve, \
         (CUdeviceptr *ret, size_t size, size_t alignment, CUdeviceptr at, \
          unsigned long long flags)) \
    call(cuMemAddressFree, cuMemAddressFree, (CUdeviceptr p, size_t size)) \
    call(cuMemMap, cuMemMap, \
         (CUdeviceptr p, size_t size, size_t offset, CUmemGenericAllocationHandle handle, \
          unsigned long long flags)) \
    call(cuMemUnmap, cuMemUnmap, (CUdeviceptr p, size_t size)) \
    call(cuMemSetAccess, cuMemSetAccess, \
         (CUdeviceptr p, size_t size, const CUmemAccessDesc *desc, size_t n)) \
    call(cuIpcGetMemHandle, cuIpcGetMemHandle, (CUipcMemHandle *ret, CUdeviceptr p)) \
    call(cuIpcOpenMemHandle, cuIpcOpenMemHandle_v2, \
         (CUdeviceptr *ret, CUipcMemHandle handle, unsigned flags)) \
    call(cuIpcCloseMemHandle, cuIpcCloseMemHandle, (CUdeviceptr p)) \
    call(cuStreamCreate, cuStreamCreate, (CUstream *ret, unsigned flags)) \
    call(cuStreamCreateWithPriority, cuStreamCreateWithPriority, \
         (CUstream *ret, unsigned flags, int priority)) \
    call(cuStreamGetPriority, cuStreamGetPriority, (CUstream stream, int *ret)) \
    call(cuStreamIsCapturing, cuStreamIsCapturing, (CUstream stream, int *ret)) \
    call(cuStreamDestroy, cuStreamDestroy_v2, (CUstream stream)) \
    call(cuStreamQuery, cuStreamQuery, (CUstream stream)) \
    call(cuStreamSynchronize, cuStreamSynchronize, (CUstream stream)) \
    call(cuLaunchHostFunc, cuLaunchHostFunc, (CUstream stream, CUhostFn fn, void *arg)) \
    call(cuEventCreate, cuEventCreate, (CUevent *ret, unsigned flags)) \
    call(cuEventDestroy, cuEventDestroy_v2, (CUevent event)) \
    call(cuEventRecord, cuEventRecord, (CUevent event, CUstream stream)) \
    call(cuEventQuery, cuEventQuery, (CUevent event)) \
    call(cuEventSynchronize, cuEventSynchronize, (CUevent event))

// Of newer drivers; NULL where they are not there.
#define CUDA_OPTIONAL_CALLS(call) \
    call(cuDeviceGetUuidOfPart, cuDeviceGetUuid_v2, (CUuuid *ret, CUdevice device)) \
    call(cuStreamWaitValue32, cuStreamWaitValue32_v2, \
         (CUstream stream, CUdeviceptr at, uint32_t value, unsigned flags))
// clang-format on

struct cuda_driver {
#define CUDA_MEMBER(name, symbol, parameters) CUresult(*name) parameters;
    CUDA_CALLS(CUDA_MEMBER)
    CUDA_OPTIONAL_CALLS(CUDA_MEMBER)
#undef CUDA_MEMBER
};

// Memory of a GPU as the pointer that programs hand around; not to be followed.
static inline void *cuda_pointer(CUdeviceptr p)
{
    return (void *)(uintptr_t)p; // NOLINT(performance-no-int-to-ptr)
}

// Loaded and initialised once per process. NULL: there is no driver or no GPU (*ret_why, may be
// NULL, says why; static text). Any thread. Not to be called in a child forked after it was loaded.
const struct cuda_driver *cuda_driver_get(const char **ret_why);
// Whether this process has the driver's library, so that memory may be a GPU's; loads nothing.
bool cuda_driver_present(void);
// A sentence about a result, static.
const char *cuda_error(const struct cuda_driver *d, CUresult r);

// The device with this uuid (of a GPU, or of a MIG partition of one), whatever its number here.
// CUDA_ERROR_NO_DEVICE: none has it.
CUresult cuda_device_find(const struct cuda_driver *d, const uint8_t uuid[16], CUdevice *ret);
CUresult cuda_device_uuid(const struct cuda_driver *d, CUdevice device, uint8_t ret[16]);
