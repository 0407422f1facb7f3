// SPDX-License-Identifier: Apache-2.0
// GPU memory, allocated here or by others, and which way bytes take into it.
#include "host/cuda_impl.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum way { WAY_ANY, WAY_OPEN, WAY_PULL }; // what OS2G_CUDA asks for

struct cuda_buffer {
    struct os2g_buffer base; // first
    struct client_cuda *cuda;
    CUdevice device;
    CUcontext context;
    bool retained;            // the context is the device's primary one, held by us
    struct cuda_lanes *lanes; // pulled
    // allocated here
    CUdeviceptr mapped;
    size_t mapped_size;
    CUmemGenericAllocationHandle handle;
    unsigned stage; // how far allocating has come: 1 created, 2 reserved, 3 mapped
};

static struct cuda_buffer *of(struct os2g_buffer *b)
{
    return container_of(b, struct cuda_buffer, base);
}

CUcontext cuda_buffer_context(const struct os2g_buffer *b)
{
    return container_of(b, const struct cuda_buffer, base)->context;
}

struct cuda_lanes *cuda_buffer_lanes(const struct os2g_buffer *b)
{
    return container_of(b, const struct cuda_buffer, base)->lanes;
}

// --- what a connection has ---

int cuda_fail(const struct client_cuda *cuda, int error, const char *what, CUresult r)
{
    return client_fail(error, "%s: %s", what, cuda_error(cuda->d, r));
}

int client_cuda_get(struct os2g *c, struct client_cuda **ret)
{
    const char *why = "";
    const struct cuda_driver *d = cuda_driver_get(&why);

    if (!d) {
        client_fail(-ENODEV, "%s", why);
        return -ENODEV;
    }
    pthread_mutex_lock(&c->locked.lock.mutex);
    if (!c->locked.cuda) {
        struct client_cuda *cuda = xcalloc(1, sizeof(*cuda));

        cuda->client = c;
        cuda->d = d;
        cuda->forks = fork_count();
        cuda_pull_new(cuda);
        cuda_streams_new(cuda);
        c->locked.cuda = cuda;
    }
    *ret = c->locked.cuda;
    pthread_mutex_unlock(&c->locked.lock.mutex);
    if ((*ret)->forks == fork_count())
        return 0;
    client_fail(-EPERM, "CUDA cannot be used in a child of the process that began to");
    return -EPERM;
}

void client_cuda_end(struct client_cuda *cuda)
{
    if (!cuda)
        return;
    cuda_streams_end(cuda);
}

void client_cuda_free(struct client_cuda *cuda)
{
    if (!cuda)
        return;
    cuda_streams_free(cuda);
    cuda_pull_free(cuda);
    free(cuda);
}

static int way_asked_for(enum way *ret)
{
    const char *s = getenv("OS2G_CUDA");

    if (!s || !*s)
        *ret = WAY_ANY;
    else if (!strcmp(s, "open"))
        *ret = WAY_OPEN;
    else if (!strcmp(s, "pull"))
        *ret = WAY_PULL;
    else {
        client_fail(-EINVAL, "OS2G_CUDA is '%s'; it may be 'open' or 'pull'", s);
        return -EINVAL;
    }
    return 0;
}

// --- the kind ---

static int copy_in(struct os2g_buffer *b, uint64_t offset, const void *from, uint64_t len)
{
    struct cuda_buffer *g = of(b);
    CUdeviceptr to = (CUdeviceptr)(uintptr_t)b->base + offset;

    return cuda_lanes_copy(g->cuda, g->lanes, to, from, len) == CUDA_SUCCESS ? 0 : -EIO;
}

static void deallocate(struct cuda_buffer *g)
{
    const struct cuda_driver *d = g->cuda->d;

    if (g->stage >= 3)
        d->cuMemUnmap(g->mapped, g->mapped_size);
    if (g->stage >= 2)
        d->cuMemAddressFree(g->mapped, g->mapped_size);
    if (g->stage >= 1)
        d->cuMemRelease(g->handle);
}

static void release(struct os2g_buffer *b)
{
    struct cuda_buffer *g = of(b);
    struct client_cuda *cuda = g->cuda;
    bool ours = b->forks == fork_count(); // else it is the parent's
    bool current = ours && g->context && cuda->d->cuCtxPushCurrent(g->context) == CUDA_SUCCESS;
    CUcontext popped;

    // whose threads may have held any lock of cuda's when this process began
    if (!ours) {
        free(g);
        return;
    }
    cuda_lanes_put(cuda, g->lanes);
    deallocate(g);
    if (b->staging)
        cuda_pull_staging_put(cuda);
    if (atomic_fetch_sub(&cuda->buffers, 1) == 1)
        cuda_streams_unpin(cuda);
    if (current)
        cuda->d->cuCtxPopCurrent(&popped);
    if (g->retained)
        cuda->d->cuDevicePrimaryCtxRelease(g->device);
    free(g);
}

static const struct buffer_kind kind = {copy_in, release};

static struct cuda_buffer *new_buffer(struct client_cuda *cuda, void *base, size_t size)
{
    struct cuda_buffer *g = xcalloc(1, sizeof(*g));

    g->base.client = cuda->client;
    g->base.kind = &kind;
    g->base.memory = OS2G_MEMORY_CUDA;
    g->base.base = base;
    g->base.size = size;
    g->base.forks = fork_count();
    g->base.refs = 1;
    g->cuda = cuda;
    atomic_fetch_add(&cuda->buffers, 1);
    return g;
}

// The caller's current context if it is the device's, else the device's primary one.
static CUresult settle_context(struct cuda_buffer *g, CUcontext preferred)
{
    const struct cuda_driver *d = g->cuda->d;
    CUcontext current = preferred;
    CUdevice device = -1;
    CUresult r = CUDA_SUCCESS;

    if (!current)
        r = d->cuCtxGetCurrent(&current);
    if (r == CUDA_SUCCESS && current && !preferred)
        r = d->cuCtxGetDevice(&device);
    if (r != CUDA_SUCCESS)
        return r;
    if (current && (preferred || device == g->device)) {
        g->context = current;
        return CUDA_SUCCESS;
    }
    r = d->cuDevicePrimaryCtxRetain(&g->context, g->device);
    g->retained = r == CUDA_SUCCESS;
    return r;
}

// --- the way of the bytes ---

// fd or handle: what the daemon opens.
static int land(struct cuda_buffer *g, int fd, const CUipcMemHandle *handle, uint64_t offset,
                uint64_t size)
{
    uint8_t uuid[16];
    CUresult r = cuda_device_uuid(g->cuda->d, g->device, uuid);

    if (r != CUDA_SUCCESS)
        return cuda_fail(g->cuda, -EIO, "the GPU's identity", r);
    return transport_memory_add_cuda(g->base.client->transport, &g->base.landing, g->device, uuid,
                                     fd, handle ? handle->reserved : NULL, offset, size);
}

static int pull(struct cuda_buffer *g)
{
    int rc = cuda_pull_staging(g->cuda, g->context, &g->base.staging);

    if (rc == 0)
        g->lanes = cuda_lanes_get(g->cuda, g->context);
    return rc;
}

// rc: of landing, with its sentence, when that was tried.
static int fall_back(struct cuda_buffer *g, enum way way, int rc)
{
    if (rc == 0 && way != WAY_PULL)
        return 0;
    if (way == WAY_OPEN)
        return rc;
    if (way == WAY_ANY)
        client_event(g->base.client, OS2G_EVENT_FALLBACK,
                     "bytes for the GPU land in pinned host memory and are copied from there: %s",
                     client_error());
    return pull(g);
}

static int finish(struct cuda_buffer *g, int rc, struct os2g_buffer **ret)
{
    if (rc == 0)
        rc = buffer_insert(&g->base);
    if (rc < 0)
        buffer_unref(&g->base);
    else
        *ret = &g->base;
    return rc;
}

// --- memory of our own ---

static CUresult zero(struct cuda_buffer *g)
{
    const struct cuda_driver *d = g->cuda->d;
    CUstream stream;
    CUresult r = d->cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING);

    if (r != CUDA_SUCCESS)
        return r;
    r = d->cuMemsetD8Async(g->mapped, 0, g->mapped_size, stream);
    if (r == CUDA_SUCCESS)
        r = d->cuStreamSynchronize(stream);
    d->cuStreamDestroy(stream);
    return r;
}

// The context is current.
static CUresult allocate(struct cuda_buffer *g, bool exportable)
{
    const struct cuda_driver *d = g->cuda->d;
    CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                .requestedHandleTypes =
                                    exportable ? CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR : 0,
                                .location = {CU_MEM_LOCATION_TYPE_DEVICE, g->device}};
    CUmemAccessDesc access = {.location = prop.location,
                              .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    size_t granularity;
    CUresult r =
        d->cuMemGetAllocationGranularity(&granularity, &prop, CU_MEM_ALLOC_GRANULARITY_MINIMUM);

    if (r != CUDA_SUCCESS)
        return r;
    g->mapped_size = ALIGN_UP(g->base.size, MAX(granularity, 2 * MIB));
    r = d->cuMemCreate(&g->handle, g->mapped_size, &prop, 0);
    if (r != CUDA_SUCCESS)
        return r;
    g->stage = 1;
    r = d->cuMemAddressReserve(&g->mapped, g->mapped_size, 2 * MIB, 0, 0);
    if (r != CUDA_SUCCESS)
        return r;
    g->stage = 2;
    r = d->cuMemMap(g->mapped, g->mapped_size, 0, g->handle, 0);
    if (r != CUDA_SUCCESS)
        return r;
    g->stage = 3;
    g->base.base = cuda_pointer(g->mapped);
    r = d->cuMemSetAccess(g->mapped, g->mapped_size, &access, 1);
    return r == CUDA_SUCCESS ? zero(g) : r;
}

static int share_allocated(struct cuda_buffer *g)
{
    int fd, rc;
    CUresult r = g->cuda->d->cuMemExportToShareableHandle(
        &fd, g->handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0);

    if (r != CUDA_SUCCESS)
        return cuda_fail(g->cuda, -EOPNOTSUPP, "a descriptor of GPU memory", r);
    rc = land(g, fd, NULL, 0, g->mapped_size);
    close(fd);
    return rc;
}

static int allocate_and_share(struct cuda_buffer *g, enum way way)
{
    const struct cuda_driver *d = g->cuda->d;
    int exportable = 0, rc = 0;
    CUresult r;

    if (way != WAY_PULL &&
        d->cuDeviceGetAttribute(&exportable,
                                CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED,
                                g->device) != CUDA_SUCCESS)
        exportable = 0;
    r = allocate(g, exportable);
    if (r != CUDA_SUCCESS)
        return cuda_fail(g->cuda, r == CUDA_ERROR_OUT_OF_MEMORY ? -ENOMEM : -EIO,
                         "memory of the GPU", r);
    if (exportable)
        rc = share_allocated(g);
    else if (way != WAY_PULL)
        rc = client_fail(-EOPNOTSUPP, "this GPU cannot share its memory by descriptor");
    return fall_back(g, way, rc);
}

int cuda_buffer_alloc(struct os2g *c, struct os2g_buffer **ret, size_t size, int device)
{
    struct client_cuda *cuda;
    struct cuda_buffer *g;
    CUcontext popped;
    enum way way;
    CUresult r;
    int rc = way_asked_for(&way);

    if (rc == 0)
        rc = client_cuda_get(c, &cuda);
    if (rc < 0)
        return rc;
    g = new_buffer(cuda, NULL, size);
    r = cuda->d->cuDeviceGet(&g->device, device);
    if (r == CUDA_SUCCESS)
        r = settle_context(g, NULL);
    if (r == CUDA_SUCCESS)
        r = cuda->d->cuCtxPushCurrent(g->context);
    if (r != CUDA_SUCCESS) {
        buffer_unref(&g->base);
        return cuda_fail(cuda, -ENODEV, "the GPU", r);
    }
    rc = allocate_and_share(g, way);
    cuda->d->cuCtxPopCurrent(&popped);
    return finish(g, rc, ret);
}

// --- memory of others ---

static int share_foreign(struct cuda_buffer *g)
{
    const struct cuda_driver *d = g->cuda->d;
    CUdeviceptr p = (CUdeviceptr)(uintptr_t)g->base.base, base;
    CUipcMemHandle handle;
    size_t size;
    CUresult r = d->cuMemGetAddressRange(&base, &size, p);

    if (r == CUDA_SUCCESS && (p - base > size || g->base.size > size - (p - base)))
        return client_fail(-EOPNOTSUPP, "this GPU memory is more than one allocation");
    if (r == CUDA_SUCCESS)
        r = d->cuIpcGetMemHandle(&handle, base);
    if (r != CUDA_SUCCESS)
        return cuda_fail(g->cuda, -EOPNOTSUPP, "an IPC handle of this GPU memory", r);
    return land(g, -1, &handle, p - base, g->base.size);
}

// What kind of memory it is, where, and in which context.
static int look_at(struct cuda_buffer *g)
{
    const struct cuda_driver *d = g->cuda->d;
    CUdeviceptr p = (CUdeviceptr)(uintptr_t)g->base.base;
    CUcontext context = NULL;
    unsigned type = 0;
    CUresult r = d->cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, p);

    if (r != CUDA_SUCCESS || type != CU_MEMORYTYPE_DEVICE)
        return client_fail(-EINVAL, "this is no memory of a GPU");
    r = d->cuPointerGetAttribute(&g->device, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, p);
    // memory that was mapped, or that comes out of a pool, has none
    if (r == CUDA_SUCCESS &&
        d->cuPointerGetAttribute(&context, CU_POINTER_ATTRIBUTE_CONTEXT, p) != CUDA_SUCCESS)
        context = NULL;
    if (r == CUDA_SUCCESS)
        r = settle_context(g, context);
    return r == CUDA_SUCCESS ? 0 : cuda_fail(g->cuda, -EIO, "the GPU of this memory", r);
}

bool cuda_is_memory(const void *p)
{
    const struct cuda_driver *d = cuda_driver_present() ? cuda_driver_get(NULL) : NULL;
    unsigned type = 0;

    return d &&
           d->cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
                                    (CUdeviceptr)(uintptr_t)p) == CUDA_SUCCESS &&
           type == CU_MEMORYTYPE_DEVICE;
}

int cuda_buffer_register(struct os2g *c, struct os2g_buffer **ret, void *p, size_t size,
                         bool registered)
{
    struct client_cuda *cuda;
    struct cuda_buffer *g;
    CUcontext popped;
    enum way way;
    int rc = way_asked_for(&way);

    if (rc == 0)
        rc = client_cuda_get(c, &cuda);
    if (rc != 0)
        return rc;
    if (!p || !size || size > UINTPTR_MAX - (uintptr_t)p)
        return client_fail(-EINVAL, "a registration of no memory");
    g = new_buffer(cuda, p, size);
    g->base.registered = registered;
    rc = look_at(g);
    if (rc == 0 && cuda->d->cuCtxPushCurrent(g->context) != CUDA_SUCCESS)
        rc = client_fail(-EIO, "the context of this GPU memory is of no use any more");
    if (rc == 0) {
        rc = fall_back(g, way, way == WAY_PULL ? 0 : share_foreign(g));
        cuda->d->cuCtxPopCurrent(&popped);
    }
    return finish(g, rc, ret);
}

int os2g_buffer_register_cuda(struct os2g *c, struct os2g_buffer **ret, void *device_ptr,
                              size_t size)
{
    int rc = client_enter(c);

    return rc < 0 ? rc : cuda_buffer_register(c, ret, device_ptr, size, false);
}
