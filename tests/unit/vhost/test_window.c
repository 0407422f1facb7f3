// SPDX-License-Identifier: Apache-2.0
// GPU memory that the device opens, on the double of the CUDA driver. This program is the helper,
// too, and allocates the memory.
#include "test.h"

#include "host.h"

#include "cuda/cuda.h"
#include "gdd/engine.h"
#include "gdd/region.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define WINDOW (16 * GIB)
#define SIZE   (2 * MIB)

static const struct cuda_driver *d;
static struct device device;
static struct host host;
static CUdeviceptr gpu;

static const struct memfs_options options = {.big_size = GIB, .files = 8, .file_size = 10000};

static int before_all(void **state)
{
    CUcontext context;

    d = cuda_driver_get(NULL);
    assert_non_null(d);
    assert_int_equal(d->cuDevicePrimaryCtxRetain(&context, 0), CUDA_SUCCESS);
    assert_int_equal(d->cuCtxSetCurrent(context), CUDA_SUCCESS);
    assert_int_equal(d->cuMemAlloc(&gpu, SIZE), CUDA_SUCCESS);
    return 0;
}

static int setup(void **state)
{
    device_init(&device, &options);
    host_init(&host, &device, 7);
    host_mount(&host);
    host_hello(&host);
    return 0;
}

static int teardown(void **state)
{
    host_remove(&host);
    device_fini(&device);
    host_fini(&host);
    return 0;
}

static struct os2g_region_in window(enum os2g_region_op op)
{
    struct os2g_region_in in = {.op = op, .addr = WINDOW, .size = SIZE};
    CUipcMemHandle handle;

    assert_int_equal(d->cuIpcGetMemHandle(&handle, gpu), CUDA_SUCCESS);
    memcpy(in.handle, handle.reserved, sizeof(in.handle));
    assert_int_equal(cuda_device_uuid(d, 0, in.uuid), CUDA_SUCCESS);
    return in;
}

static int region(const struct os2g_region_in *in)
{
    host_send(&host, 3, OS2G_OP_REGION, 0, in, sizeof(*in), 16);
    return host_wait(&host, 3)->error;
}

static int region_op(enum os2g_region_op op)
{
    const struct os2g_region_in in = window(op);

    return region(&in);
}

// The header in the host's memory, the data in the window.
static void read_into_window(uint64_t fh, unsigned i, uint64_t offset)
{
    const struct fuse_read_in in = {.fh = fh, .offset = offset, .size = 65536};

    driver_describe(&host.driver, (uint16_t)(2 * i + 1), host_out_addr(&host, i), 16,
                    VRING_DESC_F_WRITE | VRING_DESC_F_NEXT, 30);
    driver_describe(&host.driver, 30, WINDOW + 4096, 65536, VRING_DESC_F_WRITE, 0);
    host_send_to(&host, i, FUSE_READ, 0, &in, sizeof(in));
}

static void assert_read_into(CUdeviceptr p, uint64_t fh, uint64_t offset)
{
    static char got[65536];

    read_into_window(fh, 1, offset);
    assert_int_equal(host_wait(&host, 1)->error, 0);
    assert_int_equal(host.used[1], 16 + 65536);
    assert_int_equal(d->cuMemcpyDtoH(got, p + 4096, sizeof(got)), CUDA_SUCCESS);
    assert_true(memfs_equal(got, offset, sizeof(got)));
}

static void a_read_lands_in_a_window_by_its_handle(void **state)
{
    uint64_t fh = host_open(&host, host_lookup(&host, FUSE_ROOT_ID, "big"));

    assert_int_equal(region_op(OS2G_REGION_ADD_CUDA_IPC), 0);
    assert_int_equal(region_op(OS2G_REGION_WAIT), 0);
    assert_read_into(gpu, fh, 77);
    assert_int_equal(device_stats(&device).landed_engine_bytes, 65536);
    assert_int_equal(region_op(OS2G_REGION_REMOVE), 0);
    assert_int_equal(region_op(OS2G_REGION_REMOVE), -ENOENT);
}

static int export_gpu(CUdeviceptr *ret, CUmemGenericAllocationHandle *ret_handle)
{
    CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                .requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
                                .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}};
    CUmemAccessDesc access = {{CU_MEM_LOCATION_TYPE_DEVICE, 0}, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    int fd;

    assert_int_equal(d->cuMemCreate(ret_handle, SIZE, &prop, 0), CUDA_SUCCESS);
    assert_int_equal(d->cuMemAddressReserve(ret, SIZE, 0, 0, 0), CUDA_SUCCESS);
    assert_int_equal(d->cuMemMap(*ret, SIZE, 0, *ret_handle, 0), CUDA_SUCCESS);
    assert_int_equal(d->cuMemSetAccess(*ret, SIZE, &access, 1), CUDA_SUCCESS);
    assert_int_equal(d->cuMemExportToShareableHandle(&fd, *ret_handle,
                                                     CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0),
                     CUDA_SUCCESS);
    return fd;
}

static struct vhost_command region_command(enum vhost_command_kind kind)
{
    return (struct vhost_command){
        .kind = kind, .session = 7, .region = {.addr = WINDOW, .size = SIZE}};
}

static void a_read_lands_in_a_window_whose_descriptor_came(void **state)
{
    uint64_t fh = host_open(&host, host_lookup(&host, FUSE_ROOT_ID, "big"));
    CUmemGenericAllocationHandle handle;
    CUdeviceptr p;
    int fd = export_gpu(&p, &handle);

    assert_int_equal(region_op(OS2G_REGION_ADD_CUDA_FD), 0);
    device_do(&device, region_command(VHOST_REGION_ADD), fd);
    assert_int_equal(region_op(OS2G_REGION_WAIT), 0);
    assert_read_into(p, fh, 78);
    // the window goes, then its descriptor
    assert_int_equal(region_op(OS2G_REGION_REMOVE), 0);
    device_do(&device, region_command(VHOST_REGION_REMOVE), -1);
    // and all of it once more, the descriptor first
    assert_int_equal(region_op(OS2G_REGION_ADD_CUDA_FD), 0);
    device_do(&device, region_command(VHOST_REGION_ADD), fd);
    assert_read_into(p, fh, 79);
    device_do(&device, region_command(VHOST_REGION_REMOVE), -1);
    assert_int_equal(region_op(OS2G_REGION_REMOVE), -ENOENT);
    close(fd);
    assert_int_equal(d->cuMemUnmap(p, SIZE), CUDA_SUCCESS);
    assert_int_equal(d->cuMemAddressFree(p, SIZE), CUDA_SUCCESS);
    assert_int_equal(d->cuMemRelease(handle), CUDA_SUCCESS);
}

static void memory_that_cannot_be_opened_says_why(void **state)
{
    struct os2g_region_in in = window(OS2G_REGION_ADD_CUDA_IPC);
    uint64_t fh = host_open(&host, host_lookup(&host, FUSE_ROOT_ID, "big"));

    memset(in.uuid, 0xee, sizeof(in.uuid));
    assert_int_equal(region(&in), 0);
    assert_int_equal(region_op(OS2G_REGION_WAIT), -ENODEV);
    read_into_window(fh, 1, 0);
    assert_int_equal(host_wait(&host, 1)->error, -EIO);
    assert_int_equal(region_op(OS2G_REGION_REMOVE), 0);
    // the session has not suffered
    assert_int_equal(region_op(OS2G_REGION_ADD_CUDA_IPC), 0);
    assert_read_into(gpu, fh, 80);
}

static void windows_that_make_no_sense_are_refused(void **state)
{
    struct os2g_region_in in = window(OS2G_REGION_ADD_CUDA_IPC);

    in.size = 0;
    assert_int_equal(region(&in), -EINVAL);
    in.size = UINT64_MAX;
    assert_int_equal(region(&in), -EINVAL);
    in.size = SIZE;
    in.addr = DRIVER_ADDR; // shared memory lies there
    assert_int_equal(region(&in), -EEXIST);
    in = window(99);
    assert_int_equal(region(&in), -EINVAL);
    assert_int_equal(region_op(OS2G_REGION_WAIT), -ENOENT);
    assert_int_equal(region_op(OS2G_REGION_ADD_CUDA_IPC), 0);
    assert_int_equal(region_op(OS2G_REGION_ADD_CUDA_IPC), -EEXIST);
}

static void there_are_so_many_windows_and_no_more(void **state)
{
    struct os2g_region_in in = window(OS2G_REGION_ADD_CUDA_FD);
    unsigned n = 0;

    while (region(&in) == 0) {
        in.addr += SIZE;
        n++;
    }
    assert_true(n > 1 && n <= 1000);
    in.op = OS2G_REGION_REMOVE;
    in.addr -= SIZE;
    assert_int_equal(region(&in), 0);
    in.op = OS2G_REGION_ADD_CUDA_FD;
    assert_int_equal(region(&in), 0);
}

static void share_piece(uint64_t addr)
{
    int fd = memfd_create("piece", MFD_CLOEXEC);

    assert_int_equal(ftruncate(fd, 4096), 0);
    device_do(&device,
              (struct vhost_command){
                  .kind = VHOST_REGION_ADD,
                  .session = 7,
                  .region = {.addr = addr, .user_addr = addr, .size = 4096},
              },
              fd);
    close(fd);
}

static void windows_leave_a_host_all_its_other_memory(void **state)
{
    struct os2g_region_in in = window(OS2G_REGION_ADD_CUDA_IPC);

    for (; region(&in) == 0; in.addr += SIZE)
        ;
    // one is the host's already; GET_MAX_MEM_SLOTS has told it how many
    for (uint64_t i = 1; i < REGIONS_MAX; i++)
        share_piece(2 * WINDOW + i * 4096);
    assert_int_not_equal(host_lookup(&host, FUSE_ROOT_ID, "dir"), 0);
}

static void what_waits_for_a_window_that_goes_ends(void **state)
{
    const struct os2g_region_in wait = window(OS2G_REGION_WAIT);

    assert_int_equal(region_op(OS2G_REGION_ADD_CUDA_FD), 0);
    host_send(&host, 4, OS2G_OP_REGION, 0, &wait, sizeof(wait), 16);
    assert_int_equal(region_op(OS2G_REGION_REMOVE), 0);
    assert_int_equal(host_wait(&host, 4)->error, -ECANCELED);
}

static void a_session_may_end_with_its_windows(void **state)
{
    const struct os2g_region_in wait = window(OS2G_REGION_WAIT);
    struct host other = host;

    host_init(&host, &device, 8);
    host_mount(&host);
    host_hello(&host);
    assert_int_equal(region_op(OS2G_REGION_ADD_CUDA_IPC), 0);
    host_send(&host, 4, OS2G_OP_REGION, 0, &wait, sizeof(wait), 16);
    host_remove(&host);
    host_fini(&host);
    host = other;
    assert_int_not_equal(host_lookup(&host, FUSE_ROOT_ID, "dir"), 0);
}

static void a_guest_has_no_windows(void **state)
{
    struct host libos2g = host;

    host_init(&host, &device, 8);
    host_mount(&host);
    assert_int_equal(region_op(OS2G_REGION_ADD_CUDA_IPC), -ENOSYS);
    host_remove(&host);
    host_fini(&host);
    host = libos2g;
}

// --- a worker that is killed ---

static void the_next_worker_opens_windows_again(void **state)
{
    pid_t worker;
    uint64_t fh;

#ifdef __SANITIZE_THREAD__
    print_message("ThreadSanitizer has no forks of a process with threads (CUDA's)\n");
    skip();
#endif
    host_make(&host, 7);
    worker = host_worker_start(&host, &options, false);
    host_mount(&host);
    host_hello(&host);
    fh = host_open(&host, host_lookup(&host, FUSE_ROOT_ID, "big"));
    assert_int_equal(region_op(OS2G_REGION_ADD_CUDA_IPC), 0);
    assert_read_into(gpu, fh, 81);
    for (unsigned i = 0; i < 3; i++) {
        host_worker_kill(worker);
        read_into_window(fh, 1, 1000 + i);
        worker = host_worker_start(&host, &options, true);
        assert_int_equal(host_wait(&host, 1)->error, 0);
        assert_read_into(gpu, fh, 82 + i);
    }
    assert_int_equal(region_op(OS2G_REGION_REMOVE), 0);
    host_worker_kill(worker);
    host_fini(&host);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        TEST(a_read_lands_in_a_window_by_its_handle),
        TEST(a_read_lands_in_a_window_whose_descriptor_came),
        TEST(memory_that_cannot_be_opened_says_why),
        TEST(windows_that_make_no_sense_are_refused),
        TEST(there_are_so_many_windows_and_no_more),
        TEST(windows_leave_a_host_all_its_other_memory),
        TEST(what_waits_for_a_window_that_goes_ends),
        TEST(a_session_may_end_with_its_windows),
        TEST(a_guest_has_no_windows),
        cmocka_unit_test(the_next_worker_opens_windows_again),
    };

    if (argc > 1 && !strcmp(argv[1], ENGINE_ARGUMENT))
        return engine_helper_main(argc, argv);
    return cmocka_run_group_tests(tests, before_all, NULL);
}
