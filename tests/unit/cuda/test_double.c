// SPDX-License-Identifier: Apache-2.0
// The double of the CUDA driver does what the real one is documented to do, as far as other tests
// rely on it.
#include "test.h"

#include "base/clock.h"
#include "cuda/cuda.h"

#include <dlfcn.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define SIZE (2 * MIB)

static const struct cuda_driver *d;
static void (*set_fail)(const char *spec);
static uint64_t (*count)(const char *what);
static CUcontext context;
static CUstream stream;
static CUdeviceptr gpu;
static uint8_t *pinned;

#define ok(call) assert_int_equal(call, CUDA_SUCCESS)

static int setup(void **state)
{
    set_fail("");
    unsetenv("OS2G_CUDA_DOUBLE_DELAY_US");
    memset(pinned, 'a', SIZE);
    ok(d->cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    ok(d->cuMemAlloc(&gpu, SIZE));
    return 0;
}

static int teardown(void **state)
{
    set_fail("");
    ok(d->cuStreamSynchronize(stream));
    ok(d->cuStreamDestroy(stream));
    ok(d->cuMemFree(gpu));
    return 0;
}

static void a_copy_goes_on_after_the_call_and_reads_pinned_memory_late(void **state)
{
    char got[4];

    setenv("OS2G_CUDA_DOUBLE_DELAY_US", "50000", 1);
    ok(d->cuMemcpyHtoDAsync(gpu, pinned, SIZE, stream));
    assert_int_equal(d->cuStreamQuery(stream), CUDA_ERROR_NOT_READY);
    memcpy(pinned, "late", 4);
    ok(d->cuStreamSynchronize(stream));
    ok(d->cuMemcpyDtoH(got, gpu, 4));
    assert_memory_equal(got, "late", 4);
}

static void memory_that_is_not_registered_is_copied_at_once_and_counted(void **state)
{
    uint64_t before = count("pageable");
    char source[4] = {'s', 'o', 'o', 'n'}, got[4];

    setenv("OS2G_CUDA_DOUBLE_DELAY_US", "20000", 1);
    ok(d->cuMemcpyHtoDAsync(gpu, source, 4, stream));
    memset(source, 0, 4);
    ok(d->cuStreamSynchronize(stream));
    ok(d->cuMemcpyDtoH(got, gpu, 4));
    assert_memory_equal(got, "soon", 4);
    assert_int_equal(count("pageable"), before + 1);
}

static void device_memory_is_not_for_the_host(void **state)
{
    int status;
    pid_t pid = fork();

    if (pid == 0) {
        signal(SIGSEGV, SIG_DFL);
        _exit(*(volatile char *)(uintptr_t)gpu & 0);
    }
    waitpid(pid, &status, 0);
    assert_true(WIFSIGNALED(status));
}

static void a_pointer_outside_any_allocation_is_refused(void **state)
{
    assert_int_equal(d->cuMemcpyHtoDAsync(gpu, pinned, SIZE + 1, stream), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(d->cuMemcpyHtoDAsync(0x1000, pinned, 1, stream), CUDA_ERROR_INVALID_VALUE);
}

static void freed_memory_is_refused(void **state)
{
    CUdeviceptr p;

    ok(d->cuMemAlloc(&p, SIZE));
    ok(d->cuMemFree(p));
    assert_int_equal(d->cuMemcpyHtoDAsync(p, pinned, 1, stream), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(d->cuMemFree(p), CUDA_ERROR_INVALID_VALUE);
}

static void a_thread_without_a_context_is_refused(void **state)
{
    CUcontext popped;

    ok(d->cuCtxPopCurrent(&popped));
    assert_int_equal(d->cuMemcpyHtoDAsync(gpu, pinned, 1, stream), CUDA_ERROR_INVALID_CONTEXT);
    ok(d->cuCtxPushCurrent(popped));
}

static void a_stream_of_another_context_is_refused(void **state)
{
    CUcontext second, popped;

    ok(d->cuDevicePrimaryCtxRetain(&second, 1));
    ok(d->cuCtxPushCurrent(second));
    assert_int_equal(d->cuMemcpyHtoDAsync(gpu, pinned, 1, stream), CUDA_ERROR_INVALID_HANDLE);
    ok(d->cuCtxPopCurrent(&popped));
    ok(d->cuDevicePrimaryCtxRelease(1));
}

static atomic_int order;
static CUresult from_host_function;

static void on_stream(void *arg)
{
    *(int *)arg = atomic_fetch_add(&order, 1);
    from_host_function = d->cuStreamQuery(NULL);
}

static void host_functions_run_in_order_and_may_not_call_the_driver(void **state)
{
    int places[3] = {-1, -1, -1};

    atomic_store(&order, 0);
    for (int i = 0; i < 3; i++)
        ok(d->cuLaunchHostFunc(stream, on_stream, &places[i]));
    ok(d->cuStreamSynchronize(stream));
    for (int i = 0; i < 3; i++)
        assert_int_equal(places[i], i);
    assert_int_equal(from_host_function, CUDA_ERROR_NOT_PERMITTED);
}

static void an_event_is_ready_when_what_was_before_it_is(void **state)
{
    CUevent e;

    ok(d->cuEventCreate(&e, CU_EVENT_DISABLE_TIMING));
    ok(d->cuEventQuery(e)); // never recorded
    setenv("OS2G_CUDA_DOUBLE_DELAY_US", "50000", 1);
    ok(d->cuMemcpyHtoDAsync(gpu, pinned, SIZE, stream));
    ok(d->cuEventRecord(e, stream));
    assert_int_equal(d->cuEventQuery(e), CUDA_ERROR_NOT_READY);
    ok(d->cuEventSynchronize(e));
    ok(d->cuEventQuery(e));
    ok(d->cuEventDestroy(e));
}

static void a_stream_waits_for_a_value_in_registered_memory(void **state)
{
    _Atomic uint32_t *flag = (void *)pinned;
    CUdeviceptr at;
    int place = -1;

    atomic_store(flag, 0);
    ok(d->cuMemHostGetDevicePointer(&at, pinned, 0));
    ok(d->cuStreamWaitValue32(stream, at, 1, CU_STREAM_WAIT_VALUE_GEQ));
    ok(d->cuLaunchHostFunc(stream, on_stream, &place));
    usleep(20000);
    assert_int_equal(place, -1);
    atomic_store(flag, 1);
    ok(d->cuStreamSynchronize(stream));
    assert_int_not_equal(place, -1);
}

static void the_nth_call_can_be_made_to_fail(void **state)
{
    set_fail("cuMemAlloc:2:2");
    CUdeviceptr p[2];

    ok(d->cuMemAlloc(&p[0], SIZE));
    assert_int_equal(d->cuMemAlloc(&p[1], SIZE), CUDA_ERROR_OUT_OF_MEMORY);
    ok(d->cuMemAlloc(&p[1], SIZE)); // no error that sticks
    ok(d->cuMemFree(p[0]));
    ok(d->cuMemFree(p[1]));
}

static void an_error_of_a_copy_sticks_and_stops_what_is_behind_it(void **state)
{
    int place = -1;

    set_fail("copy:1");
    d->cuMemcpyHtoDAsync(gpu, pinned, SIZE, stream);
    d->cuLaunchHostFunc(stream, on_stream, &place);
    assert_int_equal(d->cuStreamSynchronize(stream), CUDA_ERROR_ILLEGAL_ADDRESS);
    assert_int_equal(place, -1);
    assert_int_equal(d->cuMemAlloc(&(CUdeviceptr){0}, SIZE), CUDA_ERROR_ILLEGAL_ADDRESS);
}

static void a_child_process_has_no_driver(void **state)
{
    pid_t pid;
    int status, n;

#ifdef __SANITIZE_THREAD__
    skip(); // a child of a process with threads has no end under it
#endif
    pid = fork();
    if (pid == 0)
        _exit(d->cuDeviceGetCount(&n) == CUDA_ERROR_NOT_INITIALIZED ? 0 : 1);
    waitpid(pid, &status, 0);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

static void unmapping_under_a_copy_ends_the_process(void **state)
{
    pid_t pid = fork(), child;
    int status;

    if (pid == 0) { // without threads of the double's: a process of its own
        char *argv[] = {"test", "--unmap", NULL};

        close(STDERR_FILENO); // where it says why
        execv("/proc/self/exe", argv);
        _exit(0);
    }
    child = waitpid(pid, &status, 0);
    assert_int_equal(child, pid);
    assert_true(WIFSIGNALED(status));
}

static int unmap_under_a_copy(void)
{
    CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}};
    CUmemAccessDesc access = {{CU_MEM_LOCATION_TYPE_DEVICE, 0}, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    CUmemGenericAllocationHandle handle;
    CUdeviceptr p;

    setenv("OS2G_CUDA_DOUBLE_DELAY_US", "500000", 1);
    if (d->cuMemCreate(&handle, SIZE, &prop, 0) || d->cuMemAddressReserve(&p, SIZE, 0, 0, 0) ||
        d->cuMemMap(p, SIZE, 0, handle, 0) || d->cuMemSetAccess(p, SIZE, &access, 1) ||
        d->cuMemcpyHtoDAsync(p, pinned, SIZE, NULL))
        return 0;
    d->cuMemUnmap(p, SIZE);
    return 0;
}

static int before_all(void **state)
{
    void *library = dlopen(getenv("OS2G_CUDA_LIBRARY"), RTLD_NOW | RTLD_LOCAL);

    setenv("OS2G_CUDA_DOUBLE_DEVICES", "2", 1);
    d = cuda_driver_get(NULL);
    if (!d || !library)
        return -1;
    *(void **)&set_fail = dlsym(library, "cuda_double_fail");
    *(void **)&count = dlsym(library, "cuda_double_count");
    pinned = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    return d->cuDevicePrimaryCtxRetain(&context, 0) || d->cuCtxSetCurrent(context) ||
           d->cuMemHostRegister(pinned, SIZE, CU_MEMHOSTREGISTER_DEVICEMAP);
}

static int after_all(void **state)
{
    ok(d->cuMemHostUnregister(pinned));
    assert_int_equal(count("allocated"), 0);
    assert_int_equal(count("registered"), 0);
    return d->cuDevicePrimaryCtxRelease(0);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        TEST(a_copy_goes_on_after_the_call_and_reads_pinned_memory_late),
        TEST(memory_that_is_not_registered_is_copied_at_once_and_counted),
        TEST(device_memory_is_not_for_the_host),
        TEST(a_pointer_outside_any_allocation_is_refused),
        TEST(freed_memory_is_refused),
        TEST(a_thread_without_a_context_is_refused),
        TEST(a_stream_of_another_context_is_refused),
        TEST(host_functions_run_in_order_and_may_not_call_the_driver),
        TEST(an_event_is_ready_when_what_was_before_it_is),
        TEST(a_stream_waits_for_a_value_in_registered_memory),
        TEST(the_nth_call_can_be_made_to_fail),
        TEST(an_error_of_a_copy_sticks_and_stops_what_is_behind_it),
        TEST(a_child_process_has_no_driver),
        TEST(unmapping_under_a_copy_ends_the_process),
    };

    if (argc > 1 && !strcmp(argv[1], "--unmap"))
        return before_all(NULL) ? 0 : unmap_under_a_copy();
    return cmocka_run_group_tests(tests, before_all, after_all);
}
