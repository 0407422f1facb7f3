// SPDX-License-Identifier: Apache-2.0
#include "test.h"

#include "fixture.h"

#include <string.h>

#define ALLOW_MMAP (1ULL << 36) // FUSE_DIRECT_IO_ALLOW_MMAP

static const struct fuse_init_out *init_out(struct fixture *f)
{
    size_t len;
    const struct fuse_init_out *out = answer_body(f, &len);

    assert_int_equal(answer_header(f)->error, 0);
    assert_int_equal(len, sizeof(*out));
    return out;
}

static void what_the_kernel_offers_and_we_want_is_agreed_on(void **state)
{
    struct fixture *f = *state;
    const struct fuse_init_out *out;

    init_with(f, 7, 45, ~0ULL);
    out = init_out(f);
    assert_int_equal(out->major, 7);
    assert_int_equal(out->flags, FUSE_ASYNC_READ | FUSE_ASYNC_DIO | FUSE_PARALLEL_DIROPS |
                                     FUSE_DO_READDIRPLUS | FUSE_EXPLICIT_INVAL_DATA |
                                     FUSE_HAS_IOCTL_DIR | FUSE_MAX_PAGES | FUSE_INIT_EXT);
    assert_int_equal(out->flags2, ALLOW_MMAP >> 32);
    assert_int_equal(out->max_pages, 256);
    assert_int_equal(out->max_background, 64);
    assert_int_equal(out->congestion_threshold, 48);
    assert_int_equal(out->max_write, 4096);
    assert_int_equal(out->max_readahead, 128 << 10); // the kernel offered no more
    assert_int_equal(f->finished, 1);
}

static void what_the_kernel_does_not_offer_is_not_asked_for(void **state)
{
    struct fixture *f = *state;

    init_with(f, 7, 31, FUSE_MAX_PAGES | FUSE_ASYNC_READ);
    assert_int_equal(init_out(f)->flags, FUSE_MAX_PAGES | FUSE_ASYNC_READ);
    assert_int_equal(init_out(f)->flags2, 0);
}

static void the_upper_flags_count_only_where_both_know_of_them(void **state)
{
    struct fixture *f = *state;

    init_with(f, 7, 35, FUSE_MAX_PAGES | ALLOW_MMAP);
    assert_int_equal(init_out(f)->flags2, 0);
}

static void the_short_init_of_older_kernels_is_understood(void **state)
{
    struct fixture *f = *state;
    struct fuse_init_in in = {
        .major = 7, .minor = 31, .max_readahead = 4096, .flags = FUSE_MAX_PAGES};

    ask(f, FUSE_INIT, 0, &in, 16, NULL);
    assert_int_equal(init_out(f)->flags, FUSE_MAX_PAGES);
    assert_int_equal(init_out(f)->max_readahead, 4096);
    assert_int_equal(fuse_session_negotiated(f->session)->minor, 31);
}

static void a_kernel_that_is_too_old_is_told_so(void **state)
{
    struct fixture *f = *state;

    init_with(f, 7, 27, ~0ULL);
    assert_int_equal(answer_header(f)->error, -EPROTO);
    init_with(f, 6, 50, ~0ULL);
    assert_int_equal(answer_header(f)->error, -EPROTO);
    assert_int_equal(fuse_session_negotiated(f->session)->minor, 0);
}

static void a_kernel_of_a_later_major_version_is_asked_to_come_down(void **state)
{
    struct fixture *f = *state;

    init_with(f, 8, 0, ~0ULL);
    assert_int_equal(init_out(f)->major, 7);
    assert_int_equal(fuse_session_negotiated(f->session)->minor, 0);
    init_with(f, 7, 38, ~0ULL);
    assert_int_equal(fuse_session_negotiated(f->session)->minor, 38);
}

static void a_session_goes_on_with_what_an_earlier_one_agreed_on(void **state)
{
    struct fixture *f = *state;
    struct fuse_session_config c = fixture_config(f);
    struct fuse_negotiated n;
    struct fuse_read_in in = {.size = 4097};

    init_with(f, 7, 38, ~0ULL);
    n = *fuse_session_negotiated(f->session);
    n.max_read = 4096;
    fuse_session_free(f->session);
    f->session = fuse_session_new(&c, &n);
    ask(f, FUSE_READ, 2, &in, sizeof(in), NULL);
    assert_int_equal(answer_header(f)->error, -EINVAL);
    in.size = 4096;
    ask(f, FUSE_READ, 2, &in, sizeof(in), NULL);
    assert_string_equal(f->fs.op, "read");
}

static void destroy_is_noted_until_the_next_init(void **state)
{
    struct fixture *f = *state;

    init_with(f, 7, 38, ~0ULL);
    ask(f, FUSE_DESTROY, 0, NULL, 0, NULL);
    assert_int_equal(answer_header(f)->error, 0);
    assert_true(fuse_session_destroyed(f->session));
    init_with(f, 7, 38, ~0ULL);
    assert_false(fuse_session_destroyed(f->session));
}

#define fresh(fn) cmocka_unit_test_setup_teardown(fn, fixture_setup_new, fixture_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        fresh(what_the_kernel_offers_and_we_want_is_agreed_on),
        fresh(what_the_kernel_does_not_offer_is_not_asked_for),
        fresh(the_upper_flags_count_only_where_both_know_of_them),
        fresh(the_short_init_of_older_kernels_is_understood),
        fresh(a_kernel_that_is_too_old_is_told_so),
        fresh(a_kernel_of_a_later_major_version_is_asked_to_come_down),
        fresh(a_session_goes_on_with_what_an_earlier_one_agreed_on),
        fresh(destroy_is_noted_until_the_next_init),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
