// SPDX-License-Identifier: Apache-2.0
// Device memory, physical memory that is mapped, IPC handles, registered host memory.
#include "double.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define GRANULARITY (2 * MIB)
#define PAGE        ((size_t)4096)
#define SHM         "/dev/shm"
#define HANDLE_MARK 0x4f533247 // begins an IPC handle

struct physical {
    struct list link;
    int fd, device;
    size_t size;
    bool exportable, held; // by its handle
    unsigned mappings;
};

struct reservation {
    struct list link;
    CUdeviceptr base;
    size_t size;
};

struct ipc_handle {
    uint32_t mark, pid;
    uint64_t number, size;
};
_Static_assert(sizeof(struct ipc_handle) <= sizeof(CUipcMemHandle), "fits");

static struct list memories = LIST_INIT(memories), physicals = LIST_INIT(physicals);
static struct list reservations = LIST_INIT(reservations), hosts = LIST_INIT(hosts);
static uint64_t allocated, n_hosts, next_number;

uint64_t memory_allocated(void)
{
    return allocated;
}

uint64_t host_ranges(void)
{
    return n_hosts;
}

struct memory *memory_find(CUdeviceptr p, size_t len)
{
    list_for_each (it, &memories) {
        struct memory *m = list_entry(it, struct memory, link);

        if (p >= m->base && p - m->base <= m->size && len <= m->size - (p - m->base))
            return m;
    }
    return NULL;
}

struct host_range *host_find(const void *p, size_t len)
{
    const uint8_t *at = p;

    list_for_each (it, &hosts) {
        struct host_range *h = list_entry(it, struct host_range, link);

        if (at >= h->base && at + len <= h->base + h->size)
            return h;
    }
    return NULL;
}

// A range that nothing else uses and nobody may touch.
static CUdeviceptr range_reserve(size_t size, size_t alignment)
{
    uint8_t *p = mmap(NULL, size + alignment, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    uint8_t *at;

    if (p == MAP_FAILED)
        return 0;
    at = (uint8_t *)ALIGN_UP((uintptr_t)p, alignment);
    if (at > p)
        munmap(p, (size_t)(at - p));
    munmap(at + size, (size_t)(p + alignment - at));
    return (CUdeviceptr)(uintptr_t)at;
}

static void range_free(CUdeviceptr base, size_t size)
{
    munmap((void *)(uintptr_t)base, size);
}

static struct memory *memory_add(int kind, CUdeviceptr base, size_t size, int fd, int device)
{
    struct memory *m = xcalloc(1, sizeof(*m));

    m->bytes = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (m->bytes == MAP_FAILED) {
        free(m);
        return NULL;
    }
    m->kind = kind;
    m->base = base;
    m->size = size;
    m->fd = fd;
    m->device = device;
    list_push_back(&memories, &m->link);
    allocated += size;
    return m;
}

static void memory_remove(struct memory *m)
{
    allocated -= m->size;
    list_remove(&m->link);
    munmap(m->bytes, m->size);
    if (m->path)
        unlink(m->path);
    free(m->path);
    free(m);
}

// --- cuMemAlloc ---

CUresult cuMemAlloc_v2(CUdeviceptr *ret, size_t size)
{
    struct CUctx_st *c;
    struct memory *m = NULL;
    CUresult r = double_enter("cuMemAlloc", &c);
    size_t room = ALIGN_UP(size, PAGE);
    CUdeviceptr base;
    int fd;

    if (r != CUDA_SUCCESS)
        return r;
    if (!size)
        return double_leave(CUDA_ERROR_INVALID_VALUE);
    // a file without a name gets one when it is exported
    fd = open(SHM, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    base = range_reserve(room, 512 * KIB);
    if (fd >= 0 && base && ftruncate(fd, (off_t)room) == 0)
        m = memory_add(MEMORY_ALLOC, base, room, fd, c->device);
    if (!m) {
        if (fd >= 0)
            close(fd);
        return double_leave(CUDA_ERROR_OUT_OF_MEMORY);
    }
    m->context = c;
    m->accessible = true;
    *ret = base;
    return double_leave(CUDA_SUCCESS);
}

CUresult cuMemFree_v2(CUdeviceptr p)
{
    struct CUctx_st *c;
    CUresult r = double_enter("cuMemFree", &c);
    struct memory *m;

    if (r != CUDA_SUCCESS)
        return r;
    m = memory_find(p, 0);
    if (!m || m->base != p || m->kind != MEMORY_ALLOC)
        return double_leave(CUDA_ERROR_INVALID_VALUE);
    while (m->in_flight && !double_sticky()) // it waits, as the real one does
        pthread_cond_wait(&double_cond, &double_mutex);
    range_free(m->base, m->size);
    close(m->fd);
    memory_remove(m);
    return double_leave(double_sticky());
}

CUresult cuMemGetAddressRange_v2(CUdeviceptr *ret_base, size_t *ret_size, CUdeviceptr p)
{
    struct CUctx_st *c;
    CUresult r = double_enter("cuMemGetAddressRange", &c);
    struct memory *m;

    if (r != CUDA_SUCCESS)
        return r;
    m = memory_find(p, 1);
    if (!m)
        return double_leave(CUDA_ERROR_INVALID_VALUE);
    *ret_base = m->base;
    *ret_size = m->size;
    return double_leave(CUDA_SUCCESS);
}

CUresult cuPointerGetAttribute(void *ret, int attribute, CUdeviceptr p)
{
    CUresult r = double_enter("cuPointerGetAttribute", NULL);
    struct memory *m;

    if (r != CUDA_SUCCESS)
        return r;
    m = memory_find(p, 1);
    if (!m && attribute == CU_POINTER_ATTRIBUTE_MEMORY_TYPE && host_find((void *)(uintptr_t)p, 1))
        *(unsigned *)ret = CU_MEMORYTYPE_HOST;
    else if (!m)
        r = CUDA_ERROR_INVALID_VALUE;
    else if (attribute == CU_POINTER_ATTRIBUTE_MEMORY_TYPE)
        *(unsigned *)ret = CU_MEMORYTYPE_DEVICE;
    else if (attribute == CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL)
        *(int *)ret = m->device;
    else if (attribute == CU_POINTER_ATTRIBUTE_CONTEXT)
        *(CUcontext *)ret = m->context; // NULL for mapped memory: it belongs to none
    else
        r = CUDA_ERROR_INVALID_VALUE;
    return double_leave(r);
}

// --- physical memory, exported and mapped ---

CUresult cuMemGetAllocationGranularity(size_t *ret, const CUmemAllocationProp *prop, int option)
{
    CUresult r = double_enter("cuMemGetAllocationGranularity", NULL);

    if (r != CUDA_SUCCESS)
        return r;
    *ret = GRANULARITY;
    return double_leave(CUDA_SUCCESS);
}

static struct physical *physical_add(int fd, size_t size, int device, bool exportable)
{
    struct physical *p = xcalloc(1, sizeof(*p));

    *p = (struct physical){
        .fd = fd, .size = size, .device = device, .exportable = exportable, .held = true};
    list_push_back(&physicals, &p->link);
    return p;
}

static void physical_drop(struct physical *p)
{
    if (p->held || p->mappings)
        return;
    list_remove(&p->link);
    close(p->fd);
    free(p);
}

static struct physical *physical_of(CUmemGenericAllocationHandle handle)
{
    list_for_each (it, &physicals) {
        struct physical *p = list_entry(it, struct physical, link);

        if ((uintptr_t)p == handle && p->held)
            return p;
    }
    return NULL;
}

CUresult cuMemCreate(CUmemGenericAllocationHandle *ret, size_t size,
                     const CUmemAllocationProp *prop, unsigned long long flags)
{
    CUresult r = double_enter("cuMemCreate", NULL);
    bool exportable;
    int fd;

    if (r != CUDA_SUCCESS)
        return r;
    exportable = prop->requestedHandleTypes == CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    if (!size || size % GRANULARITY || flags || prop->type != CU_MEM_ALLOCATION_TYPE_PINNED ||
        prop->location.type != CU_MEM_LOCATION_TYPE_DEVICE ||
        (prop->requestedHandleTypes && !exportable))
        return double_leave(CUDA_ERROR_INVALID_VALUE);
    if (!double_device_valid(prop->location.id))
        return double_leave(CUDA_ERROR_INVALID_DEVICE);
    if (exportable && double_without("fd"))
        return double_leave(CUDA_ERROR_NOT_SUPPORTED);
    fd = memfd_create("cuda-double", MFD_CLOEXEC);
    if (fd < 0 || ftruncate(fd, (off_t)size) < 0)
        double_undefined("no memory");
    *ret = (uintptr_t)physical_add(fd, size, prop->location.id, exportable);
    return double_leave(CUDA_SUCCESS);
}

CUresult cuMemRelease(CUmemGenericAllocationHandle handle)
{
    CUresult r = double_enter("cuMemRelease", NULL);
    struct physical *p;

    if (r != CUDA_SUCCESS)
        return r;
    p = physical_of(handle);
    if (!p)
        return double_leave(CUDA_ERROR_INVALID_VALUE);
    p->held = false;
    physical_drop(p);
    return double_leave(CUDA_SUCCESS);
}

CUresult cuMemExportToShareableHandle(void *ret, CUmemGenericAllocationHandle handle, int type,
                                      unsigned long long flags)
{
    CUresult r = double_enter("cuMemExportToShareableHandle", NULL);
    struct physical *p;
    int fd;

    if (r != CUDA_SUCCESS)
        return r;
    p = physical_of(handle);
    if (!p || !p->exportable || type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR || flags)
        return double_leave(CUDA_ERROR_INVALID_VALUE);
    fd = fcntl(p->fd, F_DUPFD_CLOEXEC, 0);
    if (fd < 0)
        return double_leave(CUDA_ERROR_OUT_OF_MEMORY);
    *(int *)ret = fd;
    return double_leave(CUDA_SUCCESS);
}

CUresult cuMemImportFromShareableHandle(CUmemGenericAllocationHandle *ret, void *os_handle,
                                        int type)
{
    CUresult r = double_enter("cuMemImportFromShareableHandle", NULL);
    int fd = (int)(intptr_t)os_handle;
    char link[64], name[64] = {0};
    struct stat st;

    if (r != CUDA_SUCCESS)
        return r;
    snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
    // any other descriptor is nothing to it
    if (type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR || fstat(fd, &st) < 0 ||
        readlink(link, name, sizeof(name) - 1) < 0 || strncmp(name, "/memfd:cuda-double", 18) != 0)
        return double_leave(CUDA_ERROR_INVALID_VALUE);
    fd = fcntl(fd, F_DUPFD_CLOEXEC, 0);
    if (fd < 0)
        return double_leave(CUDA_ERROR_OUT_OF_MEMORY);
    *ret = (uintptr_t)physical_add(fd, (size_t)st.st_size, 0, false);
    return double_leave(CUDA_SUCCESS);
}

static struct reservation *reservation_of(CUdeviceptr p, size_t size)
{
    list_for_each (it, &reservations) {
        struct reservation *v = list_entry(it, struct reservation, link);

        if (p >= v->base && p - v->base <= v->size && size <= v->size - (p - v->base))
            return v;
    }
    return NULL;
}

CUresult cuMemAddressReserve(CUdeviceptr *ret, size_t size, size_t alignment, CUdeviceptr at,
                             unsigned long long flags)
{
    CUresult r = double_enter("cuMemAddressReserve", NULL);
    struct reservation *v;

    if (r != CUDA_SUCCESS)
        return r;
    if (!size || size % GRANULARITY || at || flags)
        return double_leave(CUDA_ERROR_INVALID_VALUE);
    v = xcalloc(1, sizeof(*v));
    v->size = size;
    v->base = range_reserve(size, MAX(alignment, GRANULARITY));
    if (!v->base)
        double_undefined("no memory");
    list_push_back(&reservations, &v->link);
    *ret = v->base;
    return double_leave(CUDA_SUCCESS);
}

CUresult cuMemAddressFree(CUdeviceptr p, size_t size)
{
    CUresult r = double_enter("cuMemAddressFree", NULL);
    struct reservation *v;

    if (r != CUDA_SUCCESS)
        return r;
    v = reservation_of(p, size);
    if (!v || v->base != p || v->size != size || memory_find(p, 0))
        return double_leave(CUDA_ERROR_INVALID_VALUE);
    range_free(p, size);
    list_remove(&v->link);
    free(v);
    return double_leave(CUDA_SUCCESS);
}

CUresult cuMemMap(CUdeviceptr p, size_t size, size_t offset, CUmemGenericAllocationHandle handle,
                  unsigned long long flags)
{
    CUresult r = double_enter("cuMemMap", NULL);
    struct physical *physical;
    struct memory *m;

    if (r != CUDA_SUCCESS)
        return r;
    physical = physical_of(handle);
    if (!physical || offset || flags || size % GRANULARITY || size > physical->size ||
        !reservation_of(p, size) || memory_find(p, 0))
        return double_leave(CUDA_ERROR_INVALID_VALUE);
    m = memory_add(MEMORY_MAPPED, p, size, physical->fd, physical->device);
    if (!m)
        return double_leave(CUDA_ERROR_MAP_FAILED);
    m->physical = physical;
    physical->mappings++;
    return double_leave(CUDA_SUCCESS);
}

CUresult cuMemUnmap(CUdeviceptr p, size_t size)
{
    CUresult r = double_enter("cuMemUnmap", NULL);
    struct physical *physical;
    struct memory *m;

    if (r != CUDA_SUCCESS)
        return r;
    m = memory_find(p, size);
    if (!m || m->kind != MEMORY_MAPPED || m->base != p || m->size != size)
        return double_leave(CUDA_ERROR_INVALID_VALUE);
    if (m->in_flight)
        double_undefined("cuMemUnmap of memory that a copy is under way to");
    physical = m->physical;
    memory_remove(m);
    physical->mappings--;
    physical_drop(physical);
    return double_leave(CUDA_SUCCESS);
}

CUresult cuMemSetAccess(CUdeviceptr p, size_t size, const CUmemAccessDesc *desc, size_t n)
{
    CUresult r = double_enter("cuMemSetAccess", NULL);
    struct memory *m;

    if (r != CUDA_SUCCESS)
        return r;
    m = memory_find(p, size);
    if (!m || m->kind != MEMORY_MAPPED || n != 1 ||
        desc->location.type != CU_MEM_LOCATION_TYPE_DEVICE ||
        !double_device_valid(desc->location.id))
        return double_leave(CUDA_ERROR_INVALID_VALUE);
    m->accessible = desc->flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    return double_leave(CUDA_SUCCESS);
}

// --- IPC handles: the file of the memory gets a name while it is exported ---

static char *ipc_path(const struct ipc_handle *h)
{
    return xasprintf(SHM "/os2g-cuda-double.%u.%llu", h->pid, (unsigned long long)h->number);
}

CUresult cuIpcGetMemHandle(CUipcMemHandle *ret, CUdeviceptr p)
{
    struct ipc_handle h = {.mark = HANDLE_MARK, .pid = (uint32_t)getpid()};
    CUresult r = double_enter("cuIpcGetMemHandle", NULL);
    struct memory *m;
    char link[64];

    if (r != CUDA_SUCCESS)
        return r;
    m = memory_find(p, 1);
    if (!m || m->kind != MEMORY_ALLOC)
        return double_leave(CUDA_ERROR_INVALID_VALUE);
    h.size = m->size;
    if (!m->path)
        m->number = ++next_number;
    h.number = m->number;
    if (!m->path) {
        m->path = ipc_path(&h);
        snprintf(link, sizeof(link), "/proc/self/fd/%d", m->fd);
        // whoever drives the copy engine may be another user
        if (fchmod(m->fd, 0666) < 0 ||
            linkat(AT_FDCWD, link, AT_FDCWD, m->path, AT_SYMLINK_FOLLOW) < 0)
            double_undefined("cannot name what is exported in " SHM);
    }
    memset(ret, 0, sizeof(*ret));
    memcpy(ret->reserved, &h, sizeof(h));
    return double_leave(CUDA_SUCCESS);
}

CUresult cuIpcOpenMemHandle_v2(CUdeviceptr *ret, CUipcMemHandle handle, unsigned flags)
{
    struct CUctx_st *c;
    CUresult r = double_enter("cuIpcOpenMemHandle", &c);
    struct memory *m = NULL;
    struct ipc_handle h;
    char *path;
    int fd;

    if (r != CUDA_SUCCESS)
        return r;
    memcpy(&h, handle.reserved, sizeof(h));
    if (h.mark != HANDLE_MARK || flags != CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS)
        return double_leave(CUDA_ERROR_INVALID_VALUE);
    if (h.pid == (uint32_t)getpid())
        return double_leave(CUDA_ERROR_INVALID_CONTEXT);
    path = ipc_path(&h);
    list_for_each (it, &memories) {
        struct memory *have = list_entry(it, struct memory, link);

        if (have->kind == MEMORY_IPC && !strcmp(have->path, path))
            m = have;
    }
    if (m) {
        free(path);
    } else {
        fd = open(path, O_RDWR | O_CLOEXEC);
        if (fd >= 0)
            m = memory_add(MEMORY_IPC, range_reserve(h.size, GRANULARITY), h.size, fd, c->device);
        if (!m) {
            free(path);
            return double_leave(CUDA_ERROR_MAP_FAILED);
        }
        m->path = path;
        m->context = c;
        m->accessible = true;
    }
    m->opens++;
    *ret = m->base;
    return double_leave(CUDA_SUCCESS);
}

CUresult cuIpcCloseMemHandle(CUdeviceptr p)
{
    CUresult r = double_enter("cuIpcCloseMemHandle", NULL);
    struct memory *m;

    if (r != CUDA_SUCCESS)
        return r;
    m = memory_find(p, 0);
    if (!m || m->kind != MEMORY_IPC || m->base != p)
        return double_leave(CUDA_ERROR_INVALID_VALUE);
    if (m->in_flight)
        double_undefined("cuIpcCloseMemHandle of memory that a copy is under way to");
    if (--m->opens == 0) {
        range_free(m->base, m->size);
        close(m->fd);
        free(m->path); // the name is its owner's
        m->path = NULL;
        memory_remove(m);
    }
    return double_leave(CUDA_SUCCESS);
}

static __attribute__((destructor)) void remove_names(void)
{
    list_for_each (it, &memories) {
        struct memory *m = list_entry(it, struct memory, link);

        if (m->kind == MEMORY_ALLOC && m->path)
            unlink(m->path);
    }
}

// --- host memory ---

CUresult cuMemHostRegister_v2(void *p, size_t size, unsigned flags)
{
    struct CUctx_st *c;
    CUresult r = double_enter("cuMemHostRegister", &c);
    struct host_range *h;
    uint8_t *base = p;

    if (r != CUDA_SUCCESS)
        return r;
    if (!p || !size || flags & ~(CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP))
        return double_leave(CUDA_ERROR_INVALID_VALUE);
    list_for_each (it, &hosts) {
        h = list_entry(it, struct host_range, link);
        if (base < h->base + h->size && h->base < base + size)
            return double_leave(CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED);
    }
    h = xcalloc(1, sizeof(*h));
    h->base = base;
    h->size = size;
    list_push_back(&hosts, &h->link);
    n_hosts++;
    return double_leave(CUDA_SUCCESS);
}

CUresult cuMemHostUnregister(void *p)
{
    struct CUctx_st *c;
    CUresult r = double_enter("cuMemHostUnregister", &c);
    struct host_range *h;

    if (r != CUDA_SUCCESS)
        return r;
    h = host_find(p, 1);
    if (!h || h->base != p)
        return double_leave(CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED);
    if (h->in_flight)
        double_undefined("cuMemHostUnregister of memory that a copy is reading");
    list_remove(&h->link);
    free(h);
    n_hosts--;
    return double_leave(CUDA_SUCCESS);
}

CUresult cuMemHostGetDevicePointer_v2(CUdeviceptr *ret, void *p, unsigned flags)
{
    struct CUctx_st *c;
    CUresult r = double_enter("cuMemHostGetDevicePointer", &c);

    if (r != CUDA_SUCCESS)
        return r;
    if (!host_find(p, 1) || flags)
        return double_leave(CUDA_ERROR_INVALID_VALUE);
    *ret = (CUdeviceptr)(uintptr_t)p;
    return double_leave(CUDA_SUCCESS);
}
