// SPDX-License-Identifier: Apache-2.0
#include "test.h"

#include "fixture.h"

#include <string.h>

static struct fs_entry file_entry(uint64_t node)
{
    return (struct fs_entry){
        .attr = {.node = node,
                 .size = 1025,
                 .mtime_s = 1700000000,
                 .mode = S_IFREG | 0640,
                 .uid = 3,
                 .gid = 4,
                 .nlink = 1},
        .generation = 6,
        .entry_valid_ns = 60500000000,
        .attr_valid_ns = 1000000001,
    };
}

static void begin_lookup(struct fixture *f)
{
    ask(f, FUSE_LOOKUP, 1, NULL, 0, "x");
}

static void begin_readdir(struct fixture *f, uint32_t opcode, uint32_t size)
{
    struct fuse_read_in in = {.size = size};

    ask(f, opcode, 1, &in, sizeof(in), NULL);
}

static void an_entry_is_encoded_whole(void **state)
{
    struct fixture *f = *state;
    struct fs_entry e = file_entry(33);
    const struct fuse_entry_out *out;
    size_t len;

    begin_lookup(f);
    f->fs.req->reply->entry(f->fs.req, &e);
    out = answer_body(f, &len);
    assert_int_equal(len, sizeof(*out));
    assert_int_equal(out->nodeid, 33);
    assert_int_equal(out->generation, 6);
    assert_int_equal(out->entry_valid, 60);
    assert_int_equal(out->entry_valid_nsec, 500000000);
    assert_int_equal(out->attr_valid, 1);
    assert_int_equal(out->attr_valid_nsec, 1);
    assert_int_equal(out->attr.ino, 33);
    assert_int_equal(out->attr.size, 1025);
    assert_int_equal(out->attr.blocks, 3);
    assert_int_equal(out->attr.mtime, 1700000000);
    assert_int_equal(out->attr.mode, S_IFREG | 0640);
    assert_int_equal(out->attr.uid, 3);
    assert_int_equal(out->attr.gid, 4);
    assert_int_equal(f->finished, 1);
    assert_int_equal(f->fs.undone, 0);
}

static void a_name_that_does_not_exist_is_an_entry_without_a_node(void **state)
{
    struct fixture *f = *state;
    struct fs_entry e = {.entry_valid_ns = 5000000000};
    const struct fuse_entry_out *out;

    begin_lookup(f);
    f->fs.req->reply->entry(f->fs.req, &e);
    assert_int_equal(answer_header(f)->error, 0);
    out = answer_body(f, NULL);
    assert_int_equal(out->nodeid, 0);
    assert_int_equal(out->entry_valid, 5);
}

static void a_time_out_for_ever_stays_within_what_the_kernel_takes(void **state)
{
    struct fixture *f = *state;
    struct fs_entry e = file_entry(33);
    const struct fuse_entry_out *out;

    e.entry_valid_ns = UINT64_MAX;
    begin_lookup(f);
    f->fs.req->reply->entry(f->fs.req, &e);
    out = answer_body(f, NULL);
    assert_int_equal(out->entry_valid, UINT64_MAX / 1000000000);
    assert_true(out->entry_valid_nsec < 1000000000);
}

static void an_entry_that_was_not_heard_gives_its_reference_back(void **state)
{
    struct fixture *f = *state;
    struct fs_entry e = file_entry(33);

    begin_lookup(f);
    f->send_result = -ENOENT;
    f->fs.req->reply->entry(f->fs.req, &e);
    assert_int_equal(f->fs.undone, 1);
    assert_int_equal(f->fs.undone_sum, 33);
    assert_int_equal(f->finished, 1);
}

static void an_open_that_was_not_heard_gives_its_handle_back(void **state)
{
    struct fixture *f = *state;
    struct fuse_open_in in = {0};
    struct fs_opened o = {.handle = 12};

    ask(f, FUSE_OPEN, 2, &in, sizeof(in), NULL);
    f->send_result = -ENOENT;
    f->fs.req->reply->opened(f->fs.req, &o);
    assert_int_equal(f->fs.undone, 1);
    assert_int_equal(f->fs.undone_sum, 12);
}

static void a_handle_that_an_earlier_worker_gave_out_stays(void **state)
{
    struct fixture *f = *state;
    struct fuse_open_in in = {0};
    struct fs_opened o = {.handle = 12, .known = true};

    ask(f, FUSE_OPEN, 2, &in, sizeof(in), NULL);
    f->send_result = -ENOENT;
    f->fs.req->reply->opened(f->fs.req, &o);
    assert_int_equal(f->fs.undone, 0);
    assert_int_equal(f->finished, 1);
}

static void open_flags_follow_what_was_asked_for(void **state)
{
    struct fixture *f = *state;
    struct fuse_open_in in = {0};
    struct fs_opened o = {.handle = 12, .direct_io = true, .keep_cache = true, .cache_dir = true};
    const struct fuse_open_out *out;

    ask(f, FUSE_OPEN, 2, &in, sizeof(in), NULL);
    f->fs.req->reply->opened(f->fs.req, &o);
    out = answer_body(f, NULL);
    assert_int_equal(out->fh, 12);
    assert_int_equal(out->open_flags, FOPEN_DIRECT_IO | FOPEN_KEEP_CACHE | FOPEN_CACHE_DIR);
}

static void read_bytes_follow_each_other(void **state)
{
    struct fixture *f = *state;
    struct fuse_read_in in = {.size = 10};
    struct iovec iov[] = {{"abc", 3}, {"defg", 4}};
    size_t len;

    ask(f, FUSE_READ, 2, &in, sizeof(in), NULL);
    f->fs.req->reply->data(f->fs.req, iov, 2);
    assert_memory_equal(answer_body(f, &len), "abcdefg", 7);
    assert_int_equal(len, 7);
    assert_int_equal(f->finished, 1);
}

static void a_read_may_come_in_as_many_pieces_as_promised(void **state)
{
    struct fixture *f = *state;
    struct fuse_read_in in = {.size = FS_DATA_IOVS};
    struct iovec iov[FS_DATA_IOVS];
    size_t len;

    for (int i = 0; i < FS_DATA_IOVS; i++)
        iov[i] = (struct iovec){"x", 1};
    ask(f, FUSE_READ, 2, &in, sizeof(in), NULL);
    f->fs.req->reply->data(f->fs.req, iov, FS_DATA_IOVS);
    answer_body(f, &len);
    assert_int_equal(len, FS_DATA_IOVS);
}

static void an_error_is_passed_on(void **state)
{
    struct fixture *f = *state;

    begin_lookup(f);
    f->fs.req->reply->error(f->fs.req, -EACCES);
    assert_int_equal(answer_header(f)->error, -EACCES);
    assert_int_equal(f->answer_len, sizeof(struct fuse_out_header));
    assert_int_equal(f->finished, 1);
}

static void an_error_the_kernel_would_refuse_becomes_eio(void **state)
{
    static const int errors[] = {5, -512, -100000};
    struct fixture *f = *state;

    for (size_t i = 0; i < ARRAY_LEN(errors); i++) {
        begin_lookup(f);
        f->fs.req->reply->error(f->fs.req, errors[i]);
        assert_int_equal(answer_header(f)->error, -EIO);
    }
}

static void an_xattr_is_sent_measured_or_too_long(void **state)
{
    struct fixture *f = *state;
    struct fuse_getxattr_in in = {.size = 5};
    size_t len;

    ask(f, FUSE_GETXATTR, 2, &in, sizeof(in), "user.a");
    assert_string_equal(f->fs.name, "user.a");
    f->fs.req->reply->xattr(f->fs.req, "12345", 5);
    assert_memory_equal(answer_body(f, &len), "12345", 5);
    assert_int_equal(len, 5);

    in.size = 4;
    ask(f, FUSE_GETXATTR, 2, &in, sizeof(in), "user.a");
    f->fs.req->reply->xattr(f->fs.req, "12345", 5);
    assert_int_equal(answer_header(f)->error, -ERANGE);

    in.size = 0;
    ask(f, FUSE_LISTXATTR, 2, &in, sizeof(in), NULL);
    f->fs.req->reply->xattr(f->fs.req, "12345", 5);
    assert_int_equal(((const struct fuse_getxattr_out *)answer_body(f, &len))->size, 5);
    assert_int_equal(len, sizeof(struct fuse_getxattr_out));
}

static void an_ioctl_carries_its_result_and_bytes(void **state)
{
    struct fixture *f = *state;
    struct fuse_ioctl_in in = {.out_size = 8};
    const struct fuse_ioctl_out *out;
    size_t len;

    ask(f, FUSE_IOCTL, 2, &in, sizeof(in), NULL);
    f->fs.req->reply->ioctl(f->fs.req, 7, "8 bytes!", 8);
    out = answer_body(f, &len);
    assert_int_equal(out->result, 7);
    assert_int_equal(out->flags, 0);
    assert_int_equal(len, sizeof(*out) + 8);
    assert_memory_equal(out + 1, "8 bytes!", 8);
}

static void names_are_listed_until_there_is_no_room(void **state)
{
    struct fixture *f = *state;
    struct fs_entry e = file_entry(40);
    const struct fuse_dirent *d;
    size_t len;

    // a name of 5 bytes takes 24 + 8
    begin_readdir(f, FUSE_READDIR, 70);
    assert_true(f->fs.req->reply->dirent(f->fs.req, "first", 5, 1, &e));
    assert_true(f->fs.req->reply->dirent(f->fs.req, "other", 5, 2, &e));
    assert_false(f->fs.req->reply->dirent(f->fs.req, "third", 5, 3, &e));
    f->fs.req->reply->dirents_end(f->fs.req);

    d = answer_body(f, &len);
    assert_int_equal(len, 64);
    assert_int_equal(d->ino, 40);
    assert_int_equal(d->off, 1);
    assert_int_equal(d->namelen, 5);
    assert_int_equal(d->type, 8); // DT_REG
    assert_memory_equal(d->name, "first\0\0\0", 8);
    d = (const void *)((const char *)d + FUSE_DIRENT_SIZE(d));
    assert_int_equal(d->off, 2);
    assert_memory_equal(d->name, "other", 5);
}

static void names_with_attributes_carry_them(void **state)
{
    struct fixture *f = *state;
    struct fs_entry e = file_entry(40);
    const struct fuse_direntplus *d;
    size_t len;

    begin_readdir(f, FUSE_READDIRPLUS, 4096);
    assert_true(f->fs.req->reply->dirent(f->fs.req, "name", 4, 9, &e));
    f->fs.req->reply->dirents_end(f->fs.req);
    d = answer_body(f, &len);
    assert_int_equal(len, FUSE_DIRENTPLUS_SIZE(d));
    assert_int_equal(d->entry_out.nodeid, 40);
    assert_int_equal(d->entry_out.attr.size, 1025);
    assert_int_equal(d->dirent.off, 9);
    assert_memory_equal(d->dirent.name, "name", 4);
}

static void the_dot_names_carry_no_node(void **state)
{
    struct fixture *f = *state;
    struct fs_entry e = file_entry(1);
    const struct fuse_direntplus *d;

    e.attr.mode = S_IFDIR | 0755;
    begin_readdir(f, FUSE_READDIRPLUS, 4096);
    assert_true(f->fs.req->reply->dirent(f->fs.req, ".", 1, 1, &e));
    assert_true(f->fs.req->reply->dirent(f->fs.req, "..", 2, 2, &e));
    f->fs.req->reply->dirents_end(f->fs.req);
    d = answer_body(f, NULL);
    assert_int_equal(d->entry_out.nodeid, 0);
    assert_int_equal(d->dirent.ino, 1);
    assert_int_equal(d->dirent.type, 4); // DT_DIR
    d = (const void *)((const char *)d + FUSE_DIRENTPLUS_SIZE(d));
    assert_int_equal(d->entry_out.nodeid, 0);
}

static void names_that_were_not_heard_give_their_references_back(void **state)
{
    struct fixture *f = *state;
    struct fs_entry dot = file_entry(1), a = file_entry(40), b = file_entry(50);

    begin_readdir(f, FUSE_READDIRPLUS, 4096);
    f->fs.req->reply->dirent(f->fs.req, ".", 1, 1, &dot);
    f->fs.req->reply->dirent(f->fs.req, "a", 1, 2, &a);
    f->fs.req->reply->dirent(f->fs.req, "a longer name", 13, 3, &b);
    f->send_result = -ENOENT;
    f->fs.req->reply->dirents_end(f->fs.req);
    assert_int_equal(f->fs.undone, 2);
    assert_int_equal(f->fs.undone_sum, 90);
}

static void plain_names_carry_no_references(void **state)
{
    struct fixture *f = *state;
    struct fs_entry a = file_entry(40);

    begin_readdir(f, FUSE_READDIR, 4096);
    f->fs.req->reply->dirent(f->fs.req, "a", 1, 2, &a);
    f->send_result = -ENOENT;
    f->fs.req->reply->dirents_end(f->fs.req);
    assert_int_equal(f->fs.undone, 0);
}

static void a_listing_may_end_with_an_error_instead(void **state)
{
    struct fixture *f = *state;

    begin_readdir(f, FUSE_READDIRPLUS, 4096);
    f->fs.req->reply->error(f->fs.req, -EIO);
    assert_int_equal(answer_header(f)->error, -EIO);
    assert_int_equal(f->finished, 1);
}

static void a_listing_asked_for_with_a_huge_size_is_bounded(void **state)
{
    struct fixture *f = *state;
    struct fs_entry a = file_entry(40);
    unsigned n = 0;

    begin_readdir(f, FUSE_READDIR, UINT32_MAX);
    while (n < 100000 && f->fs.req->reply->dirent(f->fs.req, "a name", 6, n + 1, &a))
        n++;
    f->fs.req->reply->dirents_end(f->fs.req);
    assert_int_equal(n, 128 * 1024 / 32);
}

static void a_file_system_without_a_size_shows_all_of_it_free(void **state)
{
    struct fixture *f = *state;
    const struct fuse_statfs_out *out;

    ask(f, FUSE_STATFS, 1, NULL, 0, NULL);
    f->fs.req->reply->statfs(f->fs.req, 77);
    out = answer_body(f, NULL);
    assert_int_equal(out->st.files, 77);
    assert_int_equal(out->st.blocks, out->st.bavail);
    assert_int_equal(out->st.namelen, 255);
}

#define with_init(fn) cmocka_unit_test_setup_teardown(fn, fixture_setup, fixture_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        with_init(an_entry_is_encoded_whole),
        with_init(a_name_that_does_not_exist_is_an_entry_without_a_node),
        with_init(a_time_out_for_ever_stays_within_what_the_kernel_takes),
        with_init(an_entry_that_was_not_heard_gives_its_reference_back),
        with_init(an_open_that_was_not_heard_gives_its_handle_back),
        with_init(a_handle_that_an_earlier_worker_gave_out_stays),
        with_init(open_flags_follow_what_was_asked_for),
        with_init(read_bytes_follow_each_other),
        with_init(a_read_may_come_in_as_many_pieces_as_promised),
        with_init(an_error_is_passed_on),
        with_init(an_error_the_kernel_would_refuse_becomes_eio),
        with_init(an_xattr_is_sent_measured_or_too_long),
        with_init(an_ioctl_carries_its_result_and_bytes),
        with_init(names_are_listed_until_there_is_no_room),
        with_init(names_with_attributes_carry_them),
        with_init(the_dot_names_carry_no_node),
        with_init(names_that_were_not_heard_give_their_references_back),
        with_init(plain_names_carry_no_references),
        with_init(a_listing_may_end_with_an_error_instead),
        with_init(a_listing_asked_for_with_a_huge_size_is_bounded),
        with_init(a_file_system_without_a_size_shows_all_of_it_free),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
