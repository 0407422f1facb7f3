// SPDX-License-Identifier: Apache-2.0
// A provider whose local half is played by the test.
#include "test.h"

#include "s3/credentials.h"
#include "waiting.h"

#include <stdatomic.h>
#include <stdio.h>
#include <unistd.h>

// --- the local half ---

// Answers as told, on the provider's loop; counts how often it is asked.
struct source {
    struct credentials_resolver resolver;
    atomic_int asked, answered;
    _Atomic(const char *) key; // NULL: it fails
    atomic_int life_s;         // 0: keys for ever
    atomic_int delay_ms;
    _Atomic(const char *) json; // instead of keys
    struct loop_timer timer;
    void (*done)(void *arg, const char *json, const char *error_text);
    void *arg;
};

static struct source source;
static struct loop *loop, *other_loop;
static struct credentials_provider *provider;

static void answer(struct loop_timer *t)
{
    const char *key = atomic_load(&source.key);
    int life_s = atomic_load(&source.life_s);
    char text[300];

    snprintf(text, sizeof(text),
             "{\"steps\":[{\"kind\":\"keys\",\"source\":\"the test\",\"access_key\":\"%s\","
             "\"secret_key\":\"S\",\"expires_s\":%lld}]}",
             key ? key : "", (long long)(life_s ? clock_wall_s() + life_s : 0));
    if (atomic_load(&source.json))
        source.done(source.arg, atomic_load(&source.json), NULL);
    else
        source.done(source.arg, key ? text : NULL, key ? NULL : "the test has no keys");
    atomic_fetch_add(&source.answered, 1);
}

static void resolve(struct credentials_resolver *r, struct loop *l,
                    void (*done)(void *arg, const char *json, const char *error_text), void *arg)
{
    atomic_fetch_add(&source.asked, 1);
    source.done = done;
    source.arg = arg;
    loop_timer_init(&source.timer, l, answer);
    loop_timer_start_ns(&source.timer, (uint64_t)atomic_load(&source.delay_ms) * NS_PER_MS);
}

static int set_up(void **state)
{
    source = (struct source){.resolver.resolve = resolve, .key = "AK1"};
    return loop_start(&loop, "provider") || loop_start(&other_loop, "other") ? -1 : 0;
}

static void start(void)
{
    assert_int_equal(credentials_provider_new(&provider, loop, &(struct credentials_config){0},
                                              &source.resolver),
                     0);
}

static void free_on_loop(void *arg)
{
    credentials_provider_free(provider);
}

static int tear_down(void **state)
{
    if (provider)
        loop_call(loop, free_on_loop, NULL);
    provider = NULL;
    loop_stop(loop);
    loop_stop(other_loop);
    return 0;
}

// --- asking ---

static struct waiting ended_wait(void)
{
    struct waiting w;

    waiting_start(&w, other_loop, provider);
    if (!waiting_end(&w))
        fail_msg("nothing came");
    return w;
}

static void assert_waiting_gives(const char *key)
{
    struct waiting w = ended_wait();

    assert_int_equal(w.error, 0);
    assert_string_equal(w.got->access_key, key);
    waiting_free(&w);
}

static void assert_waiting_fails(int error, const char *word)
{
    struct waiting w = ended_wait();

    assert_null(w.got);
    assert_int_equal(w.error, error);
    assert_non_null(strstr(w.text, word));
    waiting_free(&w);
}

static bool peek_has(const char *key)
{
    struct credentials *c = credentials_provider_peek(provider);
    bool has = c && strcmp(c->access_key, key) == 0;

    credentials_unref(c);
    return has;
}

static void wait_until_peek_has(const char *key)
{
    for (int i = 0; i < 400 && !peek_has(key); i++)
        usleep(5000);
    assert_true(peek_has(key));
}

// --- tests ---

static void keys_are_fetched_without_being_asked_for(void **state)
{
    start();
    wait_until_peek_has("AK1");
    assert_int_equal(atomic_load(&source.asked), 1);
}

static void waiting_gives_keys_on_the_callers_loop_and_not_within_the_call(void **state)
{
    struct waiting w;

    start();
    for (int i = 0; i < 2; i++) { // while fetching, and when they are at hand
        w = ended_wait();
        assert_non_null(w.got);
        assert_true(w.on_its_loop);
        assert_false(w.within_call);
        waiting_free(&w);
    }
}

static void many_who_wait_cause_one_fetch(void **state)
{
    struct waiting w[20];

    atomic_store(&source.delay_ms, 50);
    start();
    for (size_t i = 0; i < ARRAY_LEN(w); i++)
        waiting_start(&w[i], i % 2 ? loop : other_loop, provider);
    for (size_t i = 0; i < ARRAY_LEN(w); i++) {
        assert_true(waiting_end(&w[i]));
        assert_string_equal(w[i].got->access_key, "AK1");
        waiting_free(&w[i]);
    }
    assert_int_equal(atomic_load(&source.asked), 1);
}

static void short_lived_keys_are_replaced_before_they_end(void **state)
{
    bool replaced = false;

    atomic_store(&source.life_s, 3);
    start();
    wait_until_peek_has("AK1");
    atomic_store(&source.key, "AK2");
    for (int i = 0; i < 3000 && !replaced; i++) {
        struct credentials *c = credentials_provider_peek(provider);

        assert_non_null(c);
        assert_true(c->expires_s > clock_wall_s());
        replaced = strcmp(c->access_key, "AK2") == 0;
        credentials_unref(c);
        usleep(1000);
    }
    assert_true(replaced);
}

static void old_keys_are_used_while_the_refresh_fails(void **state)
{
    atomic_store(&source.life_s, 4);
    start();
    wait_until_peek_has("AK1");
    atomic_store(&source.key, NULL);
    for (int i = 0; i < 3000 && atomic_load(&source.answered) < 2; i++) {
        assert_true(peek_has("AK1"));
        usleep(1000);
    }
    assert_true(peek_has("AK1"));
    assert_waiting_gives("AK1");
    assert_true(atomic_load(&source.answered) >= 2);
}

static void refresh_is_tried_again_after_a_failure(void **state)
{
    atomic_store(&source.life_s, 3);
    start();
    wait_until_peek_has("AK1");
    atomic_store(&source.key, NULL);
    for (int i = 0; i < 600 && atomic_load(&source.asked) < 2; i++)
        usleep(5000);
    atomic_store(&source.key, "AK2");
    wait_until_peek_has("AK2");
}

static void failure_without_any_keys_is_told_and_the_next_wait_tries_anew(void **state)
{
    atomic_store(&source.key, NULL);
    start();
    assert_waiting_fails(-ETIMEDOUT, "the test has no keys");
    atomic_store(&source.key, "AK2");
    assert_waiting_gives("AK2");
}

static void refused_keys_are_not_handed_out_again(void **state)
{
    struct waiting w;

    start();
    w = ended_wait();
    atomic_store(&source.key, "AK2");
    credentials_provider_refused(provider, w.got);
    assert_false(peek_has("AK1"));
    assert_waiting_gives("AK2");
    assert_int_equal(atomic_load(&source.asked), 2);
    waiting_free(&w);
}

static void refusal_of_keys_that_were_replaced_is_ignored(void **state)
{
    struct waiting first;

    start();
    first = ended_wait();
    atomic_store(&source.key, "AK2");
    credentials_provider_refused(provider, first.got);
    assert_waiting_gives("AK2");
    credentials_provider_refused(provider, first.got);
    assert_true(peek_has("AK2"));
    waiting_free(&first);
}

static void source_is_not_asked_in_haste_without_end(void **state)
{
    uint64_t start_ns = clock_monotonic_ns();

    start();
    for (int i = 0; clock_monotonic_ns() - start_ns < 1500 * NS_PER_MS && i < 1000; i++) {
        struct waiting w = ended_wait();

        credentials_provider_refused(provider, w.got);
        waiting_free(&w);
    }
    assert_in_range(atomic_load(&source.asked), 3, 5);
}

static void keys_that_come_expired_are_an_error_about_the_clock(void **state)
{
    atomic_store(&source.life_s, -10);
    start();
    assert_waiting_fails(-EACCES, "clock");
}

static void anonymous_access_is_not_refused(void **state)
{
    struct waiting w;

    atomic_store(&source.json, "{\"steps\":[{\"kind\":\"anonymous\"}]}");
    start();
    w = ended_wait();
    assert_true(w.got->anonymous);
    credentials_provider_refused(provider, w.got);
    waiting_free(&w);
    w = ended_wait();
    assert_true(w.got->anonymous);
    assert_int_equal(atomic_load(&source.asked), 1);
    waiting_free(&w);
}

static void steps_that_make_no_sense_are_an_error(void **state)
{
    static const char *const bad[] = {
        "",
        "[]",
        "{\"steps\":[]}",
        "{\"steps\":[{\"kind\":\"magic\"}]}",
        "{\"steps\":[{\"kind\":\"assume_role\"}]}",
        "{\"steps\":[{\"kind\":\"anonymous\"},{\"kind\":\"anonymous\"}]}"};

    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        atomic_store(&source.json, bad[i]);
        start();
        assert_waiting_fails(-EINVAL, "not understood");
        loop_call(loop, free_on_loop, NULL);
        provider = NULL;
    }
}

static void nothing(void *arg) {}

static void provider_may_be_freed_while_its_source_is_being_asked(void **state)
{
    struct waiting w;

    atomic_store(&source.delay_ms, 300);
    start();
    waiting_start(&w, other_loop, provider);
    loop_call(other_loop, nothing, NULL); // the waiting has been announced
    loop_call(loop, free_on_loop, NULL);
    provider = NULL;
    assert_true(waiting_end(&w));
    assert_int_equal(w.error, -ECANCELED);
    waiting_free(&w);
    for (int i = 0; i < 1000 && !atomic_load(&source.answered); i++) // to nobody
        usleep(5000);
    assert_int_equal(atomic_load(&source.answered), 1);
}

static void provider_may_be_freed_at_once(void **state)
{
    start();
    loop_call(loop, free_on_loop, NULL);
    provider = NULL;
}

static void local_half_runs_in_this_process_by_default(void **state)
{
    const struct credentials_config c = {.access_key = "AKINLINE", .secret_key = "S"};

    assert_int_equal(credentials_provider_new(&provider, loop, &c, NULL), 0);
    assert_waiting_gives("AKINLINE");
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(keys_are_fetched_without_being_asked_for),
        TEST(waiting_gives_keys_on_the_callers_loop_and_not_within_the_call),
        TEST(many_who_wait_cause_one_fetch),
        TEST(short_lived_keys_are_replaced_before_they_end),
        TEST(old_keys_are_used_while_the_refresh_fails),
        TEST(refresh_is_tried_again_after_a_failure),
        TEST(failure_without_any_keys_is_told_and_the_next_wait_tries_anew),
        TEST(refused_keys_are_not_handed_out_again),
        TEST(refusal_of_keys_that_were_replaced_is_ignored),
        TEST(source_is_not_asked_in_haste_without_end),
        TEST(keys_that_come_expired_are_an_error_about_the_clock),
        TEST(anonymous_access_is_not_refused),
        TEST(steps_that_make_no_sense_are_an_error),
        TEST(provider_may_be_freed_while_its_source_is_being_asked),
        TEST(provider_may_be_freed_at_once),
        TEST(local_half_runs_in_this_process_by_default),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
