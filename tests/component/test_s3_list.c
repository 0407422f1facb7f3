// SPDX-License-Identifier: Apache-2.0
// Listings, whole and by the page, and the probe.
#include "test.h"

#include "base/clock.h"
#include "s3_fixture.h"

#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct s3_fixture fixture;

static int start(void **state)
{
    s3_fixture_start(&fixture, (struct s3_settings){.retry_timeout_ns = 2 * NS_PER_S}, NULL);
    return 0;
}

static int stop(void **state)
{
    s3_fixture_stop(&fixture);
    return 0;
}

static int no_faults(void **state)
{
    s3d_process_set_faults(&fixture.server, "");
    s3d_process_reset_counters(&fixture.server);
    return 0;
}

static uint64_t requests(void)
{
    return s3d_process_counter(&fixture.server, "requests_total");
}

// --- a whole listing, waited for ---

struct listing {
    struct s3_list_all all;
    char **keys;
    size_t n, stop_after;
    uint64_t bytes;
    unsigned prefixes, dones;
    int error;
    bool cancel;
    sem_t *done;
};

static int on_entry(struct s3_list_all *all, const struct s3_list_entry *e)
{
    struct listing *l = container_of(all, struct listing, all);

    assert_int_equal(strlen(e->key), e->key_len);
    l->keys = xrealloc(l->keys, (l->n + 1) * sizeof(*l->keys));
    l->keys[l->n++] = xstrdup(e->key);
    l->prefixes += e->is_prefix;
    l->bytes += e->is_prefix ? 0 : e->info.size;
    if (l->stop_after && l->n == l->stop_after) {
        if (!l->cancel)
            return -EXDEV;
        s3_list_all_cancel(all);
    }
    return 0;
}

static void on_done(struct s3_list_all *all, int error)
{
    struct listing *l = container_of(all, struct listing, all);

    l->dones++;
    l->error = error;
    sem_post(l->done);
}

static struct listing listing_of(const char *prefix, char delimiter)
{
    return (struct listing){.all = {.prefix = prefix,
                                    .prefix_len = strlen(prefix),
                                    .delimiter = delimiter,
                                    .entry = on_entry,
                                    .done = on_done}};
}

struct several {
    struct listing *l;
    size_t n;
};

static void start_several(void *arg)
{
    struct several *s = arg;

    for (size_t i = 0; i < s->n; i++)
        s3_list_all_start(fixture.client, &s->l[i].all);
}

static void run_several(struct listing *l, size_t n)
{
    struct several s = {l, n};
    sem_t done;

    sem_init(&done, 0, 0);
    for (size_t i = 0; i < n; i++)
        l[i].done = &done;
    s3_fixture_call(&fixture, start_several, &s);
    for (size_t i = 0; i < n; i++)
        while (sem_wait(&done) < 0)
            ;
    sem_destroy(&done);
}

static void listing_free(struct listing *l)
{
    for (size_t i = 0; i < l->n; i++)
        free(l->keys[i]);
    free(l->keys);
}

static void is_sorted(const struct listing *l)
{
    for (size_t i = 1; i < l->n; i++)
        assert_true(strcmp(l->keys[i - 1], l->keys[i]) < 0);
}

// --- tests ---

static void a_directory_is_listed_to_its_end(void **state)
{
    struct listing l = listing_of("dir1/", '/');

    run_several(&l, 1);
    assert_int_equal(l.error, 0);
    assert_int_equal(l.n, 1100);
    assert_int_equal(l.bytes, 1100 * 17);
    is_sorted(&l);
    assert_string_equal(l.keys[1099], "dir1/f1099");
    assert_int_equal(requests(), 2); // pages of 1,000
    listing_free(&l);
}

static void objects_and_prefixes_come_in_one_order(void **state)
{
    static const char *const names[] = {"big",   "dir0/",  "dir1/", "dir2/",
                                        "empty", "small/", "tiny/"};
    struct listing l = listing_of("", '/');

    run_several(&l, 1);
    assert_int_equal(l.error, 0);
    assert_int_equal(l.n, ARRAY_LEN(names));
    assert_int_equal(l.prefixes, 5);
    for (size_t i = 0; i < ARRAY_LEN(names); i++)
        assert_string_equal(l.keys[i], names[i]);
    listing_free(&l);
}

static void without_a_delimiter_all_keys_come(void **state)
{
    struct listing l = listing_of("", 0);

    run_several(&l, 1);
    assert_int_equal(l.error, 0);
    assert_int_equal(l.n, 1 + 1 + 500 + 500 + 3 * 1100);
    assert_int_equal(l.prefixes, 0);
    is_sorted(&l);
    listing_free(&l);
}

static void several_prefixes_are_listed_at_once(void **state)
{
    struct listing l[3] = {listing_of("dir0/", '/'), listing_of("dir1/", '/'),
                           listing_of("dir2/", '/')};

    s3d_process_set_latency(&fixture.server, TEST_SLOWED_DOWN > 1 ? "250ms" : "50ms");
    run_several(l, 3);
    s3d_process_set_latency(&fixture.server, "0");
    for (int i = 0; i < 3; i++) {
        assert_int_equal(l[i].error, 0);
        assert_int_equal(l[i].n, 1100);
        listing_free(&l[i]);
    }
    assert_in_range(s3d_process_counter(&fixture.server, "peak_in_flight"), 3, 4);
}

static void a_prefix_without_keys_is_empty(void **state)
{
    struct listing l = listing_of("nothing/", '/');

    run_several(&l, 1);
    assert_int_equal(l.error, 0);
    assert_int_equal(l.n, 0);
    listing_free(&l);
}

static void no_entry_comes_twice_when_pages_fail(void **state)
{
    static const char *const rules[] = {
        "LIST * nth=1 status 500", "LIST * nth=2 status 503 SlowDown",
        "LIST * nth=1 close 50%",  "LIST * nth=2 reset 90%",
        "LIST * nth=1 short 20",   "LIST * nth=2 long 20",
        "LIST * nth=1 xml200",     "LIST * nth=2 stall 50%",
        "LIST * nth=1 reset head"};

    for (size_t i = 0; i < ARRAY_LEN(rules); i++) {
        struct listing l = listing_of("dir1/", '/');

        s3d_process_set_faults(&fixture.server, rules[i]);
        s3d_process_reset_counters(&fixture.server);
        run_several(&l, 1);
        assert_string_equal(l.all.error_text, "");
        assert_int_equal(l.error, 0);
        assert_int_equal(l.n, 1100);
        is_sorted(&l);
        assert_int_equal(requests(), 3);
        listing_free(&l);
    }
}

static void a_listing_that_may_not_be_made_is_eacces(void **state)
{
    struct listing l = listing_of("dir1/", '/');

    s3d_process_set_faults(&fixture.server, "LIST * always status 403 AccessDenied");
    run_several(&l, 1);
    assert_int_equal(l.error, -EACCES);
    assert_int_equal(l.n, 0);
    assert_non_null(strstr(l.all.error_text, "AccessDenied"));
    listing_free(&l);
}

static void the_caller_can_end_a_listing(void **state)
{
    struct listing l = listing_of("dir1/", '/');

    l.stop_after = 5;
    run_several(&l, 1);
    assert_int_equal(l.error, -EXDEV);
    assert_int_equal(l.n, 5);
    assert_int_equal(l.dones, 1);
    assert_int_equal(requests(), 1);
    listing_free(&l);
}

static void a_listing_can_be_cancelled_from_within(void **state)
{
    struct listing l = listing_of("dir1/", '/');

    l.stop_after = 5;
    l.cancel = true;
    run_several(&l, 1);
    assert_int_equal(l.error, -ECANCELED);
    assert_int_equal(l.n, 5);
    assert_int_equal(l.dones, 1);
    listing_free(&l);
}

// --- one page ---

struct page {
    struct s3_list list;
    char first[64];
    char *continuation;
    size_t n;
    int error;
    sem_t *done;
};

static int on_page_entry(struct s3_list *list, const struct s3_list_entry *e)
{
    struct page *p = container_of(list, struct page, list);

    if (p->n++ == 0)
        snprintf(p->first, sizeof(p->first), "%s", e->key);
    return 0;
}

static void on_page_done(struct s3_list *list, int error, const char *continuation)
{
    struct page *p = container_of(list, struct page, list);

    p->error = error;
    p->continuation = continuation ? xstrdup(continuation) : NULL;
    sem_post(p->done);
}

static void start_page(void *arg)
{
    s3_list_start(fixture.client, arg);
}

static void run_page(struct page *p)
{
    sem_t done;

    sem_init(&done, 0, 0);
    p->done = &done;
    p->list.entry = on_page_entry;
    p->list.done = on_page_done;
    s3_fixture_call(&fixture, start_page, &p->list);
    while (sem_wait(&done) < 0)
        ;
    sem_destroy(&done);
}

static void a_page_has_as_many_keys_as_asked_for_and_can_be_gone_on_from(void **state)
{
    struct page p = {.list = {.prefix = "dir1/", .prefix_len = 5, .max_keys = 10}}, q;

    run_page(&p);
    assert_int_equal(p.error, 0);
    assert_int_equal(p.n, 10);
    assert_non_null(p.continuation);
    q = (struct page){
        .list = {
            .prefix = "dir1/", .prefix_len = 5, .max_keys = 10, .continuation = p.continuation}};
    run_page(&q);
    assert_string_equal(q.first, "dir1/f0010");
    free(p.continuation);
    free(q.continuation);
}

static void a_page_can_begin_behind_a_key(void **state)
{
    struct page p = {.list = {.prefix = "dir1/",
                              .prefix_len = 5,
                              .max_keys = 1,
                              .start_after = "dir1/f0500",
                              .start_after_len = 10}};

    run_page(&p);
    assert_string_equal(p.first, "dir1/f0501");
    free(p.continuation);
}

// --- the probe ---

struct probe {
    struct s3_probe probe;
    int error;
    sem_t *done;
};

static void on_probe_done(struct s3_probe *probe, int error)
{
    struct probe *p = container_of(probe, struct probe, probe);

    p->error = error;
    sem_post(p->done);
}

static void start_probe(void *arg)
{
    s3_probe_start(fixture.client, arg);
}

static void probe_with(struct s3_settings s, int error, const char *word)
{
    struct probe p = {.probe = {.prefix = "", .done = on_probe_done}};
    uint64_t begun;
    sem_t done;

    s3_fixture_reconnect(&fixture, s);
    begun = clock_monotonic_ns();
    sem_init(&done, 0, 0);
    p.done = &done;
    s3_fixture_call(&fixture, start_probe, &p.probe);
    while (sem_wait(&done) < 0)
        ;
    sem_destroy(&done);
    assert_int_equal(p.error, error);
    assert_true(clock_monotonic_ns() - begun < 8 * NS_PER_S);
    if (!strstr(p.probe.error_text, word))
        fail_msg("\"%s\" says nothing of %s", p.probe.error_text, word);
}

static void the_probe_says_what_is_wrong(void **state)
{
    probe_with((struct s3_settings){0}, 0, "");
    probe_with((struct s3_settings){.bucket = "elsewhere"}, -ENODEV, "NoSuchBucket");
    probe_with((struct s3_settings){.secret_key = "wrong"}, -EACCES, "SignatureDoesNotMatch");
    probe_with((struct s3_settings){.access_key = "unknown"}, -EACCES, "InvalidAccessKeyId");
    // port 1 of the loopback address: nobody listens
    probe_with((struct s3_settings){.endpoint_url = "http://127.0.0.1:1"}, -EIO, "127.0.0.1:1");
    s3_fixture_reconnect(&fixture, (struct s3_settings){0});
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(a_directory_is_listed_to_its_end, no_faults),
        cmocka_unit_test_setup(objects_and_prefixes_come_in_one_order, no_faults),
        cmocka_unit_test_setup(without_a_delimiter_all_keys_come, no_faults),
        cmocka_unit_test_setup(several_prefixes_are_listed_at_once, no_faults),
        cmocka_unit_test_setup(a_prefix_without_keys_is_empty, no_faults),
        cmocka_unit_test_setup(no_entry_comes_twice_when_pages_fail, no_faults),
        cmocka_unit_test_setup(a_listing_that_may_not_be_made_is_eacces, no_faults),
        cmocka_unit_test_setup(the_caller_can_end_a_listing, no_faults),
        cmocka_unit_test_setup(a_listing_can_be_cancelled_from_within, no_faults),
        cmocka_unit_test_setup(a_page_has_as_many_keys_as_asked_for_and_can_be_gone_on_from,
                               no_faults),
        cmocka_unit_test_setup(a_page_can_begin_behind_a_key, no_faults),
        cmocka_unit_test_setup(the_probe_says_what_is_wrong, no_faults),
    };

    return cmocka_run_group_tests_name("s3 list", tests, start, stop);
}
