// SPDX-License-Identifier: Apache-2.0
#include "test.h"

#include "gdd/region.h"
#include "loop/loop.h"

#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#define PAGE 4096u

static int fd;
static char *memory;

static int setup(void **state)
{
    fd = memfd_create("guard", MFD_CLOEXEC);
    assert_true(fd >= 0);
    assert_return_code(ftruncate(fd, 4 * PAGE), errno);
    memory = mmap(NULL, 4 * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    assert_ptr_not_equal(memory, MAP_FAILED);
    return 0;
}

static int teardown(void **state)
{
    munmap(memory, 4 * PAGE);
    close(fd);
    return 0;
}

static void bytes_are_copied_in_and_out(void **state)
{
    char back[8] = "";

    assert_int_equal(region_copy_out(memory + 100, "guarded", 8), 0);
    assert_int_equal(region_copy_in(back, memory + 100, 8), 0);
    assert_string_equal(back, "guarded");
}

static void memory_that_was_shrunk_is_an_error(void **state)
{
    char page[2 * PAGE] = "";

    region_guard_install(); // over cmocka's handler
    assert_return_code(ftruncate(fd, PAGE), errno);
    assert_int_equal(region_copy_out(memory, page, sizeof(page)), -EFAULT);
    assert_int_equal(region_copy_in(page, memory, sizeof(page)), -EFAULT);
    assert_int_equal(region_copy_out(memory, page, PAGE), 0);
}

static void a_fault_is_survived_again_and_again(void **state)
{
    char c;

    region_guard_install(); // over cmocka's handler
    assert_return_code(ftruncate(fd, 0), errno);
    for (int i = 0; i < 1000; i++)
        assert_int_equal(region_copy_in(&c, memory, 1), -EFAULT);
    assert_return_code(ftruncate(fd, 4 * PAGE), errno);
    assert_int_equal(region_copy_in(&c, memory, 1), 0);
}

static void copy_on_a_loop(void *arg)
{
    char c;

    *(int *)arg = region_copy_in(&c, memory, 1);
}

static void a_fault_in_a_loops_thread_is_survived(void **state)
{
    struct loop *l = NULL;
    int rc = 0;

    region_guard_install(); // over cmocka's handler
    assert_return_code(ftruncate(fd, 0), errno);
    assert_int_equal(loop_start(&l, "guarded"), 0);
    loop_call(l, copy_on_a_loop, &rc);
    assert_int_equal(rc, -EFAULT);
    loop_stop(l);
}

struct copier {
    struct loop *loop;
    struct loop_msg msg;
    atomic_bool stop;
    atomic_uint good, bad;
};

static void copy_until_told(struct loop_msg *msg)
{
    struct copier *c = container_of(msg, struct copier, msg);
    char *mine = mmap(NULL, 4 * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    char page[4 * PAGE];

    if (mine == MAP_FAILED)
        return;
    memset(page, 7, sizeof(page));
    while (!atomic_load(&c->stop)) {
        if (region_copy_out(mine, page, sizeof(page)) == 0)
            atomic_fetch_add(&c->good, 1);
        else
            atomic_fetch_add(&c->bad, 1);
    }
    munmap(mine, 4 * PAGE);
}

static bool saw_both(struct copier *c)
{
    return atomic_load(&c->good) > 100 && atomic_load(&c->bad) > 100;
}

static void memory_may_shrink_in_the_midst_of_copies_on_several_threads(void **state)
{
    struct copier copiers[2] = {0};
    bool both = false;

    region_guard_install(); // over cmocka's handler
    for (size_t i = 0; i < 2; i++) {
        assert_int_equal(loop_start(&copiers[i].loop, "copier"), 0);
        loop_post(copiers[i].loop, &copiers[i].msg, copy_until_told);
    }
    for (unsigned i = 0; i < 1000000 && !both; i++) {
        assert_return_code(ftruncate(fd, i % 2 ? 4 * PAGE : PAGE * (1 + i % 3)), errno);
        both = saw_both(&copiers[0]) && saw_both(&copiers[1]);
    }
    for (size_t i = 0; i < 2; i++) {
        atomic_store(&copiers[i].stop, true);
        loop_stop(copiers[i].loop);
    }
    assert_true(both);
}

// What a child dies of that does this; 0: it does not die.
static int death_of(void (*fn)(void))
{
    struct rlimit none = {0, 0};
    int status;
    pid_t pid = fork();

    assert_return_code(pid, errno);
    if (pid == 0) {
        signal(SIGBUS, SIG_DFL);
        region_guard_install();
        setrlimit(RLIMIT_CORE, &none);
        close(STDERR_FILENO); // a sanitizer would say it at length
        fn();
        _exit(0);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    if (WIFEXITED(status))
        return WEXITSTATUS(status) == 0 ? 0 : SIGBUS; // a sanitizer's way to die of it
    return WTERMSIG(status);
}

static void touch(void)
{
    if (ftruncate(fd, 0) == 0)
        *(volatile char *)memory = 1;
}

static void touch_after_a_guarded_fault(void)
{
    char c;

    if (ftruncate(fd, 0) == 0 && region_copy_in(&c, memory, 1) == -EFAULT)
        *(volatile char *)memory = 1;
}

static void be_sent_one(void)
{
    raise(SIGBUS);
}

static void a_fault_without_a_guard_kills(void **state)
{
    assert_int_equal(death_of(touch), SIGBUS);
    assert_int_equal(death_of(touch_after_a_guarded_fault), SIGBUS);
}

static void a_signal_that_was_sent_kills(void **state)
{
    assert_int_equal(death_of(be_sent_one), SIGBUS);
}

int main(void)
{
#define TEST(fn) cmocka_unit_test_setup_teardown(fn, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(bytes_are_copied_in_and_out),
        TEST(memory_that_was_shrunk_is_an_error),
        TEST(a_fault_is_survived_again_and_again),
        TEST(a_fault_in_a_loops_thread_is_survived),
        TEST(memory_may_shrink_in_the_midst_of_copies_on_several_threads),
        TEST(a_fault_without_a_guard_kills),
        TEST(a_signal_that_was_sent_kills),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
