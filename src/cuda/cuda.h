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

// Loaded once per process. NULL: there is no driver (*ret_why, may be NULL, says why; static text).
struct cuda_driver;
const struct cuda_driver *cuda_driver_get(const char **ret_why);
// A sentence about a result, static.
const char *cuda_error(const struct cuda_driver *d, CUresult r);
