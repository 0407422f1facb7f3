// SPDX-License-Identifier: Apache-2.0
#include "test.h"

#include "host.h"

#include "base/clock.h"

#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static struct device device;
static struct host host;
static struct sigaction guard; // cmocka puts its own in place of it

static int setup_with(const struct memfs_options *o)
{
    device_init(&device, o);
    host_init(&host, &device, 7);
    host_mount(&host);
    return 0;
}

static int setup(void **state)
{
    return setup_with(&(struct memfs_options){.big_size = GIB, .files = 8, .file_size = 10000});
}

static int setup_holding(void **state)
{
    return setup_with(&(struct memfs_options){
        .big_size = GIB, .files = 8, .file_size = 10000, .hold_reads = true});
}

static int teardown(void **state)
{
    host_remove(&host);
    device_fini(&device);
    host_fini(&host);
    return 0;
}

// --- requests ---

static void names_are_looked_up(void **state)
{
    uint64_t dir = host_lookup(&host, FUSE_ROOT_ID, "dir");

    assert_int_not_equal(dir, 0);
    assert_int_not_equal(host_lookup(&host, dir, "f3"), 0);
    assert_int_equal(memfs_references(device.fs), 2);
}

static void data_of_a_read_lies_behind_its_header(void **state)
{
    uint64_t fh = host_open(&host, host_lookup(&host, FUSE_ROOT_ID, "big"));
    const struct fuse_out_header *h;

    host_read(&host, 1, fh, 12345, 200000);
    h = host_wait(&host, 1);
    assert_int_equal(h->error, 0);
    assert_int_equal(h->len, sizeof(*h) + 200000);
    assert_int_equal(host.used[1], h->len);
    assert_true(memfs_equal(host_body(&host, 1), 12345, 200000));
    assert_int_equal(device_stats(&device).landed_copied_bytes, 200000);
}

static void data_goes_into_scattered_descriptors(void **state)
{
    uint64_t fh = host_open(&host, host_lookup(&host, FUSE_ROOT_ID, "big"));
    const struct fuse_read_in in = {.fh = fh, .offset = 7, .size = 4096};

    // a header in two pieces, the data in three
    driver_describe(&host.driver, 3, host_out_addr(&host, 1), 5,
                    VRING_DESC_F_WRITE | VRING_DESC_F_NEXT, 20);
    driver_describe(&host.driver, 20, host_out_addr(&host, 1) + 1000, 11 + 96,
                    VRING_DESC_F_WRITE | VRING_DESC_F_NEXT, 21);
    driver_describe(&host.driver, 21, host_out_addr(&host, 1) + 3000, 1000,
                    VRING_DESC_F_WRITE | VRING_DESC_F_NEXT, 22);
    driver_describe(&host.driver, 22, host_out_addr(&host, 1) + 5000, 3000, VRING_DESC_F_WRITE, 0);
    host_send_to(&host, 1, FUSE_READ, 0, &in, sizeof(in));
    host_wait(&host, 1);
    assert_int_equal(host.used[1], 16 + 4096);
    assert_true(memfs_equal(host_out(&host, 1) + 1011, 7, 96));
    assert_true(memfs_equal(host_out(&host, 1) + 3000, 7 + 96, 1000));
    assert_true(memfs_equal(host_out(&host, 1) + 5000, 7 + 1096, 3000));
}

static void a_read_larger_than_its_room_is_refused(void **state)
{
    uint64_t fh = host_open(&host, host_lookup(&host, FUSE_ROOT_ID, "big"));
    const struct fuse_read_in in = {.fh = fh, .size = 4096};

    host_send(&host, 1, FUSE_READ, 0, &in, sizeof(in), 4096);
    assert_int_equal(host_wait(&host, 1)->error, -EINVAL);
}

static void an_answer_without_room_becomes_an_error(void **state)
{
    host_send(&host, 1, FUSE_LOOKUP, FUSE_ROOT_ID, "dir", 4, 20);
    assert_int_equal(host_wait(&host, 1)->error, -EIO);
    // nobody holds what could not be told
    assert_int_equal(memfs_references(device.fs), 0);
}

static void answers_go_out_of_order(void **state)
{
    uint64_t fh = host_open(&host, host_lookup(&host, FUSE_ROOT_ID, "big"));

    host_read(&host, 1, fh, 0, 4096);
    assert_int_not_equal(host_lookup(&host, FUSE_ROOT_ID, "dir"), 0);
    assert_false(host_answered(&host, 1));
    device_answer_held(&device);
    assert_int_equal(host_wait(&host, 1)->error, 0);
}

static void a_forget_needs_no_answer(void **state)
{
    const struct fuse_forget_in in = {.nlookup = 1};
    uint64_t node = host_lookup(&host, FUSE_ROOT_ID, "dir");

    host_send(&host, 1, FUSE_FORGET, node, &in, sizeof(in), 0);
    host_wait(&host, 1);
    assert_int_equal(host.used[1], 0);
    host_lookup(&host, FUSE_ROOT_ID, "nothing");
    assert_int_equal(memfs_references(device.fs), 0);
}

static void an_interrupted_read_ends(void **state)
{
    uint64_t fh = host_open(&host, host_lookup(&host, FUSE_ROOT_ID, "stuck"));
    struct fuse_interrupt_in in;

    host_read(&host, 1, fh, 0, 4096);
    in.unique = host.unique;
    host_send(&host, 2, FUSE_INTERRUPT, 0, &in, sizeof(in), 0);
    assert_int_equal(host_wait(&host, 1)->error, -EINTR);
    host_wait(&host, 2);
}

static void libos2g_fetches_whole_objects(void **state)
{
    const struct {
        struct os2g_fetch_in in;
        char key[6];
    } fetch = {{.key_len = 6}, {'d', 'i', 'r', '/', 'f', '1'}};
    const struct os2g_fetch_out *out = host_body(&host, 1);
    const struct fuse_out_header *h;

    host_hello(&host);
    host_send(&host, 1, OS2G_OP_FETCH, 0, &fetch, sizeof(fetch.in) + 6, 32768);
    h = host_wait(&host, 1);
    assert_int_equal(h->error, 0);
    assert_int_equal(h->len, sizeof(*h) + sizeof(*out) + 10000);
    assert_int_equal(out->size, 10000);
    assert_true(memfs_equal(out + 1, 0, 10000));
    assert_int_equal(device_stats(&device).fetches, 1);

    host_send(&host, 1, OS2G_OP_FETCH, 0, &fetch, sizeof(fetch.in) + 6, 4096);
    assert_int_equal(host_wait(&host, 1)->error, -EFBIG);
    assert_int_equal(out->size, 10000);
}

// --- what hosts may not do ---

static void a_message_that_is_none_ends_the_session(void **state)
{
    driver_describe(&host.driver, 2, DRIVER_ADDR + DRIVER_HEAP, 8, 0, 0);
    driver_offer(&host.driver, 2);
    host_read(&host, 5, 0, 0, 1);
    assert_non_null(strstr(device_bad(&device, 7), "8 bytes"));
    assert_int_equal(device_stats(&device).bad, 1);
}

static void a_bad_chain_ends_the_session_and_no_other(void **state)
{
    struct host other;

    host_init(&other, &device, 8);
    host_mount(&other);
    driver_describe(&host.driver, 2, 12345, 80, 0, 0);
    driver_offer(&host.driver, 2);
    host_read(&host, 5, 0, 0, 1);
    device_bad(&device, 7);
    assert_int_not_equal(host_lookup(&other, FUSE_ROOT_ID, "dir"), 0);
    host_remove(&other);
    host_fini(&other);
}

static void memory_that_shrinks_ends_the_session(void **state)
{
    uint64_t fh = host_open(&host, host_lookup(&host, FUSE_ROOT_ID, "big"));
    int fd = memfd_create("shrinks", MFD_CLOEXEC);
    const struct vhost_command add = {
        .kind = VHOST_REGION_ADD, .session = 7, .region = {.addr = 8 * GIB, .size = MIB}};
    const struct fuse_read_in in = {.fh = fh, .size = 65536};

    sigaction(SIGBUS, &guard, NULL);
    assert_return_code(ftruncate(fd, MIB), errno);
    device_do(&device, add, fd);
    assert_return_code(ftruncate(fd, 0), errno);
    close(fd);
    driver_describe(&host.driver, 3, 8 * GIB, 16 + 65536, VRING_DESC_F_WRITE, 0);
    host_send_to(&host, 1, FUSE_READ, 0, &in, sizeof(in));
    device_bad(&device, 7);
}

static void a_host_uses_and_gives_back_only_its_own(void **state)
{
    const struct fuse_forget_in forget = {.nlookup = 1};
    const struct fuse_release_in release = {.fh = 0};
    uint64_t node = host_lookup(&host, FUSE_ROOT_ID, "big"), fh = host_open(&host, node);
    struct fuse_release_in theirs = release;
    struct host other;

    host_init(&other, &device, 8);
    host_mount(&other);
    host_send(&other, 1, FUSE_FORGET, node, &forget, sizeof(forget), 0);
    host_wait(&other, 1);
    theirs.fh = fh;
    host_send(&other, 1, FUSE_RELEASE, node, &theirs, sizeof(theirs), 4096);
    assert_int_equal(host_wait(&other, 1)->error, -EBADF);
    host_read(&other, 1, fh, 0, 4096);
    assert_int_equal(host_wait(&other, 1)->error, -EBADF);
    assert_int_equal(host_open(&other, node), 0);
    assert_int_equal(memfs_references(device.fs), 1);
    assert_int_equal(memfs_handles(device.fs), 1);
    host_remove(&other);
    host_fini(&other);
}

// --- memory and queues that go away ---

struct extra {
    int fd;
    char *memory;
    struct vhost_command region;
};

static void extra_add(struct extra *e)
{
    e->fd = memfd_create("extra", MFD_CLOEXEC);
    assert_return_code(ftruncate(e->fd, MIB), errno);
    e->memory = mmap(NULL, MIB, PROT_READ | PROT_WRITE, MAP_SHARED, e->fd, 0);
    e->region = (struct vhost_command){
        .kind = VHOST_REGION_ADD, .session = 7, .region = {.addr = 8 * GIB, .size = MIB}};
    device_do(&device, e->region, e->fd);
}

static void extra_remove(struct extra *e)
{
    e->region.kind = VHOST_REGION_REMOVE;
    device_do(&device, e->region, -1);
}

static void extra_fini(struct extra *e)
{
    munmap(e->memory, MIB);
    close(e->fd);
}

// A READ of 64 KiB whose header lies in the host's ordinary memory and whose data in e.
static void read_into_extra(uint64_t fh, unsigned i)
{
    const struct fuse_read_in in = {.fh = fh, .size = 65536};

    driver_describe(&host.driver, (uint16_t)(2 * i + 1), host_out_addr(&host, i), 16,
                    VRING_DESC_F_WRITE | VRING_DESC_F_NEXT, 30);
    driver_describe(&host.driver, 30, 8 * GIB, 65536, VRING_DESC_F_WRITE, 0);
    host_send_to(&host, i, FUSE_READ, 0, &in, sizeof(in));
}

static void memory_goes_without_waiting_for_the_store(void **state)
{
    uint64_t fh = host_open(&host, host_lookup(&host, FUSE_ROOT_ID, "big"));
    static const char zeroes[65536];
    struct extra e;

    extra_add(&e);
    read_into_extra(fh, 1);
    while (memfs_reads(device.fs) == 0)
        ;
    extra_remove(&e);
    device_answer_held(&device);
    assert_int_equal(host_wait(&host, 1)->error, -ECANCELED);
    assert_memory_equal(e.memory, zeroes, sizeof(zeroes));
    assert_int_equal(device_stats(&device).cut_off, 1);
    extra_fini(&e);
}

static void what_waits_for_memory_that_goes_is_cancelled(void **state)
{
    uint64_t fh = host_open(&host, host_lookup(&host, FUSE_ROOT_ID, "stuck"));
    struct extra e;

    extra_add(&e);
    read_into_extra(fh, 1);
    while (memfs_reads(device.fs) == 0)
        ;
    extra_remove(&e);
    assert_int_equal(host_wait(&host, 1)->error, -ECANCELED);
    extra_fini(&e);
}

// Of a request that is taken after its memory has gone.
static void gone_before_it_is_taken(uint64_t fh, unsigned i)
{
    struct extra e;

    extra_add(&e);
    extra_remove(&e);
    extra_fini(&e);
    read_into_extra(fh, i);
}

static void libos2g_may_take_memory_back_from_what_is_in_the_ring(void **state)
{
    uint64_t fh;

    host_hello(&host);
    fh = host_open(&host, host_lookup(&host, FUSE_ROOT_ID, "big"));
    gone_before_it_is_taken(fh, 1);
    assert_int_equal(host_wait(&host, 1)->error, -ECANCELED);
    assert_int_equal(host.used[1], sizeof(struct fuse_out_header));
    assert_int_equal(memfs_reads(device.fs), 0);
    host_read(&host, 2, fh, 0, 4096);
    assert_int_equal(host_wait(&host, 2)->error, 0);
}

static void a_guest_may_not(void **state)
{
    gone_before_it_is_taken(host_open(&host, host_lookup(&host, FUSE_ROOT_ID, "big")), 1);
    assert_non_null(strstr(device_bad(&device, 7), "outside the shared memory"));
}

static void nor_libos2g_from_what_has_no_data(void **state)
{
    host_hello(&host);
    driver_describe(&host.driver, 3, 8 * GIB, 4096, VRING_DESC_F_WRITE, 0);
    host_send_to(&host, 1, FUSE_STATFS, FUSE_ROOT_ID, NULL, 0);
    assert_non_null(strstr(device_bad(&device, 7), "outside the shared memory"));
}

static void nor_from_a_header(void **state)
{
    const struct fuse_read_in in = {.size = 4096};

    host_hello(&host);
    driver_describe(&host.driver, 3, 8 * GIB, 4096 + 16, VRING_DESC_F_WRITE, 0);
    host_send_to(&host, 1, FUSE_READ, 0, &in, sizeof(in));
    device_bad(&device, 7);
}

static void a_header_whose_memory_has_gone_is_not_written(void **state)
{
    uint64_t fh = host_open(&host, host_lookup(&host, FUSE_ROOT_ID, "stuck"));
    const struct fuse_read_in in = {.fh = fh, .size = 4096};
    static const char zeroes[4096 + 16];
    struct extra e;

    extra_add(&e);
    driver_describe(&host.driver, 3, 8 * GIB, 16 + 4096, VRING_DESC_F_WRITE, 0);
    host_send_to(&host, 1, FUSE_READ, 0, &in, sizeof(in));
    while (memfs_reads(device.fs) == 0)
        ;
    extra_remove(&e);
    host_wait(&host, 1);
    assert_int_equal(host.used[1], 0);
    assert_memory_equal(e.memory, zeroes, sizeof(zeroes));
    extra_fini(&e);
}

static void memory_comes_back(void **state)
{
    uint64_t fh = host_open(&host, host_lookup(&host, FUSE_ROOT_ID, "big"));
    struct extra e;

    for (int i = 0; i < 3; i++) {
        extra_add(&e);
        read_into_extra(fh, 1);
        assert_int_equal(host_wait(&host, 1)->error, 0);
        assert_true(memfs_equal(e.memory, 0, 65536));
        extra_remove(&e);
        extra_fini(&e);
    }
}

static void memory_under_a_ring_does_not_go(void **state)
{
    struct vhost_command c = driver_region(&host.driver);

    c.kind = VHOST_REGION_REMOVE;
    c.session = 7;
    device_command(&device, c, -1);
    assert_non_null(strstr(device_bad(&device, 7), "ring"));
}

static void memory_goes_while_reads_run(void **state)
{
    uint64_t fh = host_open(&host, host_lookup(&host, FUSE_ROOT_ID, "big"));
    struct extra e;

    for (int i = 0; i < 50; i++) {
        static const char zeroes[65536];
        int error;

        extra_add(&e);
        read_into_extra(fh, 1);
        while (memfs_reads(device.fs) <= (uint64_t)i)
            ;
        extra_remove(&e);
        memset(e.memory, 0, 65536);
        error = host_wait(&host, 1)->error;
        assert_true(error == 0 || error == -ECANCELED);
        // what has been given back is written to by nobody else
        assert_memory_equal(e.memory, zeroes, 65536);
        extra_fini(&e);
    }
}

static void a_stopped_queue_goes_on_where_it_was(void **state)
{
    uint64_t fh = host_open(&host, host_lookup(&host, FUSE_ROOT_ID, "big")), base;

    host_read(&host, 1, fh, 5, 4096);
    host_read(&host, 2, fh, 6, 4096);
    while (memfs_reads(device.fs) < 2)
        ;
    base = host_stop(&host);
    device_answer_held(&device); // nobody hears that
    assert_false(host_answered(&host, 1));
    host_start(&host, (uint32_t)base, false);
    assert_int_equal(host_wait(&host, 1)->error, 0);
    assert_int_equal(host_wait(&host, 2)->error, 0);
    assert_true(memfs_equal(host_body(&host, 1), 5, 4096));
    assert_int_equal(memfs_reads(device.fs), 4);
}

static void a_stopped_queue_is_not_touched(void **state)
{
    uint64_t fh = host_open(&host, host_lookup(&host, FUSE_ROOT_ID, "stuck"));
    static const char zeroes[4096];

    host_read(&host, 1, fh, 5, 4096);
    while (memfs_reads(device.fs) == 0)
        ;
    host_stop(&host);
    host_send(&host, 2, FUSE_LOOKUP, FUSE_ROOT_ID, "dir", 4, 4096);
    assert_false(host_answered(&host, 1));
    assert_false(host_answered(&host, 2));
    assert_memory_equal(host_out(&host, 1), zeroes, sizeof(zeroes));
}

static void a_guest_that_boots_again_finds_nothing_in_progress(void **state)
{
    uint64_t fh = host_open(&host, host_lookup(&host, FUSE_ROOT_ID, "stuck"));

    host_read(&host, 1, fh, 5, 4096);
    while (memfs_reads(device.fs) == 0)
        ;
    host_stop(&host);
    driver_reset(&host.driver);
    host_start(&host, 0, false);
    host_mount(&host);
    assert_int_not_equal(host_lookup(&host, FUSE_ROOT_ID, "dir"), 0);
    assert_int_equal(memfs_reads(device.fs), 1);
    assert_int_equal(memfs_references(device.fs), 1);
    assert_int_equal(memfs_handles(device.fs), 0);
}

static void what_a_host_that_goes_held_is_given_back(void **state)
{
    struct host other;
    uint64_t fh;

    host_init(&other, &device, 8);
    host_mount(&other);
    fh = host_open(&other, host_lookup(&other, FUSE_ROOT_ID, "stuck"));
    host_lookup(&other, FUSE_ROOT_ID, "dir");
    host_read(&other, 1, fh, 5, 4096);
    while (memfs_reads(device.fs) == 0)
        ;
    assert_int_equal(memfs_references(device.fs), 2);
    host_remove(&other);
    host_fini(&other);
    for (uint64_t end = clock_monotonic_ns() + 10 * NS_PER_S;
         memfs_references(device.fs) != 0 || memfs_handles(device.fs) != 0;)
        assert_true(clock_monotonic_ns() < end);
}

static void commands_that_make_no_sense_are_refused(void **state)
{
    struct vhost_command c = {.kind = VHOST_QUEUE_STOP, .session = 99};

    device_command(&device, c, -1);
    device_bad(&device, 99);
    c = (struct vhost_command){.kind = VHOST_QUEUE_START, .session = 7, .queue = VHOST_QUEUES};
    device_command(&device, c, -1);
    device_bad(&device, 7);
}

#define TEST(f)         cmocka_unit_test_setup_teardown(f, setup, teardown)
#define TEST_HOLDING(f) cmocka_unit_test_setup_teardown(f, setup_holding, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(names_are_looked_up),
        TEST(data_of_a_read_lies_behind_its_header),
        TEST(data_goes_into_scattered_descriptors),
        TEST(a_read_larger_than_its_room_is_refused),
        TEST(an_answer_without_room_becomes_an_error),
        TEST_HOLDING(answers_go_out_of_order),
        TEST(a_forget_needs_no_answer),
        TEST(an_interrupted_read_ends),
        TEST(libos2g_fetches_whole_objects),
        TEST(a_message_that_is_none_ends_the_session),
        TEST(a_bad_chain_ends_the_session_and_no_other),
        TEST(memory_that_shrinks_ends_the_session),
        TEST(a_host_uses_and_gives_back_only_its_own),
        TEST_HOLDING(memory_goes_without_waiting_for_the_store),
        TEST(what_waits_for_memory_that_goes_is_cancelled),
        TEST(libos2g_may_take_memory_back_from_what_is_in_the_ring),
        TEST(a_guest_may_not),
        TEST(nor_libos2g_from_what_has_no_data),
        TEST(nor_from_a_header),
        TEST(a_header_whose_memory_has_gone_is_not_written),
        TEST(memory_comes_back),
        TEST(memory_under_a_ring_does_not_go),
        TEST(memory_goes_while_reads_run),
        TEST_HOLDING(a_stopped_queue_goes_on_where_it_was),
        TEST(a_stopped_queue_is_not_touched),
        TEST(a_guest_that_boots_again_finds_nothing_in_progress),
        TEST(what_a_host_that_goes_held_is_given_back),
        TEST(commands_that_make_no_sense_are_refused),
    };

    region_guard_install();
    sigaction(SIGBUS, NULL, &guard);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
