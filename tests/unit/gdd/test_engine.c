// SPDX-License-Identifier: Apache-2.0
// The engine and its helper process, on the double of the CUDA driver: this program is the helper,
// too, and allocates the "GPU" memory that the helper opens.
#include "test.h"

#include "base/clock.h"
#include "cuda/cuda.h"
#include "gdd/engine.h"

#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define ARENA  (32 * MIB)
#define MEMORY (4 * MIB)
#define WAIT_S (20 * TEST_SLOWED_DOWN)

static const struct cuda_driver *d;
static bool on_double; // else on a real GPU (scripts/gpu-check)
static struct loop *loop, *other;
static uint8_t *arena;
static int arena_fd;
static int life_fd = -1;
static struct engine *engine;
static sem_t failed, opened, closed, put_ended;
static char failed_text[256], opened_text[256];
static int opened_error;
static CUcontext context;

static void wait_for(sem_t *s)
{
    struct timespec t;

    clock_gettime(CLOCK_REALTIME, &t);
    t.tv_sec += WAIT_S;
    while (sem_timedwait(s, &t) < 0)
        assert_int_equal(errno, EINTR);
}

// --- what runs on the loop ---

static void on_failed(void *arg, const char *text)
{
    snprintf(failed_text, sizeof(failed_text), "%s", text);
    sem_post(&failed);
}

static void on_opened(void *arg, int error, const char *text)
{
    opened_error = error;
    snprintf(opened_text, sizeof(opened_text), "%s", text);
    sem_post(&opened);
}

static void on_closed(void *arg)
{
    sem_post(&closed);
}

static void make_engine(void *arg)
{
    struct engine_config c = {.program = "/proc/self/exe",
                              .life_fd = life_fd,
                              .arena_fd = arena_fd,
                              .arena = arena,
                              .arena_len = ARENA,
                              .failed = on_failed};

    *(int *)arg = engine_new(&engine, loop, &c);
}

static void free_engine(void *arg)
{
    engine_free(engine);
    engine = NULL;
}

struct opening {
    struct engine_open o;
    struct engine_memory *memory;
    int rc;
};

static void do_open(void *arg)
{
    struct opening *o = arg;

    o->o.opened = on_opened;
    o->rc = engine_memory_open(engine, &o->memory, &o->o);
}

static void do_close(void *arg)
{
    engine_memory_close(arg, on_closed, NULL);
}

struct putting {
    struct cache_put put;
    struct engine_memory *memory;
    uint64_t offset;
    struct iovec iov[4];
    int n, rc, error;
    unsigned ends;
    bool wrong_loop;
    struct loop *from;
};

static void on_put(struct cache_put *p, int error)
{
    struct putting *w = container_of(p, struct putting, put);

    w->error = error;
    w->ends++;
    w->wrong_loop = loop_self() != w->from;
    sem_post(&put_ended);
}

static void do_put(void *arg)
{
    struct putting *w = arg;

    w->put.done = on_put;
    w->from = loop_self();
    w->rc = engine_put(w->memory, w->offset, w->iov, w->n, &w->put);
}

// --- in the test's thread ---

static void begin(void)
{
    int rc;

    loop_call(loop, make_engine, &rc);
    assert_int_equal(rc, 0);
}

static void end(void)
{
    loop_call(loop, free_engine, NULL);
}

static struct engine_memory *open_it(struct engine_open o, int error)
{
    struct opening w = {.o = o};

    loop_call(loop, do_open, &w);
    assert_int_equal(w.rc, 0);
    wait_for(&opened);
    if (opened_error != error)
        print_message("%s\n", opened_text);
    assert_int_equal(opened_error, error);
    return w.memory;
}

static void close_it(struct engine_memory *m)
{
    loop_call(loop, do_close, m);
    wait_for(&closed);
}

static int put_and_wait(struct engine_memory *m, uint64_t offset, const void *from, size_t len)
{
    struct putting w = {
        .memory = m, .offset = offset, .iov = {{(void *)from, len}}, .n = 1, .ends = 0};

    loop_call(loop, do_put, &w);
    if (w.rc != -EINPROGRESS)
        return w.rc;
    wait_for(&put_ended);
    assert_int_equal(w.ends, 1);
    assert_false(w.wrong_loop);
    return w.error;
}

static void uuid_of(int device, uint8_t ret[16])
{
    assert_int_equal(cuda_device_uuid(d, device, ret), CUDA_SUCCESS);
}

// --- "GPU" memory ---

struct gpu {
    CUdeviceptr p;
    CUmemGenericAllocationHandle handle;
};

static struct gpu gpu_create(struct engine_open *ret)
{
    CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                .requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
                                .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}};
    CUmemAccessDesc access = {{CU_MEM_LOCATION_TYPE_DEVICE, 0}, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    struct gpu g;

    assert_int_equal(d->cuMemCreate(&g.handle, MEMORY, &prop, 0), CUDA_SUCCESS);
    assert_int_equal(d->cuMemAddressReserve(&g.p, MEMORY, 0, 0, 0), CUDA_SUCCESS);
    assert_int_equal(d->cuMemMap(g.p, MEMORY, 0, g.handle, 0), CUDA_SUCCESS);
    assert_int_equal(d->cuMemSetAccess(g.p, MEMORY, &access, 1), CUDA_SUCCESS);
    *ret = (struct engine_open){.size = MEMORY};
    assert_int_equal(d->cuMemExportToShareableHandle(&ret->fd, g.handle,
                                                     CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0),
                     CUDA_SUCCESS);
    uuid_of(0, ret->uuid);
    return g;
}

static void gpu_free(struct gpu g)
{
    assert_int_equal(d->cuMemUnmap(g.p, MEMORY), CUDA_SUCCESS);
    assert_int_equal(d->cuMemAddressFree(g.p, MEMORY), CUDA_SUCCESS);
    assert_int_equal(d->cuMemRelease(g.handle), CUDA_SUCCESS);
}

static void assert_gpu_holds(CUdeviceptr p, const void *bytes, size_t len)
{
    uint8_t *got = malloc(len);

    assert_int_equal(d->cuMemcpyDtoH(got, p, len), CUDA_SUCCESS);
    assert_memory_equal(got, bytes, len);
    free(got);
}

// --- the helper process ---

// The children of this process, whichever thread started them.
static unsigned children(pid_t *ret, unsigned max)
{
    DIR *dir = opendir("/proc/self/task");
    struct dirent *e;
    unsigned n = 0;

    while ((e = readdir(dir))) {
        char path[300], line[512] = "", *save = NULL;
        FILE *f;

        snprintf(path, sizeof(path), "/proc/self/task/%s/children", e->d_name);
        f = fopen(path, "re");
        if (!f)
            continue;
        if (fgets(line, sizeof(line), f))
            for (char *w = strtok_r(line, " ", &save); w && n < max; w = strtok_r(NULL, " ", &save))
                ret[n++] = atoi(w);
        fclose(f);
    }
    closedir(dir);
    return n;
}

static pid_t helper_pid(void)
{
    pid_t pids[4];

    assert_int_equal(children(pids, 4), 1);
    return pids[0];
}

// --- tests ---

// What only the double can be made to do.
static void need_double(void)
{
    if (!on_double)
        skip();
}

static int setup(void **state)
{
    pid_t before[1];

    // the helper of the test before may be a while in ending
    for (int i = 0; i < 1000 * WAIT_S && children(before, 1); i++)
        usleep(1000);
    sem_init(&failed, 0, 0);
    sem_init(&opened, 0, 0);
    sem_init(&closed, 0, 0);
    sem_init(&put_ended, 0, 0);
    unsetenv("OS2G_CUDA_DOUBLE_DELAY_US");
    unsetenv("OS2G_CUDA_DOUBLE_FAIL");
    for (size_t i = 0; i < ARENA; i++)
        arena[i] = (uint8_t)(i * 2654435761u >> 13);
    return 0;
}

static void a_put_lands_in_exported_memory_at_its_offset(void **state)
{
    struct engine_open o;
    struct gpu g = gpu_create(&o);
    struct engine_memory *m;

    begin();
    m = open_it(o, 0);
    assert_int_equal(put_and_wait(m, 4096 + 3, arena + 777, 1 * MIB), 0);
    assert_gpu_holds(g.p + 4096 + 3, arena + 777, 1 * MIB);
    close_it(m);
    end();
    gpu_free(g);
}

static void a_put_lands_in_allocated_memory_by_its_handle(void **state)
{
    struct engine_open o = {.fd = -1, .handle_offset = 64 * KIB, .size = 1 * MIB};
    struct engine_memory *m;
    CUipcMemHandle handle;
    CUdeviceptr p;

    assert_int_equal(d->cuMemAlloc(&p, 2 * MIB), CUDA_SUCCESS);
    assert_int_equal(d->cuIpcGetMemHandle(&handle, p), CUDA_SUCCESS);
    memcpy(o.handle, handle.reserved, sizeof(o.handle));
    uuid_of(0, o.uuid);
    begin();
    m = open_it(o, 0);
    assert_int_equal(put_and_wait(m, 5, arena + 100, 1000), 0);
    assert_gpu_holds(p + 64 * KIB + 5, arena + 100, 1000);
    close_it(m);
    end();
    assert_int_equal(d->cuMemFree(p), CUDA_SUCCESS);
}

static void a_window_beyond_the_allocation_is_refused(void **state)
{
    struct engine_open o = {.fd = -1, .handle_offset = 1 * MIB, .size = 1 * MIB + 1};
    struct engine_memory *m;
    CUipcMemHandle handle;
    CUdeviceptr p;

    assert_int_equal(d->cuMemAlloc(&p, 2 * MIB), CUDA_SUCCESS);
    assert_int_equal(d->cuIpcGetMemHandle(&handle, p), CUDA_SUCCESS);
    memcpy(o.handle, handle.reserved, sizeof(o.handle));
    uuid_of(0, o.uuid);
    begin();
    m = open_it(o, -EIO);
    assert_int_equal(put_and_wait(m, 0, arena, 1), -EIO);
    close_it(m);
    end();
    assert_int_equal(d->cuMemFree(p), CUDA_SUCCESS);
}

static void pieces_that_lie_apart_land_side_by_side(void **state)
{
    struct engine_open o;
    struct gpu g = gpu_create(&o);
    struct putting w = {.iov = {{arena, 64 * KIB},
                                {arena + 64 * KIB, 64 * KIB},
                                {arena + 8 * MIB, 64 * KIB},
                                {arena + 4 * MIB, 100}},
                        .n = 4};

    begin();
    w.memory = open_it(o, 0);
    loop_call(loop, do_put, &w);
    assert_int_equal(w.rc, -EINPROGRESS);
    wait_for(&put_ended);
    assert_int_equal(w.error, 0);
    assert_gpu_holds(g.p, arena, 128 * KIB);
    assert_gpu_holds(g.p + 128 * KIB, arena + 8 * MIB, 64 * KIB);
    assert_gpu_holds(g.p + 192 * KIB, arena + 4 * MIB, 100);
    close_it(w.memory);
    end();
    gpu_free(g);
}

static void what_is_put_beyond_the_end_is_refused_at_once(void **state)
{
    struct engine_open o;
    struct gpu g = gpu_create(&o);
    struct engine_memory *m;

    begin();
    m = open_it(o, 0);
    assert_int_equal(put_and_wait(m, MEMORY - 10, arena, 11), -EFAULT);
    assert_int_equal(put_and_wait(m, UINT64_MAX - 4, arena, 11), -EFAULT);
    assert_int_equal(put_and_wait(m, MEMORY - 10, arena, 10), 0);
    assert_int_equal(put_and_wait(m, 0, arena, 0), 0);
    close_it(m);
    end();
    gpu_free(g);
}

#define MANY 3000 // more than are with the helper at a time

static void more_puts_than_fit_end_once_each_on_their_loops(void **state)
{
    struct putting *w = calloc(MANY, sizeof(*w));
    struct engine_open o;
    struct gpu g = gpu_create(&o);
    struct engine_memory *m;

    begin();
    m = open_it(o, 0);
    for (size_t i = 0; i < MANY; i++) {
        w[i].memory = m;
        w[i].offset = i * 1024;
        w[i].iov[0] = (struct iovec){arena + i * 2048, 1000};
        w[i].n = 1;
        loop_call(i % 2 ? loop : other, do_put, &w[i]);
        assert_int_equal(w[i].rc, -EINPROGRESS);
    }
    for (size_t i = 0; i < MANY; i++)
        wait_for(&put_ended);
    for (size_t i = 0; i < MANY; i++) {
        assert_int_equal(w[i].ends, 1);
        assert_int_equal(w[i].error, 0);
        assert_false(w[i].wrong_loop);
        assert_gpu_holds(g.p + i * 1024, arena + i * 2048, 1000);
    }
    close_it(m);
    end();
    gpu_free(g);
    free(w);
}

static void a_close_waits_for_copies_under_way(void **state)
{
    need_double();
    struct engine_open o;
    struct gpu g = gpu_create(&o);
    struct putting w = {.iov = {{arena, 1 * MIB}}, .n = 1};

    setenv("OS2G_CUDA_DOUBLE_DELAY_US", "200000", 1);
    begin();
    w.memory = open_it(o, 0);
    loop_call(loop, do_put, &w);
    assert_int_equal(w.rc, -EINPROGRESS);
    close_it(w.memory);
    assert_int_equal(w.ends, 1);
    assert_int_equal(w.error, 0);
    unsetenv("OS2G_CUDA_DOUBLE_DELAY_US");
    assert_gpu_holds(g.p, arena, 1 * MIB);
    end();
    gpu_free(g);
}

static void when_the_helper_is_killed_every_put_ends_with_an_error(void **state)
{
    need_double();
    struct engine_open o;
    struct gpu g = gpu_create(&o);
    struct putting w[10] = {0};
    struct engine_memory *m;

    setenv("OS2G_CUDA_DOUBLE_DELAY_US", "300000", 1);
    begin();
    m = open_it(o, 0);
    for (int i = 0; i < 10; i++) {
        w[i] = (struct putting){.memory = m, .iov = {{arena, 1 * MIB}}, .n = 1};
        loop_call(i % 2 ? loop : other, do_put, &w[i]);
    }
    kill(helper_pid(), SIGKILL);
    wait_for(&failed);
    for (int i = 0; i < 10; i++)
        wait_for(&put_ended);
    assert_string_equal(failed_text, "");
    for (int i = 0; i < 10; i++) {
        assert_int_equal(w[i].ends, 1);
        assert_int_equal(w[i].error, -EIO);
    }
    assert_int_equal(put_and_wait(m, 0, arena, 10), -EIO);
    close_it(m);
    end();
    gpu_free(g);
}

static void when_the_helper_is_killed_what_is_being_opened_is_told_so(void **state)
{
    need_double();
    struct opening w = {0};
    struct gpu g = gpu_create(&w.o);

    begin();
    kill(helper_pid(), SIGSTOP);
    loop_call(loop, do_open, &w);
    assert_int_equal(w.rc, 0);
    kill(helper_pid(), SIGKILL);
    wait_for(&opened);
    assert_int_equal(opened_error, -EIO);
    assert_string_equal(opened_text, "its helper process has died");
    wait_for(&failed);
    close_it(w.memory);
    end();
    gpu_free(g);
}

static void a_cuda_error_ends_the_helper_and_is_told(void **state)
{
    need_double();
    struct engine_open o;
    struct gpu g = gpu_create(&o);
    struct engine_memory *m;

    setenv("OS2G_CUDA_DOUBLE_FAIL", "cuMemcpyHtoDAsync:2", 1);
    begin();
    m = open_it(o, 0);
    assert_int_equal(put_and_wait(m, 0, arena, 1000), 0);
    assert_int_equal(put_and_wait(m, 0, arena, 1000), -EIO);
    wait_for(&failed);
    assert_non_null(strstr(failed_text, "an illegal memory access was encountered"));
    close_it(m);
    end();
    gpu_free(g);
}

static void an_error_of_a_copy_under_way_is_noticed(void **state)
{
    need_double();
    struct engine_open o;
    struct gpu g = gpu_create(&o);
    struct engine_memory *m;

    setenv("OS2G_CUDA_DOUBLE_FAIL", "copy:1:719", 1);
    begin();
    m = open_it(o, 0);
    assert_int_equal(put_and_wait(m, 0, arena, 1000), -EIO);
    wait_for(&failed);
    assert_non_null(strstr(failed_text, "unspecified launch failure"));
    close_it(m);
    end();
    gpu_free(g);
}

static void memory_that_cannot_be_opened_leaves_the_rest_alone(void **state)
{
    struct engine_open o, bad = {.fd = dup(arena_fd), .size = MEMORY}, nowhere = {.fd = -1};
    struct gpu g = gpu_create(&o);
    struct engine_memory *m, *no_memory, *no_gpu;

    uuid_of(0, bad.uuid);
    begin();
    m = open_it(o, 0);
    no_memory = open_it(bad, -EIO);
    no_gpu = open_it(nowhere, -ENODEV);
    assert_string_equal(opened_text, "that GPU is not visible here");
    assert_int_equal(put_and_wait(no_memory, 0, arena, 10), -EIO);
    assert_int_equal(put_and_wait(m, 0, arena, 1000), 0);
    assert_gpu_holds(g.p, arena, 1000);
    close_it(no_memory);
    close_it(no_gpu);
    close_it(m);
    end();
    gpu_free(g);
}

static void without_a_driver_no_memory_can_be_opened(void **state)
{
    const char *library = getenv("OS2G_CUDA_LIBRARY");
    char *kept = strdup(library ? library : "");
    struct engine_open o = {.fd = -1, .size = MEMORY};
    struct engine_memory *m;

    setenv("OS2G_CUDA_LIBRARY", "/nowhere/libcuda.so", 1);
    begin();
    m = open_it(o, -ENODEV);
    assert_non_null(strstr(opened_text, "no CUDA driver"));
    close_it(m);
    end();
    setenv("OS2G_CUDA_LIBRARY", kept, 1);
    free(kept);
}

static void the_gpu_is_found_by_its_uuid(void **state)
{
    need_double();
    struct engine_open o;
    struct gpu g = gpu_create(&o);
    struct engine_memory *m;

    // the helper numbers its devices the other way round
    setenv("OS2G_CUDA_DOUBLE_DEVICES", "2", 1);
    setenv("CUDA_VISIBLE_DEVICES", "1,0", 1);
    begin();
    o.device = 7; // of no meaning to it
    m = open_it(o, 0);
    assert_int_equal(put_and_wait(m, 0, arena, 1000), 0);
    assert_gpu_holds(g.p, arena, 1000);
    close_it(m);
    end();
    unsetenv("CUDA_VISIBLE_DEVICES");
    setenv("CUDA_VISIBLE_DEVICES", "1", 1);
    gpu_free(g);
    g = gpu_create(&o);
    begin();
    m = open_it(o, -ENODEV);
    close_it(m);
    end();
    unsetenv("CUDA_VISIBLE_DEVICES");
    unsetenv("OS2G_CUDA_DOUBLE_DEVICES");
    gpu_free(g);
}

static void the_helper_has_no_descriptor_but_its_own(void **state)
{
    need_double();
    struct engine_open o;
    struct gpu g = gpu_create(&o);
    struct engine_memory *m;
    char path[64], target[256];
    struct dirent *e;
    ssize_t n;
    DIR *dir;

    begin();
    m = open_it(o, 0);
    snprintf(path, sizeof(path), "/proc/%d/fd", helper_pid());
    dir = opendir(path);
    assert_non_null(dir);
    while ((e = readdir(dir))) {
        if (atoi(e->d_name) < 3)
            continue;
        n = readlinkat(dirfd(dir), e->d_name, target, sizeof(target) - 1);
        if (n < 0)
            continue;
        target[n] = 0;
        // kick, done, the socket; what the double holds itself
        if (!strstr(target, "eventfd") && !strstr(target, "socket:") &&
            !strstr(target, "cuda-double"))
            fail_msg("%s is %s", e->d_name, target);
    }
    closedir(dir);
    close_it(m);
    end();
    gpu_free(g);
}

static void the_helper_ends_with_its_engine(void **state)
{
    struct engine_open o;
    struct gpu g = gpu_create(&o);
    struct engine_memory *m;
    pid_t pids[1];

    begin();
    m = open_it(o, 0);
    close_it(m);
    end();
    for (int i = 0; i < 1000 * WAIT_S && children(pids, 1); i++)
        usleep(1000);
    assert_int_equal(children(pids, 1), 0);
    gpu_free(g);
}

static void the_end_of_the_life_pipe_says_that_the_helper_has_ended(void **state)
{
    struct engine_open o;
    struct gpu g = gpu_create(&o);
    struct engine_memory *m;
    struct pollfd p;
    int fds[2];

    assert_int_equal(pipe2(fds, O_CLOEXEC), 0);
    life_fd = fds[1];
    begin();
    m = open_it(o, 0);
    life_fd = -1;
    close(fds[1]); // as if this process had ended
    p = (struct pollfd){.fd = fds[0]};
    assert_int_equal(poll(&p, 1, 50), 0);
    kill(helper_pid(), SIGKILL);
    assert_int_equal(poll(&p, 1, 1000 * WAIT_S), 1);
    assert_true(p.revents & POLLHUP);
    wait_for(&failed);
    close(fds[0]);
    close_it(m);
    end();
    gpu_free(g);
}

static int before_all(void **state)
{
    const char *why = "";

    arena_fd = memfd_create("arena", MFD_CLOEXEC);
    if (arena_fd < 0 || ftruncate(arena_fd, ARENA) < 0)
        return -1;
    arena = mmap(NULL, ARENA, PROT_READ | PROT_WRITE, MAP_SHARED, arena_fd, 0);
    on_double = getenv("OS2G_CUDA_LIBRARY") && strstr(getenv("OS2G_CUDA_LIBRARY"), "double");
    d = cuda_driver_get(&why);
    if (!d) {
        print_message("%s\n", why);
        return -1;
    }
    if (d->cuDevicePrimaryCtxRetain(&context, 0) != CUDA_SUCCESS ||
        d->cuCtxSetCurrent(context) != CUDA_SUCCESS)
        return -1;
    return loop_start(&loop, "test") || loop_start(&other, "other");
}

static int after_all(void **state)
{
    loop_stop(loop);
    loop_stop(other);
    d->cuDevicePrimaryCtxRelease(0);
    munmap(arena, ARENA);
    close(arena_fd);
    return 0;
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(a_put_lands_in_exported_memory_at_its_offset, setup),
        cmocka_unit_test_setup(a_put_lands_in_allocated_memory_by_its_handle, setup),
        cmocka_unit_test_setup(a_window_beyond_the_allocation_is_refused, setup),
        cmocka_unit_test_setup(pieces_that_lie_apart_land_side_by_side, setup),
        cmocka_unit_test_setup(what_is_put_beyond_the_end_is_refused_at_once, setup),
        cmocka_unit_test_setup(more_puts_than_fit_end_once_each_on_their_loops, setup),
        cmocka_unit_test_setup(a_close_waits_for_copies_under_way, setup),
        cmocka_unit_test_setup(when_the_helper_is_killed_every_put_ends_with_an_error, setup),
        cmocka_unit_test_setup(when_the_helper_is_killed_what_is_being_opened_is_told_so, setup),
        cmocka_unit_test_setup(a_cuda_error_ends_the_helper_and_is_told, setup),
        cmocka_unit_test_setup(an_error_of_a_copy_under_way_is_noticed, setup),
        cmocka_unit_test_setup(memory_that_cannot_be_opened_leaves_the_rest_alone, setup),
        cmocka_unit_test_setup(without_a_driver_no_memory_can_be_opened, setup),
        cmocka_unit_test_setup(the_gpu_is_found_by_its_uuid, setup),
        cmocka_unit_test_setup(the_helper_has_no_descriptor_but_its_own, setup),
        cmocka_unit_test_setup(the_helper_ends_with_its_engine, setup),
        cmocka_unit_test_setup(the_end_of_the_life_pipe_says_that_the_helper_has_ended, setup),
    };

    if (argc > 1 && !strcmp(argv[1], ENGINE_ARGUMENT))
        return engine_helper_main(argc, argv);
    return cmocka_run_group_tests(tests, before_all, after_all);
}
