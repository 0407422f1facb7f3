// SPDX-License-Identifier: Apache-2.0
// A host that is not believed: it can use and give back only what it was given.
#include "test.h"

#include "fixture.h"

#include <string.h>

static const struct fuse_getattr_in getattr = {0};

static void lookup(struct fixture *f, uint64_t node)
{
    const struct fs_entry e = {.attr = {.node = node, .mode = S_IFDIR | 0755}};

    ask(f, FUSE_LOOKUP, FUSE_ROOT_ID, NULL, 0, "name");
    f->fs.req->reply->entry(f->fs.req, &e);
}

static void open_file(struct fixture *f, uint64_t node, uint64_t handle, bool known)
{
    const struct fuse_open_in in = {0};
    const struct fs_opened o = {.handle = handle, .known = known};

    ask(f, FUSE_OPEN, node, &in, sizeof(in), NULL);
    f->fs.req->reply->opened(f->fs.req, &o);
}

static void open_dir(struct fixture *f, uint64_t handle)
{
    const struct fuse_open_in in = {0};
    const struct fs_opened o = {.handle = handle};

    ask(f, FUSE_OPENDIR, FUSE_ROOT_ID, &in, sizeof(in), NULL);
    f->fs.req->reply->opened(f->fs.req, &o);
}

static void forget(struct fixture *f, uint64_t node, uint64_t n)
{
    const struct fuse_forget_in in = {.nlookup = n};

    f->fs.n = 0;
    ask(f, FUSE_FORGET, node, &in, sizeof(in), NULL);
}

static void release(struct fixture *f, uint32_t opcode, uint64_t handle)
{
    const struct fuse_release_in in = {.fh = handle};

    f->fs.op = NULL;
    ask(f, opcode, FUSE_ROOT_ID, &in, sizeof(in), NULL);
}

static void the_root_is_everybodys(void **state)
{
    struct fixture *f = *state;

    ask(f, FUSE_GETATTR, FUSE_ROOT_ID, &getattr, sizeof(getattr), NULL);
    assert_string_equal(f->fs.op, "getattr");
}

static void a_node_that_was_not_given_is_stale(void **state)
{
    struct fixture *f = *state;

    ask(f, FUSE_GETATTR, 77, &getattr, sizeof(getattr), NULL);
    assert_int_equal(answer_header(f)->error, -ESTALE);
    ask(f, FUSE_LOOKUP, 77, NULL, 0, "name");
    assert_int_equal(answer_header(f)->error, -ESTALE);
    assert_null(f->fs.op);
    lookup(f, 77);
    ask(f, FUSE_GETATTR, 77, &getattr, sizeof(getattr), NULL);
    assert_string_equal(f->fs.op, "getattr");
}

static void it_forgets_no_more_than_it_holds(void **state)
{
    struct fixture *f = *state;

    forget(f, 77, 1);
    assert_int_equal(f->fs.n, 0);
    lookup(f, 77);
    lookup(f, 77);
    forget(f, 77, 1000);
    assert_int_equal(f->fs.n, 2);
    ask(f, FUSE_GETATTR, 77, &getattr, sizeof(getattr), NULL);
    assert_int_equal(answer_header(f)->error, -ESTALE);
}

static void a_handle_that_was_not_given_is_bad(void **state)
{
    struct fixture *f = *state;
    const struct fuse_read_in read = {.fh = 5, .size = 10};
    const struct fuse_ioctl_in ioctl = {.fh = 5};

    ask(f, FUSE_READ, 0, &read, sizeof(read), NULL);
    assert_int_equal(answer_header(f)->error, -EBADF);
    ask(f, FUSE_READDIR, 0, &read, sizeof(read), NULL);
    assert_int_equal(answer_header(f)->error, -EBADF);
    ask(f, FUSE_IOCTL, FUSE_ROOT_ID, &ioctl, sizeof(ioctl), NULL);
    assert_int_equal(answer_header(f)->error, -EBADF);
    release(f, FUSE_RELEASE, 5);
    assert_int_equal(answer_header(f)->error, -EBADF);
    assert_null(f->fs.op);
}

static void a_handle_is_released_once(void **state)
{
    struct fixture *f = *state;

    open_file(f, FUSE_ROOT_ID, 5, false);
    release(f, FUSE_RELEASEDIR, 5); // it is no directory
    assert_int_equal(answer_header(f)->error, -EBADF);
    release(f, FUSE_RELEASE, 5);
    assert_string_equal(f->fs.op, "release");
    fuse_session_answer(&f->request, 0);
    release(f, FUSE_RELEASE, 5);
    assert_int_equal(answer_header(f)->error, -EBADF);
    // one whose work was done by the worker before
    f->replayed = true;
    release(f, FUSE_RELEASE, 5);
    assert_int_equal(answer_header(f)->error, 0);
    assert_null(f->fs.op);
}

static void what_it_was_not_told_it_does_not_hold(void **state)
{
    struct fixture *f = *state;

    f->send_result = -ENOENT;
    lookup(f, 77);
    open_file(f, FUSE_ROOT_ID, 5, false);
    assert_int_equal(f->fs.undone_sum, 77 + 5);
    assert_int_equal(fuse_holdings_count(f->holdings), 0);
    // it may have been told by the worker before
    open_file(f, FUSE_ROOT_ID, 6, true);
    assert_int_equal(f->fs.undone, 2);
    assert_true(fuse_holdings_has_handle(f->holdings, 6, false));
}

static void list(struct fixture *f)
{
    const struct fuse_read_in in = {.fh = 5, .size = 4096};
    const struct fs_entry dot = {.attr = {.node = 1, .mode = S_IFDIR}};
    const struct fs_entry one = {.attr = {.node = 77, .mode = S_IFREG}};

    ask(f, FUSE_READDIRPLUS, 0, &in, sizeof(in), NULL);
    f->fs.req->reply->dirent(f->fs.req, ".", 1, 1, &dot);
    f->fs.req->reply->dirent(f->fs.req, "one", 3, 2, &one);
    f->fs.req->reply->dirents_end(f->fs.req);
}

static void names_of_a_directory_are_held(void **state)
{
    struct fixture *f = *state;

    open_dir(f, 5);
    list(f);
    assert_true(fuse_holdings_has_node(f->holdings, 77));
    assert_false(fuse_holdings_has_node(f->holdings, 1));
    f->send_result = -ENOENT;
    list(f);
    assert_int_equal(f->fs.undone_sum, 77);
    assert_int_equal(fuse_holdings_drop_node(f->holdings, 77, 9), 1);
}

static void a_new_mount_begins_with_nothing(void **state)
{
    struct fixture *f = *state;

    lookup(f, 77);
    lookup(f, 77);
    open_dir(f, 5);
    f->fs.n = 0;
    init_with(f, FUSE_KERNEL_VERSION, FUSE_KERNEL_MINOR_VERSION, ~0ULL);
    assert_int_equal(f->fs.n, 2);
    assert_int_equal(f->fs.undone_sum, 5);
    assert_int_equal(fuse_holdings_count(f->holdings), 0);
}

static void an_unmount_gives_everything_back(void **state)
{
    struct fixture *f = *state;

    lookup(f, 77);
    f->fs.n = 0;
    ask(f, FUSE_DESTROY, 0, NULL, 0, NULL);
    assert_int_equal(f->fs.n, 1);
    assert_int_equal(fuse_holdings_count(f->holdings), 0);
}

static void giving_back_can_be_done_in_parts(void **state)
{
    struct fixture *f = *state;

    for (uint64_t node = 10; node < 20; node++)
        lookup(f, node);
    f->fs.n = 0;
    assert_false(fuse_session_give_back(f->session, 4));
    assert_int_equal(f->fs.n, 4);
    assert_false(fuse_session_give_back(f->session, 4));
    assert_true(fuse_session_give_back(f->session, 4));
    assert_int_equal(f->fs.n, 10);
    assert_true(fuse_session_give_back(f->session, 4));
}

static void the_file_system_sees_numbers_that_no_host_chose(void **state)
{
    struct fixture *f = *state;
    struct fuse_session_config c = fixture_config(f);
    struct fuse_session *other, *mine = f->session;
    const struct fuse_negotiated agreed = {.minor = 38, .max_read = 4096};

    c.unique_key = 99;
    other = fuse_session_new(&c, &agreed);
    ask(f, FUSE_GETATTR, FUSE_ROOT_ID, &getattr, sizeof(getattr), NULL);
    f->session = other;
    ask(f, FUSE_GETATTR, FUSE_ROOT_ID, &getattr, sizeof(getattr), NULL);
    assert_int_not_equal(f->fs.uniques[0], f->fs.uniques[1]);
    assert_int_not_equal(f->fs.uniques[0], 1234);
    // the answer has the host's own
    f->fs.req->reply->error(f->fs.req, -EIO);
    assert_int_equal(answer_header(f)->unique, 1234);
    f->session = mine;
    fuse_session_free(other);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, fixture_setup_host, fixture_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(the_root_is_everybodys),
        TEST(a_node_that_was_not_given_is_stale),
        TEST(it_forgets_no_more_than_it_holds),
        TEST(a_handle_that_was_not_given_is_bad),
        TEST(a_handle_is_released_once),
        TEST(what_it_was_not_told_it_does_not_hold),
        TEST(names_of_a_directory_are_held),
        TEST(a_new_mount_begins_with_nothing),
        TEST(an_unmount_gives_everything_back),
        TEST(giving_back_can_be_done_in_parts),
        TEST(the_file_system_sees_numbers_that_no_host_chose),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
