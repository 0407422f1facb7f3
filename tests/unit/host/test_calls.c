// SPDX-License-Identifier: Apache-2.0
#include "world.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static struct os2g_file *open_file(struct world *w, const char *path)
{
    struct os2g_file *f = NULL;

    if (os2g_open(w->c, path, &f) < 0)
        fail_msg("%s", os2g_last_error());
    return f;
}

static void a_fetch_lands_in_a_buffer(void **state)
{
    struct world *w = *state;
    uint64_t size = 0;

    assert_int_equal(os2g_fetch(w->c, "a.bin", w->memory, 1 << 20, 4096, &size), 0);
    assert_int_equal(size, 100000);
    world_check(w, "a.bin", 0, w->memory + 4096, size);
    assert_int_equal(w->memory[4095], 0);
    assert_int_equal(w->memory[4096 + size], 0);
}

static void a_fetch_that_is_too_large_says_how_large(void **state)
{
    struct world *w = *state;
    uint64_t size = 0;

    assert_int_equal(os2g_fetch(w->c, "a.bin", w->memory, 99999, 0, &size), -EFBIG);
    assert_int_equal(size, 100000);
    assert_non_null(strstr(os2g_last_error(), "a.bin"));
}

static void a_fetch_of_nothing_needs_no_room(void **state)
{
    struct world *w = *state;
    uint64_t size = 77;

    assert_int_equal(os2g_fetch(w->c, "empty", w->memory, 0, 0, &size), 0);
    assert_int_equal(size, 0);
}

static void a_key_that_is_not_there_is_enoent(void **state)
{
    struct world *w = *state;

    assert_int_equal(os2g_fetch(w->c, "nothing/here", w->memory, 10, 0, NULL), -ENOENT);
    assert_string_equal(os2g_last_error(), "nothing/here: No such file or directory");
}

static void a_fetch_into_plain_memory_is_bounced(void **state)
{
    struct world *w = *state;
    struct os2g_stats stats = {.size = sizeof(stats)};
    uint8_t *p = malloc(100000);
    uint64_t size;

    assert_int_equal(os2g_fetch(w->c, "a.bin", p, 100000, 0, &size), 0);
    world_check(w, "a.bin", 0, p, size);
    assert_int_equal(os2g_stats_read(w->c, &stats), 0);
    assert_int_equal(stats.bounced_bytes, 100000);
    assert_string_equal(stats.way, "shared memory");
    assert_string_equal(stats.release, "fake");
    free(p);
}

static void an_object_larger_than_the_bounce_room_is_fetched_into_plain_memory(void **state)
{
    struct world *w = *state;
    uint64_t size = 0, room = 41 * MIB;
    uint8_t *p = malloc(room);

    assert_int_equal(os2g_fetch(w->c, "big.bin", p, room, 0, &size), 0);
    assert_int_equal(size, 40 * MIB + 5);
    world_check(w, "big.bin", 0, p, size);
    free(p);
}

static void a_large_read_is_cut_and_put_together(void **state)
{
    struct world *w = *state;
    struct os2g_file *f = open_file(w, "big.bin");
    unsigned before = fake_device_counts(w->device)->reads;

    assert_int_equal(os2g_file_size(f), 40 * MIB + 5);
    assert_int_equal(os2g_read(f, w->memory, 30 * MIB, 12345, 3 * MIB), 30 * MIB);
    world_check(w, "big.bin", 12345, w->memory + 3 * MIB, 30 * MIB);
    assert_int_equal(fake_device_counts(w->device)->reads - before, 31); // boundaries of 1 MiB
    os2g_file_close(f);
}

static void a_read_is_short_at_the_end_and_zero_behind_it(void **state)
{
    struct world *w = *state;
    struct os2g_file *f = open_file(w, "a.bin");

    assert_int_equal(os2g_read(f, w->memory, 4096, 99000, 0), 1000);
    world_check(w, "a.bin", 99000, w->memory, 1000);
    assert_int_equal(os2g_read(f, w->memory, 4096, 100000, 0), 0);
    assert_int_equal(os2g_read(f, w->memory, 4096, 1 << 30, 0), 0);
    assert_int_equal(os2g_read(f, w->memory, 0, 0, 0), 0);
    os2g_file_close(f);
}

static void a_large_read_into_registered_malloc_memory_is_bounced(void **state)
{
    struct world *w = *state;
    struct os2g_file *f = open_file(w, "big.bin");
    uint8_t *p = malloc(40 * MIB);

    assert_int_equal(os2g_buf_register(w->c, p, 40 * MIB, 0), 0);
    assert_int_equal(os2g_buf_register(w->c, p + 5, 10, 0), -EEXIST);
    assert_int_equal(os2g_read(f, p, 39 * MIB, MIB, 100), 39 * MIB);
    world_check(w, "big.bin", MIB, p + 100, 39 * MIB);
    assert_int_equal(os2g_read(f, p, 40 * MIB, 0, 1), -EINVAL);
    assert_int_equal(os2g_buf_deregister(w->c, p), 0);
    assert_int_equal(os2g_buf_deregister(w->c, p), -ENOENT);
    os2g_file_close(f);
    free(p);
}

static void memory_of_a_descriptor_can_be_registered(void **state)
{
    struct world *w = *state;
    int fd = memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    struct os2g_buffer *b;
    uint64_t size;
    uint8_t *p;

    assert_int_equal(ftruncate(fd, 8 * MIB), 0);
    p = mmap(NULL, 4 * MIB, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 4 * MIB);
    assert_int_equal(os2g_buffer_register_fd(w->c, &b, p, 5 * MIB, fd, 4 * MIB), -EINVAL);
    assert_int_equal(os2g_buffer_register_fd(w->c, &b, p, 4 * MIB, fd, 4 * MIB), 0);
    close(fd);
    assert_ptr_equal(os2g_buffer_base(b), p);
    assert_int_equal(os2g_buffer_size(b), 4 * MIB);
    assert_int_equal(os2g_fetch(w->c, "dir/y", p, 4096, 8192, &size), 0);
    world_check(w, "y", 0, p + 8192, 20);
    os2g_buffer_free(b);
    munmap(p, 4 * MIB);
}

static void a_destination_that_leaves_its_buffer_is_refused(void **state)
{
    struct world *w = *state;

    assert_int_equal(os2g_fetch(w->c, "a.bin", w->memory, 4096, 64 * MIB - 100, NULL), -EINVAL);
    assert_int_equal(os2g_fetch(w->c, "a.bin", w->memory - 100, 4096, 0, NULL), -EINVAL);
    assert_int_equal(os2g_fetch(w->c, "a.bin", NULL, 4096, 0, NULL), -EINVAL);
    // what lies beyond it is not taken for memory that is nobody's
    assert_int_equal(os2g_fetch(w->c, "a.bin", w->memory, 4096, 64 * MIB, NULL), -EINVAL);
    assert_int_equal(os2g_fetch(w->c, "a.bin", w->memory, 4096, INT64_MAX, NULL), -EINVAL);
    assert_int_equal(os2g_fetch(w->c, "a.bin", w->memory, 4096, -4096, NULL), -EINVAL);
}

static void an_offset_does_not_lead_into_another_buffer(void **state)
{
    struct world *w = *state;
    uint8_t *p = calloc(2, MIB);

    assert_int_equal(os2g_buf_register(w->c, p, MIB, 0), 0);
    assert_int_equal(os2g_buf_register(w->c, p + MIB, MIB, 0), 0);
    assert_int_equal(os2g_fetch(w->c, "a.bin", p, MIB, MIB, NULL), -EINVAL);
    assert_int_equal(os2g_fetch(w->c, "a.bin", p + MIB, MIB, 0, NULL), 0);
    assert_int_equal(os2g_fetch(w->c, "a.bin", p + MIB, MIB, -(off_t)MIB, NULL), -EINVAL);
    assert_int_equal(os2g_buf_deregister(w->c, p), 0);
    assert_int_equal(os2g_buf_deregister(w->c, p + MIB), 0);
    free(p);
}

static void a_descriptor_that_is_no_memory_is_refused(void **state)
{
    struct world *w = *state;
    int fd = memfd_create("test", MFD_CLOEXEC), null = open("/dev/null", O_RDWR | O_CLOEXEC), ro;
    struct os2g_buffer *b;
    char path[64];
    uint8_t *p;

    assert_int_equal(ftruncate(fd, MIB), 0);
    p = mmap(NULL, MIB, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    ro = open(path, O_RDONLY | O_CLOEXEC);
    assert_int_equal(os2g_buffer_register_fd(w->c, &b, p, MIB, -1, 0), -EBADF);
    assert_int_equal(os2g_buffer_register_fd(w->c, &b, p, MIB, null, 0), -ENODEV);
    assert_int_equal(os2g_buffer_register_fd(w->c, &b, p, MIB, ro, 0), -EACCES);
    assert_int_equal(os2g_buffer_register_fd(w->c, &b, p, SIZE_MAX, fd, 0), -EINVAL);
    assert_int_equal(os2g_buffer_register_fd(w->c, &b, p, SIZE_MAX - 4095, fd, 4096), -EINVAL);
    // the session did not suffer from it
    assert_int_equal(w->lost, 0);
    assert_int_equal(os2g_buffer_register_fd(w->c, &b, p, MIB, fd, 0), 0);
    os2g_buffer_free(b);
    munmap(p, MIB);
    close(ro);
    close(null);
    close(fd);
}

static void buffers_are_zeroed_and_aligned(void **state)
{
    struct world *w = *state;
    struct os2g_buffer *b;

    assert_int_equal(os2g_buffer_alloc(w->c, &b, 12345, OS2G_MEMORY_HOST, 0), 0);
    assert_int_equal((uintptr_t)os2g_buffer_base(b) % (2 * MIB), 0);
    assert_int_equal(os2g_buffer_size(b), 12345);
    assert_int_equal(os2g_buffer_memory(b), OS2G_MEMORY_HOST);
    for (unsigned i = 0; i < 12345; i++)
        assert_int_equal(((uint8_t *)os2g_buffer_base(b))[i], 0);
    os2g_buffer_free(b);
    assert_int_equal(os2g_buffer_alloc(w->c, &b, 0, OS2G_MEMORY_HOST, 0), -EINVAL);
}

static void paths_are_walked(void **state)
{
    struct world *w = *state;
    struct os2g_file *f = open_file(w, "/dir//deep/z");
    struct os2g_stat st;

    assert_int_equal(os2g_read(f, w->memory, 4096, 0, 0), 30);
    world_check(w, "z", 0, w->memory, 30);
    assert_int_equal(os2g_file_stat(f, &st), 0);
    assert_int_equal(st.size, 30);
    assert_string_equal(st.etag, "\"v1\"");
    os2g_file_close(f);
    assert_int_equal(os2g_open(w->c, "dir", &f), -EISDIR);
    assert_int_equal(os2g_open(w->c, "dir/none", &f), -ENOENT);
    assert_int_equal(os2g_open(w->c, "a.bin/x", &f), -ENOTDIR);
    assert_int_equal(os2g_open(w->c, "a.bin/", &f), -ENOTDIR);
    assert_int_equal(os2g_open(w->c, "dir/../a.bin", &f), -EINVAL);
}

static void attributes_of_names_are_told(void **state)
{
    struct world *w = *state;
    struct os2g_stat st;

    assert_int_equal(os2g_stat(w->c, "dir/y", &st), 0);
    assert_int_equal(st.size, 20);
    assert_int_equal(st.mtime_s, 1007);
    assert_false(st.directory);
    assert_string_equal(st.etag, "\"v1\"");
    assert_int_equal(os2g_stat(w->c, "", &st), 0);
    assert_true(st.directory);
    assert_int_equal(os2g_stat(w->c, "/dir/", &st), 0);
    assert_true(st.directory);
    assert_int_equal(os2g_stat(w->c, "nowhere", &st), -ENOENT);
}

struct names {
    char text[256];
    unsigned n, stop_at;
};

static int note_name(void *arg, const char *name, const struct os2g_stat *st)
{
    struct names *n = arg;

    snprintf(n->text + strlen(n->text), sizeof(n->text) - strlen(n->text), "%s%s:%u ", name,
             st->directory ? "/" : "", (unsigned)st->size);
    return ++n->n == n->stop_at ? 42 : 0;
}

static void a_directory_is_listed_in_its_order(void **state)
{
    struct world *w = *state;
    struct names n = {0}, some = {.stop_at = 2};

    assert_int_equal(os2g_list(w->c, "/", note_name, &n), 0);
    assert_string_equal(n.text, "a.bin:100000 big.bin:41943045 empty:0 dir/:0 ");
    assert_int_equal(os2g_list(w->c, "", note_name, &some), 42);
    assert_int_equal(some.n, 2);
    assert_int_equal(os2g_list(w->c, "a.bin", note_name, &n), -ENOTDIR);
    assert_int_equal(os2g_list(w->c, "none", note_name, &n), -ENOENT);
}

// The daemon has found that its listing is not so any more.
static void names_without_attributes_are_looked_up(void **state)
{
    struct world *w = *state;
    struct names n = {0}, none = {0};

    fake_device_set(w->device, FAKE_DOUBT);
    assert_int_equal(os2g_list(w->c, "/", note_name, &n), 0);
    assert_string_equal(n.text, "a.bin:100000 big.bin:41943045 dir/:0 ");
    fake_device_set(w->device, FAKE_DOUBT_FAILS);
    assert_int_equal(os2g_list(w->c, "/", note_name, &none), -EIO);
    assert_int_equal(none.n, 0);
}

static void what_was_opened_and_looked_up_is_given_back(void **state)
{
    struct world *w = *state;
    struct fake_counts *counts = fake_device_counts(w->device);
    struct os2g_file *f = open_file(w, "dir/deep/z");
    uint64_t size;

    os2g_file_close(f);
    for (unsigned i = 0; i < 200 && counts->forgotten < 3; i++) {
        os2g_fetch(w->c, "empty", w->memory, 10, 0, &size); // carries them along
        usleep(1000);
    }
    assert_int_equal(counts->released, 1);
    assert_int_equal(counts->forgotten, 3);
}

static void an_error_of_the_store_is_handed_on(void **state)
{
    struct world *w = *state;
    struct os2g_file *f = open_file(w, "big.bin");

    fake_device_set(w->device, FAKE_ERROR);
    assert_int_equal(os2g_read(f, w->memory, 20 * MIB, 0, 0), -EIO);
    assert_int_equal(os2g_fetch(w->c, "a.bin", w->memory, MIB, 0, NULL), -EIO);
    assert_string_equal(os2g_last_error(),
                        "a.bin: it cannot be got from the store: the daemon's log says why");
    fake_device_set(w->device, FAKE_FINE);
    assert_int_equal(os2g_read(f, w->memory, 20 * MIB, 0, 0), 20 * MIB);
    os2g_file_close(f);
}

static void options_of_a_later_version_are_taken_unless_they_are_set(void **state)
{
    struct world *w = *state;
    struct {
        struct os2g_options o;
        uint64_t later;
    } options = {.o.size = sizeof(options)};
    struct os2g *c;

    assert_int_equal(os2g_connect(&c, w->socket, &options.o), 0);
    os2g_close(c);
    options.later = 1;
    assert_int_equal(os2g_connect(&c, w->socket, &options.o), -EINVAL);
    assert_non_null(strstr(os2g_last_error(), "update"));
}

static void wrong_arguments_are_told_with_a_sentence(void **state)
{
    struct world *w = *state;
    struct os2g_options o = {.size = sizeof(o), .depth = 2000};
    struct os2g_options unsized = {.depth = 1};
    struct os2g *c;

    assert_int_equal(os2g_connect(&c, w->socket, &o), -EINVAL);
    assert_int_equal(os2g_connect(&c, w->socket, &unsized), -EINVAL);
    assert_int_equal(os2g_connect(&c, "http://x", NULL), -EINVAL);
    assert_int_equal(os2g_connect(&c, "/nowhere/at/all", NULL), -ENOENT);
    assert_int_equal(os2g_connect(&c, "/tmp", NULL), -ENOENT);
    assert_non_null(strstr(os2g_last_error(), "/tmp is neither"));
    assert_non_null(strstr(os2g_last_error(), "os2g mount"));
    assert_int_equal(os2g_fetch(w->c, "", w->memory, 1, 0, NULL), -EINVAL);
    assert_int_equal(os2g_buf_register(w->c, w->memory + 64 * MIB, 10, 1), -EINVAL);
}

int main(void)
{
#define T(f) cmocka_unit_test_setup_teardown(f, world_setup, world_teardown)
    const struct CMUnitTest tests[] = {
        T(a_fetch_lands_in_a_buffer),
        T(a_fetch_that_is_too_large_says_how_large),
        T(a_fetch_of_nothing_needs_no_room),
        T(a_key_that_is_not_there_is_enoent),
        T(a_fetch_into_plain_memory_is_bounced),
        T(an_object_larger_than_the_bounce_room_is_fetched_into_plain_memory),
        T(a_large_read_is_cut_and_put_together),
        T(a_read_is_short_at_the_end_and_zero_behind_it),
        T(a_large_read_into_registered_malloc_memory_is_bounced),
        T(memory_of_a_descriptor_can_be_registered),
        T(a_destination_that_leaves_its_buffer_is_refused),
        T(an_offset_does_not_lead_into_another_buffer),
        T(a_descriptor_that_is_no_memory_is_refused),
        T(buffers_are_zeroed_and_aligned),
        T(paths_are_walked),
        T(attributes_of_names_are_told),
        T(a_directory_is_listed_in_its_order),
        T(names_without_attributes_are_looked_up),
        T(what_was_opened_and_looked_up_is_given_back),
        T(an_error_of_the_store_is_handed_on),
        T(options_of_a_later_version_are_taken_unless_they_are_set),
        T(wrong_arguments_are_told_with_a_sentence),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
