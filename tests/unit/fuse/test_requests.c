// SPDX-License-Identifier: Apache-2.0
#include "test.h"

#include "fixture.h"

#include <fcntl.h>
#include <string.h>

static void assert_answered(struct fixture *f, int error)
{
    assert_int_equal(f->sent, 1);
    assert_int_equal(f->finished, 1);
    assert_int_equal(answer_header(f)->error, error);
}

static void a_lookup_reaches_the_file_system_with_name_and_caller(void **state)
{
    struct fixture *f = *state;

    ask(f, FUSE_LOOKUP, 5, NULL, 0, "a name");
    assert_string_equal(f->fs.op, "lookup");
    assert_int_equal(f->fs.node, 5);
    assert_string_equal(f->fs.name, "a name");
    assert_int_equal(f->fs.name_len, 6);
    assert_int_equal(f->fs.req->uid, 1000);
    assert_int_equal(f->fs.req->gid, 1001);
    assert_int_equal(f->fs.req->pid, 77);
    assert_int_equal(f->fs.req->unique, 1234);
    assert_false(f->fs.req->replayed);
    assert_int_equal(f->finished, 0);
}

static void a_name_without_its_zero_byte_is_refused(void **state)
{
    struct fixture *f = *state;

    ask(f, FUSE_LOOKUP, 1, "abc", 3, NULL);
    assert_answered(f, -EINVAL);
    assert_null(f->fs.op);
}

static void an_empty_name_is_refused(void **state)
{
    ask(*state, FUSE_LOOKUP, 1, NULL, 0, "");
    assert_answered(*state, -EINVAL);
}

static void a_lookup_without_any_name_is_refused(void **state)
{
    ask(*state, FUSE_LOOKUP, 1, NULL, 0, NULL);
    assert_answered(*state, -EINVAL);
}

static void a_name_with_a_slash_or_made_of_dots_is_refused(void **state)
{
    static const char *const names[] = {"a/b", "/", ".", ".."};
    struct fixture *f = *state;

    for (size_t i = 0; i < ARRAY_LEN(names); i++) {
        f->sent = f->finished = 0;
        ask(f, FUSE_LOOKUP, 1, NULL, 0, names[i]);
        assert_answered(f, -EINVAL);
    }
    assert_null(f->fs.op);
}

static void a_name_of_255_bytes_passes_and_one_of_256_is_too_long(void **state)
{
    struct fixture *f = *state;
    char name[257];

    memset(name, 'x', 256);
    name[256] = 0;
    ask(f, FUSE_LOOKUP, 1, NULL, 0, name);
    assert_answered(f, -ENAMETOOLONG);
    ask(f, FUSE_LOOKUP, 1, NULL, 0, name + 1);
    assert_int_equal(f->fs.name_len, 255);
}

static void a_message_whose_length_is_not_its_own_is_no_request(void **state)
{
    struct fixture *f = *state;
    uint32_t len;

    message_begin(f, FUSE_STATFS, 1);
    len = (uint32_t)f->message_len + 1;
    memcpy(f->message, &len, sizeof(len));
    assert_int_equal(fuse_session_dispatch(f->session, &f->request, f->message, f->message_len,
                                           &(struct fuse_arrival){0}),
                     -EBADMSG);
    assert_int_equal(
        fuse_session_dispatch(f->session, &f->request, f->message, 39, &(struct fuse_arrival){0}),
        -EBADMSG);
    assert_int_equal(f->sent + f->finished + f->fs.ops, 0);
}

static void a_message_shorter_than_its_kind_needs_is_refused(void **state)
{
    static const uint32_t opcodes[] = {
        FUSE_GETATTR,   FUSE_ACCESS,  FUSE_GETXATTR,    FUSE_OPEN,       FUSE_READ,
        FUSE_RELEASE,   FUSE_READDIR, FUSE_READDIRPLUS, FUSE_RELEASEDIR, FUSE_INTERRUPT,
        FUSE_LISTXATTR, FUSE_IOCTL,   FUSE_INIT};
    struct fixture *f = *state;

    for (size_t i = 0; i < ARRAY_LEN(opcodes); i++) {
        f->sent = f->finished = 0;
        ask(f, opcodes[i], 1, "abc", 3, NULL);
        assert_answered(f, -EINVAL);
    }
    assert_null(f->fs.op);
}

static void a_request_before_init_is_refused(void **state)
{
    struct fixture *f = *state;

    ask(f, FUSE_LOOKUP, 1, NULL, 0, "x");
    assert_answered(f, -EIO);
    assert_null(f->fs.op);
}

static void a_forget_before_init_gets_no_answer(void **state)
{
    struct fixture *f = *state;
    struct fuse_forget_in in = {.nlookup = 1};

    ask(f, FUSE_FORGET, 3, &in, sizeof(in), NULL);
    assert_int_equal(f->sent, 0);
    assert_int_equal(f->finished, 1);
}

static void a_forget_is_carried_out_without_an_answer(void **state)
{
    struct fixture *f = *state;
    struct fuse_forget_in in = {.nlookup = 3};

    ask(f, FUSE_FORGET, 9, &in, sizeof(in), NULL);
    assert_string_equal(f->fs.op, "forget");
    assert_int_equal(f->fs.node, 9);
    assert_int_equal(f->fs.n, 3);
    assert_int_equal(f->sent, 0);
    assert_int_equal(f->finished, 1);
}

static void a_batch_of_forgets_ends_where_the_message_ends(void **state)
{
    struct fixture *f = *state;
    struct fuse_batch_forget_in in = {.count = 1000000};
    struct fuse_forget_one two[] = {{11, 1}, {12, 2}};

    message_begin(f, FUSE_BATCH_FORGET, 0);
    message_add(f, &in, sizeof(in));
    message_add(f, two, sizeof(two));
    message_add(f, "half", 4);
    assert_int_equal(message_dispatch(f), 0);
    assert_int_equal(f->fs.ops, 2);
    assert_int_equal(f->fs.n, 3);
    assert_int_equal(f->sent, 0);
    assert_int_equal(f->finished, 1);
}

static void a_batch_of_forgets_goes_by_its_count(void **state)
{
    struct fixture *f = *state;
    struct fuse_batch_forget_in in = {.count = 1};
    struct fuse_forget_one two[] = {{11, 1}, {12, 2}};

    message_begin(f, FUSE_BATCH_FORGET, 0);
    message_add(f, &in, sizeof(in));
    message_add(f, two, sizeof(two));
    assert_int_equal(message_dispatch(f), 0);
    assert_int_equal(f->fs.ops, 1);
}

static void the_root_is_never_forgotten(void **state)
{
    struct fixture *f = *state;
    struct fuse_forget_in in = {.nlookup = 1};

    ask(f, FUSE_FORGET, FS_ROOT, &in, sizeof(in), NULL);
    assert_null(f->fs.op);
    assert_int_equal(f->finished, 1);
}

static void a_read_hands_on_handle_offset_and_size(void **state)
{
    struct fixture *f = *state;
    struct fuse_read_in in = {.fh = 8, .offset = 1ULL << 40, .size = 1 << 20};

    ask(f, FUSE_READ, 2, &in, sizeof(in), NULL);
    assert_string_equal(f->fs.op, "read");
    assert_int_equal(f->fs.handle, 8);
    assert_int_equal(f->fs.offset, 1ULL << 40);
    assert_int_equal(f->fs.size, 1 << 20);
}

static void a_read_larger_than_agreed_on_is_refused(void **state)
{
    struct fixture *f = *state;
    struct fuse_read_in in = {.fh = 8, .size = (1 << 20) + 1};

    ask(f, FUSE_READ, 2, &in, sizeof(in), NULL);
    assert_answered(f, -EINVAL);
    assert_null(f->fs.op);
}

static void a_read_that_ends_beyond_the_largest_file_is_refused(void **state)
{
    struct fixture *f = *state;
    struct fuse_read_in in = {.fh = 8, .offset = INT64_MAX - 4095, .size = 4096};

    ask(f, FUSE_READ, 2, &in, sizeof(in), NULL);
    assert_answered(f, -EINVAL);
}

static void a_read_of_nothing_gets_nothing(void **state)
{
    struct fixture *f = *state;
    struct fuse_read_in in = {.fh = 8};

    ask(f, FUSE_READ, 2, &in, sizeof(in), NULL);
    assert_answered(f, 0);
    assert_int_equal(f->answer_len, sizeof(struct fuse_out_header));
}

static void an_open_for_reading_passes(void **state)
{
    struct fixture *f = *state;
    struct fuse_open_in in = {.flags = O_RDONLY | O_NOFOLLOW};

    ask(f, FUSE_OPEN, 2, &in, sizeof(in), NULL);
    assert_string_equal(f->fs.op, "open");
    assert_int_equal(f->fs.flags, O_RDONLY | O_NOFOLLOW);
}

static void an_open_for_writing_is_refused(void **state)
{
    static const uint32_t flags[] = {O_WRONLY, O_RDWR, O_RDONLY | O_TRUNC};
    struct fixture *f = *state;

    for (size_t i = 0; i < ARRAY_LEN(flags); i++) {
        struct fuse_open_in in = {.flags = flags[i]};

        f->sent = f->finished = 0;
        ask(f, FUSE_OPEN, 2, &in, sizeof(in), NULL);
        assert_answered(f, -EROFS);
    }
    assert_null(f->fs.op);
}

static void whatever_would_change_something_is_refused_as_read_only(void **state)
{
    static const uint32_t opcodes[] = {
        FUSE_SETATTR,  FUSE_SYMLINK,     FUSE_MKNOD,     FUSE_MKDIR,
        FUSE_UNLINK,   FUSE_RMDIR,       FUSE_RENAME,    FUSE_RENAME2,
        FUSE_LINK,     FUSE_WRITE,       FUSE_CREATE,    FUSE_TMPFILE,
        FUSE_SETXATTR, FUSE_REMOVEXATTR, FUSE_FALLOCATE, FUSE_COPY_FILE_RANGE};
    struct fixture *f = *state;

    for (size_t i = 0; i < ARRAY_LEN(opcodes); i++) {
        f->sent = f->finished = 0;
        ask(f, opcodes[i], 2, NULL, 0, "anything");
        assert_answered(f, -EROFS);
    }
}

static void what_the_kernel_can_do_alone_is_answered_enosys(void **state)
{
    static const uint32_t opcodes[] = {FUSE_FLUSH, FUSE_FSYNC, FUSE_FSYNCDIR, FUSE_LSEEK,
                                       FUSE_POLL,  FUSE_BMAP,  FUSE_SYNCFS,   FUSE_GETLK,
                                       7,          52,         99999,         UINT32_MAX};
    struct fixture *f = *state;

    for (size_t i = 0; i < ARRAY_LEN(opcodes); i++) {
        f->sent = f->finished = 0;
        ask(f, opcodes[i], 2, NULL, 0, NULL);
        assert_answered(f, -ENOSYS);
    }
}

static void an_ioctl_hands_on_what_the_program_gave(void **state)
{
    struct fixture *f = *state;
    struct fuse_ioctl_in in = {.fh = 4, .cmd = 0xc0ffee, .in_size = 5, .out_size = 16};

    ask(f, FUSE_IOCTL, 6, &in, sizeof(in), "hello");
    assert_string_equal(f->fs.op, "ioctl");
    assert_int_equal(f->fs.node, 6);
    assert_int_equal(f->fs.handle, 4);
    assert_int_equal(f->fs.cmd, 0xc0ffee);
    assert_int_equal(f->fs.in_len, 5);
    assert_int_equal(f->fs.out_size, 16);
    assert_memory_equal(f->fs.name, "hello", 5);
}

static void an_ioctl_that_claims_more_than_it_brings_is_refused(void **state)
{
    struct fixture *f = *state;
    struct fuse_ioctl_in in = {.fh = 4, .in_size = 7};

    ask(f, FUSE_IOCTL, 6, &in, sizeof(in), "hello");
    assert_answered(f, -EINVAL);
    assert_null(f->fs.op);
}

static void an_unrestricted_ioctl_is_refused(void **state)
{
    struct fixture *f = *state;
    struct fuse_ioctl_in in = {.flags = FUSE_IOCTL_UNRESTRICTED};

    ask(f, FUSE_IOCTL, 6, &in, sizeof(in), NULL);
    assert_answered(f, -EINVAL);
}

static void access_with_an_unknown_mask_is_refused(void **state)
{
    struct fixture *f = *state;
    struct fuse_access_in in = {.mask = 8};

    ask(f, FUSE_ACCESS, 6, &in, sizeof(in), NULL);
    assert_answered(f, -EINVAL);
}

static void a_directory_is_opened_read_and_released(void **state)
{
    struct fixture *f = *state;
    struct fuse_open_in open_in = {0};
    struct fuse_read_in read_in = {.fh = 3, .offset = 17, .size = 4096};
    struct fuse_release_in release_in = {.fh = 3};

    ask(f, FUSE_OPENDIR, 1, &open_in, sizeof(open_in), NULL);
    assert_string_equal(f->fs.op, "opendir");
    ask(f, FUSE_READDIRPLUS, 1, &read_in, sizeof(read_in), NULL);
    assert_string_equal(f->fs.op, "readdir");
    assert_true(f->fs.plus);
    assert_int_equal(f->fs.offset, 17);
    f->fs.req->reply->dirents_end(f->fs.req);
    ask(f, FUSE_READDIR, 1, &read_in, sizeof(read_in), NULL);
    assert_false(f->fs.plus);
    f->fs.req->reply->dirents_end(f->fs.req);
    ask(f, FUSE_RELEASEDIR, 1, &release_in, sizeof(release_in), NULL);
    assert_string_equal(f->fs.op, "releasedir");
    assert_int_equal(f->fs.handle, 3);
}

static void note_cancel(struct fs_request *req, void *arg)
{
    *(struct fs_request **)arg = req;
}

static void an_interrupt_cancels_the_request_it_names(void **state)
{
    struct fixture *f = *state;
    struct fs_request *cancelled = NULL;
    struct fuse_request busy = {.fs = {.unique = 50, .cancel = note_cancel}};
    struct fuse_interrupt_in in = {.unique = 50};

    busy.fs.cancel_arg = &cancelled;
    f->findable = &busy;
    ask(f, FUSE_INTERRUPT, 0, &in, sizeof(in), NULL);
    assert_ptr_equal(cancelled, &busy.fs);
    assert_int_equal(f->sent, 0);
    assert_int_equal(f->finished, 1);
}

static void an_interrupt_of_what_cannot_be_interrupted_changes_nothing(void **state)
{
    struct fixture *f = *state;
    struct fuse_request busy = {.fs = {.unique = 50}};
    struct fuse_interrupt_in in = {.unique = 50};

    f->findable = &busy;
    ask(f, FUSE_INTERRUPT, 0, &in, sizeof(in), NULL);
    assert_int_equal(f->sent, 0);
    assert_int_equal(f->finished, 1);
}

static void an_interrupt_of_a_request_that_is_not_known_asks_to_come_again(void **state)
{
    struct fuse_interrupt_in in = {.unique = 51};

    ask(*state, FUSE_INTERRUPT, 0, &in, sizeof(in), NULL);
    assert_answered(*state, -EAGAIN);
}

static void a_replayed_request_says_so(void **state)
{
    struct fixture *f = *state;
    uint32_t len;

    message_begin(f, FUSE_STATFS, 1);
    len = (uint32_t)f->message_len;
    memcpy(f->message, &len, sizeof(len));
    assert_int_equal(fuse_session_dispatch(f->session, &f->request, f->message, len,
                                           &(struct fuse_arrival){.replayed = true}),
                     0);
    assert_true(f->fs.req->replayed);
}

static void others_than_the_owner_and_root_are_kept_out_on_request(void **state)
{
    struct fixture *f = *state;
    struct fuse_session_config c = fixture_config(f);
    struct fuse_negotiated n = *fuse_session_negotiated(f->session);
    struct fuse_read_in in = {.size = 1};

    c.deny_others = true;
    c.owner_uid = 1;
    fuse_session_free(f->session);
    f->session = fuse_session_new(&c, &n);
    ask(f, FUSE_LOOKUP, 1, NULL, 0, "x"); // messages come from 1000
    assert_answered(f, -EACCES);
    ask(f, FUSE_READ, 1, &in, sizeof(in), NULL); // the kernel reads ahead in anyone's name
    assert_string_equal(f->fs.op, "read");

    c.owner_uid = 1000;
    fuse_session_free(f->session);
    f->session = fuse_session_new(&c, &n);
    ask(f, FUSE_LOOKUP, 1, NULL, 0, "x");
    assert_string_equal(f->fs.op, "lookup");
}

#define with_init(fn) cmocka_unit_test_setup_teardown(fn, fixture_setup, fixture_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        with_init(a_lookup_reaches_the_file_system_with_name_and_caller),
        with_init(a_name_without_its_zero_byte_is_refused),
        with_init(an_empty_name_is_refused),
        with_init(a_lookup_without_any_name_is_refused),
        with_init(a_name_with_a_slash_or_made_of_dots_is_refused),
        with_init(a_name_of_255_bytes_passes_and_one_of_256_is_too_long),
        with_init(a_message_whose_length_is_not_its_own_is_no_request),
        with_init(a_message_shorter_than_its_kind_needs_is_refused),
        cmocka_unit_test_setup_teardown(a_request_before_init_is_refused, fixture_setup_new,
                                        fixture_teardown),
        cmocka_unit_test_setup_teardown(a_forget_before_init_gets_no_answer, fixture_setup_new,
                                        fixture_teardown),
        with_init(a_forget_is_carried_out_without_an_answer),
        with_init(a_batch_of_forgets_ends_where_the_message_ends),
        with_init(a_batch_of_forgets_goes_by_its_count),
        with_init(the_root_is_never_forgotten),
        with_init(a_read_hands_on_handle_offset_and_size),
        with_init(a_read_larger_than_agreed_on_is_refused),
        with_init(a_read_that_ends_beyond_the_largest_file_is_refused),
        with_init(a_read_of_nothing_gets_nothing),
        with_init(an_open_for_reading_passes),
        with_init(an_open_for_writing_is_refused),
        with_init(whatever_would_change_something_is_refused_as_read_only),
        with_init(what_the_kernel_can_do_alone_is_answered_enosys),
        with_init(an_ioctl_hands_on_what_the_program_gave),
        with_init(an_ioctl_that_claims_more_than_it_brings_is_refused),
        with_init(an_unrestricted_ioctl_is_refused),
        with_init(access_with_an_unknown_mask_is_refused),
        with_init(a_directory_is_opened_read_and_released),
        with_init(an_interrupt_cancels_the_request_it_names),
        with_init(an_interrupt_of_what_cannot_be_interrupted_changes_nothing),
        with_init(an_interrupt_of_a_request_that_is_not_known_asks_to_come_again),
        with_init(a_replayed_request_says_so),
        with_init(others_than_the_owner_and_root_are_kept_out_on_request),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
