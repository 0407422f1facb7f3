// SPDX-License-Identifier: Apache-2.0
// Finding and loading the driver. A process loads it once, so each case is a child of its own.
#include "test.h"

#include "cuda/cuda.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

// What only the double can be made to do (else: scripts/gpu-check).
static void need_double(void)
{
    const char *library = getenv("OS2G_CUDA_LIBRARY");

    if (!library || !strstr(library, "double"))
        skip();
}

// What cuda_driver_get says in a process with this environment; "" when there is a driver.
static void load(const char *library, const char *fail, const char *devices, char ret[256])
{
    const char *why = "";
    int pipe_fds[2];
    ssize_t n;
    pid_t pid;

    assert_int_equal(pipe(pipe_fds), 0);
    pid = fork();
    if (pid == 0) {
        if (library)
            setenv("OS2G_CUDA_LIBRARY", library, 1);
        setenv("OS2G_CUDA_DOUBLE_FAIL", fail, 1);
        setenv("OS2G_CUDA_DOUBLE_DEVICES", devices, 1);
        cuda_driver_get(&why);
        _exit(write(pipe_fds[1], why, strlen(why) + 1) < 0);
    }
    close(pipe_fds[1]);
    n = read(pipe_fds[0], ret, 255);
    close(pipe_fds[0]);
    assert_true(n > 0);
    ret[n] = 0;
    waitpid(pid, NULL, 0);
}

static void a_driver_is_loaded_and_initialised(void **state)
{
    char why[256];

    load(NULL, "", "1", why);
    assert_string_equal(why, "");
}

static void a_machine_without_a_driver_is_told(void **state)
{
    char why[256];

    load("/nowhere/libcuda.so.1", "", "1", why);
    assert_non_null(strstr(why, "no CUDA driver"));
}

static void an_older_driver_is_told_what_it_lacks(void **state)
{
    char why[256];

    load("libm.so.6", "", "1", why);
    assert_string_equal(why, "the CUDA driver is too old: it has no cuInit");
}

static void a_driver_that_does_not_start_is_told(void **state)
{
    char why[256];

    need_double();
    load(NULL, "cuInit:1:999", "1", why);
    assert_non_null(strstr(why, "does not start: an error that the CUDA driver has no name for"));
}

static void a_driver_without_a_gpu_is_none(void **state)
{
    char why[256];

    need_double();
    load(NULL, "", "0", why);
    assert_non_null(strstr(why, "no CUDA-capable device"));
}

static void a_device_is_found_by_its_uuid_whatever_its_number(void **state)
{
    pid_t pid;
    int status;

    need_double();
    pid = fork();
    if (pid == 0) {
        const struct cuda_driver *d;
        uint8_t uuid[16], nobody[16] = {0};
        CUdevice found = -1;

        setenv("OS2G_CUDA_DOUBLE_DEVICES", "3", 1);
        d = cuda_driver_get(NULL);
        if (!d || cuda_device_uuid(d, 2, uuid) != CUDA_SUCCESS ||
            cuda_device_find(d, uuid, &found) != CUDA_SUCCESS || found != 2 ||
            cuda_device_find(d, nobody, &found) != CUDA_ERROR_NO_DEVICE)
            _exit(1);
        _exit(0);
    }
    waitpid(pid, &status, 0);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_driver_is_loaded_and_initialised),
        cmocka_unit_test(a_machine_without_a_driver_is_told),
        cmocka_unit_test(an_older_driver_is_told_what_it_lacks),
        cmocka_unit_test(a_driver_that_does_not_start_is_told),
        cmocka_unit_test(a_driver_without_a_gpu_is_none),
        cmocka_unit_test(a_device_is_found_by_its_uuid_whatever_its_number),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
