// SPDX-License-Identifier: Apache-2.0
// GPU memory as a destination, pulled: the fake device cannot open it, and the driver is a double.
#include "world.h"

#include "base/clock.h"
#include "cuda/cuda.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define BIG (40 * MIB + 5)

static const struct cuda_driver *d;
static void (*set_fail)(const char *spec);
static uint64_t (*count)(const char *what);
static CUcontext context;

#define ok(call) assert_int_equal(call, CUDA_SUCCESS)

static int setup(void **state)
{
    set_fail("");
    unsetenv("OS2G_CUDA");
    unsetenv("OS2G_CUDA_DOUBLE_DELAY_US");
    return world_setup(state);
}

static int teardown(void **state)
{
    set_fail("");
    world_teardown(state);
    // whatever was pinned or allocated has been given back
    assert_int_equal(count("allocated"), 0);
    assert_int_equal(count("registered"), 0);
    return 0;
}

static struct os2g_buffer *alloc_gpu(struct world *w, size_t size)
{
    struct os2g_buffer *b;

    if (os2g_buffer_alloc(w->c, &b, size, OS2G_MEMORY_CUDA, 0) < 0)
        fail_msg("%s", os2g_last_error());
    assert_int_equal(os2g_buffer_memory(b), OS2G_MEMORY_CUDA);
    assert_int_equal(os2g_buffer_size(b), size);
    return b;
}

static void check_gpu(struct world *w, const char *name, uint64_t offset, const void *p,
                      uint64_t len)
{
    uint8_t *got = xmalloc(len);

    ok(d->cuMemcpyDtoH(got, (CUdeviceptr)(uintptr_t)p, len));
    world_check(w, name, offset, got, len);
    free(got);
}

static struct os2g_file *open_big(struct world *w)
{
    struct os2g_file *f;

    assert_int_equal(os2g_open(w->c, "big.bin", &f), 0);
    return f;
}

static void gpu_memory_that_the_daemon_cannot_open_is_pulled_into(void **state)
{
    struct world *w = *state;
    struct os2g_buffer *b = alloc_gpu(w, 48 * MIB);
    struct os2g_file *f = open_big(w);
    struct os2g_stats stats = {.size = sizeof(stats)};
    uint8_t *base = os2g_buffer_base(b);

    assert_int_equal(w->fallbacks, 1);
    assert_int_equal(os2g_read(f, base, 48 * MIB, 0, 0), BIG);
    check_gpu(w, "big.bin", 0, base, BIG);
    assert_int_equal(os2g_read(f, base, 1000, 5 * MIB + 7, 333), 1000);
    check_gpu(w, "big.bin", 5 * MIB + 7, base + 333, 1000);
    assert_int_equal(os2g_stats_read(w->c, &stats), 0);
    assert_int_equal(stats.cuda_bytes, BIG + 1000);
    assert_int_equal(count("pageable"), 0);
    os2g_file_close(f);
    os2g_buffer_free(b);
}

static void fill_with_pieces(struct os2g *c, struct os2g_buffer *b[64], unsigned *ret_n)
{
    while (os2g_buffer_alloc(c, &b[*ret_n], MIB, OS2G_MEMORY_HOST, 0) == 0)
        assert_true(++*ret_n < 64);
}

static void gpu_memory_beyond_all_pieces_says_so_and_leaves_no_window(void **state)
{
    struct world *w = *state;
    struct os2g_buffer *b[64], *gpu;
    unsigned n = 0;

    setenv("OS2G_CUDA", "open", 1);
    fake_device_set(w->device, FAKE_GPU);
    fill_with_pieces(w->c, b, &n);
    for (unsigned i = 0; i < 5; i++) {
        assert_int_equal(os2g_buffer_alloc(w->c, &gpu, MIB, OS2G_MEMORY_CUDA, 0), -ENOSPC);
        assert_non_null(
            strstr(os2g_last_error(), "pieces of memory of one connection than the 32"));
    }
    assert_int_equal(fake_device_counts(w->device)->windows, 0);
    os2g_buffer_free(b[--n]);
    gpu = alloc_gpu(w, MIB);
    assert_int_equal(fake_device_counts(w->device)->windows, 1);
    os2g_buffer_free(gpu);
    while (n)
        os2g_buffer_free(b[--n]);
    assert_int_equal(w->lost, 0);
}

static void more_gpu_memory_than_the_daemon_opens_says_so(void **state)
{
    struct world *w = *state;
    struct os2g_buffer *b[2], *third;

    setenv("OS2G_CUDA", "open", 1);
    fake_device_set(w->device, FAKE_GPU);
    for (unsigned i = 0; i < ARRAY_LEN(b); i++)
        b[i] = alloc_gpu(w, MIB);
    assert_int_equal(os2g_buffer_alloc(w->c, &third, MIB, OS2G_MEMORY_CUDA, 0), -ENOSPC);
    assert_non_null(strstr(os2g_last_error(), "opens no more pieces of GPU memory"));
    for (unsigned i = 0; i < ARRAY_LEN(b); i++)
        os2g_buffer_free(b[i]);
    assert_int_equal(fake_device_counts(w->device)->windows, 0);
}

static void gpu_memory_does_not_wait_for_ever_for_a_daemon_that_has_gone(void **state)
{
    struct world *w = *state;
    struct os2g *c = world_connect(w, 8, 300);
    struct os2g_buffer *b;

    setenv("OS2G_CUDA", "open", 1);
    fake_device_free(w->device);
    w->device = NULL;
    assert_int_equal(os2g_buffer_alloc(c, &b, MIB, OS2G_MEMORY_CUDA, 0), -ENOTCONN);
    os2g_close(c);
}

static void allocated_memory_is_zeroed(void **state)
{
    struct world *w = *state;
    struct os2g_buffer *b = alloc_gpu(w, MIB);
    static const uint8_t zeros[MIB];
    uint8_t *got = xmalloc(MIB);

    ok(d->cuMemcpyDtoH(got, (CUdeviceptr)(uintptr_t)os2g_buffer_base(b), MIB));
    assert_memory_equal(got, zeros, MIB);
    free(got);
    os2g_buffer_free(b);
}

static void an_object_is_fetched_into_gpu_memory(void **state)
{
    struct world *w = *state;
    struct os2g_buffer *b = alloc_gpu(w, MIB);
    uint64_t size = 0;

    assert_int_equal(os2g_fetch(w->c, "a.bin", os2g_buffer_base(b), MIB, 0, &size), 0);
    assert_int_equal(size, 100000);
    check_gpu(w, "a.bin", 0, os2g_buffer_base(b), 100000);
    os2g_buffer_free(b);
}

static void a_part_of_an_allocation_of_the_callers_can_be_registered(void **state)
{
    struct world *w = *state;
    struct os2g_buffer *b;
    struct os2g_file *f = open_big(w);
    CUdeviceptr p;
    uint8_t *part;

    ok(d->cuMemAlloc(&p, 4 * MIB));
    part = (uint8_t *)(uintptr_t)(p + MIB);
    assert_int_equal(os2g_buffer_register_cuda(w->c, &b, part, MIB), 0);
    assert_int_equal(os2g_read(f, part, MIB, 0, 0), MIB);
    check_gpu(w, "big.bin", 0, part, MIB);
    os2g_buffer_free(b);
    os2g_file_close(f);
    ok(d->cuMemFree(p)); // it is the caller's
}

static void gpu_memory_is_registered_without_a_handle_too(void **state)
{
    struct world *w = *state;
    struct os2g_file *f = open_big(w);
    CUdeviceptr p;
    void *at;

    ok(d->cuMemAlloc(&p, MIB));
    at = (void *)(uintptr_t)p;
    assert_int_equal(os2g_buf_register(w->c, at, MIB, 0), 0);
    assert_int_equal(os2g_read(f, at, MIB, 0, 0), MIB);
    check_gpu(w, "big.bin", 0, at, MIB);
    assert_int_equal(os2g_buf_deregister(w->c, at), 0);
    assert_int_equal(os2g_buf_deregister(w->c, at), -ENOENT);
    os2g_file_close(f);
    ok(d->cuMemFree(p));
}

static void host_memory_is_no_gpus(void **state)
{
    struct world *w = *state;
    struct os2g_buffer *b;
    char host[64];

    assert_int_equal(os2g_buffer_register_cuda(w->c, &b, host, sizeof(host)), -EINVAL);
    assert_string_equal(os2g_last_error(), "this is no memory of a GPU");
}

static void without_pulling_memory_that_cannot_be_opened_is_an_error(void **state)
{
    struct world *w = *state;
    struct os2g_buffer *b;

    setenv("OS2G_CUDA", "open", 1);
    assert_true(os2g_buffer_alloc(w->c, &b, MIB, OS2G_MEMORY_CUDA, 0) < 0);
    assert_int_equal(w->fallbacks, 0);
}

static void pulling_that_was_asked_for_is_no_fallback(void **state)
{
    struct world *w = *state;

    setenv("OS2G_CUDA", "pull", 1);
    os2g_buffer_free(alloc_gpu(w, MIB));
    assert_int_equal(w->fallbacks, 0);
    setenv("OS2G_CUDA", "push", 1);
    assert_int_equal(
        os2g_buffer_alloc(w->c, &(struct os2g_buffer *){NULL}, MIB, OS2G_MEMORY_CUDA, 0), -EINVAL);
}

static void a_gpu_that_is_not_there_is_told(void **state)
{
    struct world *w = *state;
    struct os2g_buffer *b;

    assert_int_equal(os2g_buffer_alloc(w->c, &b, MIB, OS2G_MEMORY_CUDA, 7), -ENODEV);
}

static void whatever_call_fails_nothing_is_left_behind(void **state)
{
    static const char *const calls[] = {
        "cuMemCreate:1:2",       "cuMemAddressReserve:1:2", "cuMemMap:1:2",
        "cuMemSetAccess:1:1",    "cuMemsetD8Async:1:1",     "cuStreamCreate:1:2",
        "cuMemHostRegister:1:2", "cuCtxPushCurrent:1:201",  "cuDeviceGet:1:101",
    };
    struct world *w = *state;
    struct os2g_buffer *b;

    for (size_t i = 0; i < ARRAY_LEN(calls); i++) {
        set_fail(calls[i]);
        if (os2g_buffer_alloc(w->c, &b, MIB, OS2G_MEMORY_CUDA, 0) == 0)
            fail_msg("%s did not matter", calls[i]);
        set_fail("");
        assert_int_equal(count("allocated"), 0);
        assert_int_equal(count("registered"), 0);
    }
    os2g_buffer_free(alloc_gpu(w, MIB));
}

static void a_copy_that_fails_is_an_error_of_the_read(void **state)
{
    struct world *w = *state;
    struct os2g_buffer *b = alloc_gpu(w, MIB);
    struct os2g_file *f = open_big(w);

    set_fail("copy:1");
    assert_int_equal(os2g_read(f, os2g_buffer_base(b), MIB, 0, 0), -EIO);
    set_fail("");
    assert_int_equal(os2g_read(f, os2g_buffer_base(b), MIB, 0, 0), MIB);
    os2g_file_close(f);
    os2g_buffer_free(b);
}

static void a_child_has_no_gpu_buffers(void **state)
{
    struct world *w = *state;
    struct os2g_buffer *b = alloc_gpu(w, MIB);
    struct os2g_file *f = open_big(w);
    int status;
    pid_t pid = fork();

    if (pid == 0)
        _exit(os2g_read(f, os2g_buffer_base(b), 10, 0, 0) == -EPERM ? 0 : 1);
    waitpid(pid, &status, 0);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    os2g_file_close(f);
    os2g_buffer_free(b);
}

struct pulling {
    struct world *w;
    struct os2g_file *f;
    void *to;
    _Atomic bool stop;
};

static void *pull_on(void *arg)
{
    struct pulling *p = arg;

    while (!p->stop)
        assert_int_equal(os2g_read(p->f, p->to, 64 * KIB, 0, 0), 64 * KIB);
    return NULL;
}

static void a_child_frees_gpu_buffers_whatever_its_parent_s_threads_do(void **state)
{
    struct world *w = *state;
    struct os2g_buffer *b = alloc_gpu(w, MIB);
    struct pulling p = {.w = w, .f = open_big(w), .to = os2g_buffer_base(b)};
    pthread_t thread;
    int status;

    assert_int_equal(pthread_create(&thread, NULL, pull_on, &p), 0);
    for (int i = 0; i < 20; i++) {
        pid_t pid = fork();

        if (pid == 0) {
            alarm(10);
            os2g_buffer_free(b);
            os2g_buffer_free(w->buffer);
            os2g_file_close(p.f);
            os2g_close(w->c);
            _exit(0);
        }
        waitpid(pid, &status, 0);
        assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    }
    p.stop = true;
    pthread_join(thread, NULL);
    os2g_file_close(p.f);
    os2g_buffer_free(b);
}

// --- in the order of a stream ---

struct ordered {
    size_t size;
    off_t file_offset, buffer_offset;
    ssize_t bytes_read;
    ssize_t seen; // by what follows on the stream
};

static void set_parameters(void *arg)
{
    struct ordered *o = arg;

    o->size = 3000;
    o->file_offset = MIB + 1;
    o->buffer_offset = 77;
}

static void note_result(void *arg)
{
    struct ordered *o = arg;

    o->seen = o->bytes_read;
}

static void read_in_order(struct world *w, CUstream stream)
{
    struct os2g_buffer *b = alloc_gpu(w, MIB);
    struct os2g_file *f = open_big(w);
    struct ordered o = {.seen = -1};
    uint8_t *base = os2g_buffer_base(b);

    ok(d->cuLaunchHostFunc(stream, set_parameters, &o));
    assert_int_equal(
        os2g_read_async(f, base, &o.size, &o.file_offset, &o.buffer_offset, &o.bytes_read, stream),
        0);
    ok(d->cuLaunchHostFunc(stream, note_result, &o));
    ok(d->cuStreamSynchronize(stream));
    assert_int_equal(o.seen, 3000);
    check_gpu(w, "big.bin", MIB + 1, base + 77, 3000);
    os2g_file_close(f);
    os2g_buffer_free(b);
}

static void a_read_comes_in_the_order_of_its_stream(void **state)
{
    CUstream stream;

    ok(d->cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    read_in_order(*state, stream);
    ok(d->cuStreamDestroy(stream));
}

static void a_read_comes_in_the_order_of_the_default_stream(void **state)
{
    read_in_order(*state, NULL);
}

static void a_stream_like_that_of_the_copies_is_waited_for(void **state)
{
    CUstream stream;
    int least, greatest;

    ok(d->cuCtxGetStreamPriorityRange(&least, &greatest));
    ok(d->cuStreamCreateWithPriority(&stream, CU_STREAM_NON_BLOCKING, greatest));
    read_in_order(*state, stream);
    ok(d->cuStreamDestroy(stream));
}

static void a_stream_that_cannot_wait_is_waited_for(void **state)
{
    CUstream stream;

    ok(d->cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    set_fail("cuStreamWaitValue32:1:801");
    read_in_order(*state, stream);
    set_fail("cuLaunchHostFunc:3:801"); // the one behind the wait
    read_in_order(*state, stream);
    ok(d->cuStreamDestroy(stream));
}

#define MANY 100

static void many_reads_in_the_order_of_many_streams_all_come(void **state)
{
    struct world *w = *state;
    struct os2g_buffer *b = alloc_gpu(w, MANY * 8192);
    struct os2g_file *f = open_big(w);
    struct ordered o[MANY];
    uint8_t *base = os2g_buffer_base(b);
    CUstream streams[4];

    for (int i = 0; i < 4; i++)
        ok(d->cuStreamCreate(&streams[i], CU_STREAM_NON_BLOCKING));
    for (int i = 0; i < MANY; i++) {
        o[i] = (struct ordered){8192, i * 10000, i * 8192, -1, -1};
        assert_int_equal(os2g_read_async(f, base, &o[i].size, &o[i].file_offset,
                                         &o[i].buffer_offset, &o[i].bytes_read, streams[i % 4]),
                         0);
        ok(d->cuLaunchHostFunc(streams[i % 4], note_result, &o[i]));
    }
    for (int i = 0; i < 4; i++)
        ok(d->cuStreamSynchronize(streams[i]));
    for (int i = 0; i < MANY; i++) {
        assert_int_equal(o[i].seen, 8192);
        check_gpu(w, "big.bin", (uint64_t)i * 10000, base + i * 8192, 8192);
    }
    for (int i = 0; i < 4; i++)
        ok(d->cuStreamDestroy(streams[i]));
    os2g_file_close(f);
    os2g_buffer_free(b);
}

static void an_error_of_a_read_is_its_result_on_the_stream(void **state)
{
    struct world *w = *state;
    struct os2g_buffer *b = alloc_gpu(w, MIB);
    struct os2g_file *f = open_big(w);
    struct ordered o = {.size = 10, .buffer_offset = MIB - 5}; // beyond its end
    CUstream stream;

    ok(d->cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    assert_int_equal(os2g_read_async(f, os2g_buffer_base(b), &o.size, &o.file_offset,
                                     &o.buffer_offset, &o.bytes_read, stream),
                     0);
    ok(d->cuStreamSynchronize(stream));
    assert_int_equal(o.bytes_read, -EINVAL);
    ok(d->cuStreamDestroy(stream));
    os2g_file_close(f);
    os2g_buffer_free(b);
}

static void wait_for_release(void *arg)
{
    while (!*(_Atomic bool *)arg)
        usleep(1000);
}

// Whatever its address is by then.
static void a_read_whose_buffer_was_freed_before_its_turn_is_cancelled(void **state)
{
    struct world *w = *state;
    struct os2g_buffer *b = alloc_gpu(w, MIB);
    struct os2g_file *f = open_big(w);
    struct ordered o = {.size = 3000};
    _Atomic bool release = false;
    CUstream stream;

    ok(d->cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    ok(d->cuLaunchHostFunc(stream, wait_for_release, (void *)&release));
    assert_int_equal(os2g_read_async(f, os2g_buffer_base(b), &o.size, &o.file_offset,
                                     &o.buffer_offset, &o.bytes_read, stream),
                     0);
    os2g_buffer_free(b);
    release = true;
    ok(d->cuStreamSynchronize(stream));
    assert_int_equal(o.bytes_read, -ECANCELED);
    ok(d->cuStreamDestroy(stream));
    os2g_file_close(f);
}

static int before_all(void **state)
{
    void *library = dlopen(getenv("OS2G_CUDA_LIBRARY"), RTLD_NOW | RTLD_LOCAL);

    d = cuda_driver_get(NULL);
    if (!d || !library)
        return -1;
    *(void **)&set_fail = dlsym(library, "cuda_double_fail");
    *(void **)&count = dlsym(library, "cuda_double_count");
    return d->cuDevicePrimaryCtxRetain(&context, 0) || d->cuCtxSetCurrent(context);
}

static int after_all(void **state)
{
    return d->cuDevicePrimaryCtxRelease(0);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(gpu_memory_that_the_daemon_cannot_open_is_pulled_into),
        TEST(gpu_memory_beyond_all_pieces_says_so_and_leaves_no_window),
        TEST(more_gpu_memory_than_the_daemon_opens_says_so),
        TEST(gpu_memory_does_not_wait_for_ever_for_a_daemon_that_has_gone),
        TEST(allocated_memory_is_zeroed),
        TEST(an_object_is_fetched_into_gpu_memory),
        TEST(a_part_of_an_allocation_of_the_callers_can_be_registered),
        TEST(gpu_memory_is_registered_without_a_handle_too),
        TEST(host_memory_is_no_gpus),
        TEST(without_pulling_memory_that_cannot_be_opened_is_an_error),
        TEST(pulling_that_was_asked_for_is_no_fallback),
        TEST(a_gpu_that_is_not_there_is_told),
        TEST(whatever_call_fails_nothing_is_left_behind),
        TEST(a_copy_that_fails_is_an_error_of_the_read),
        TEST(a_child_has_no_gpu_buffers),
        TEST(a_child_frees_gpu_buffers_whatever_its_parent_s_threads_do),
        TEST(a_read_comes_in_the_order_of_its_stream),
        TEST(a_read_comes_in_the_order_of_the_default_stream),
        TEST(a_stream_like_that_of_the_copies_is_waited_for),
        TEST(a_stream_that_cannot_wait_is_waited_for),
        TEST(many_reads_in_the_order_of_many_streams_all_come),
        TEST(an_error_of_a_read_is_its_result_on_the_stream),
        TEST(a_read_whose_buffer_was_freed_before_its_turn_is_cancelled),
    };

    return cmocka_run_group_tests(tests, before_all, after_all);
}
