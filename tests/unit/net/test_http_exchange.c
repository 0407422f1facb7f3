// SPDX-License-Identifier: Apache-2.0
// One exchange at a time: framing, failures, time-outs, cancellation, back-pressure.
#include "fetch.h"
#include "server.h"
#include "test.h"

#include "base/clock.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define HELLO "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nETag: \"e\"\r\n\r\nhello"

static struct server server;
static struct fetch f;

static int set_up(void **state)
{
    fetch_client_new(NULL);
    return 0;
}

static int tear_down(void **state)
{
    fetch_free(&f);
    fetch_client_free();
    return 0;
}

static void run_against(void (*script)(struct server *s))
{
    server_start(&server, script, NULL);
    fetch_init(&f, server.port, "/x");
    fetch_run(&f);
    server_stop(&server);
}

static void assert_got(int error, const char *body)
{
    assert_int_equal(f.error, error);
    assert_string_equal(buf_str(&f.body), body);
}

// --- framing ---

static void say_hello(struct server *s)
{
    struct peer *p = server_accept(s);

    peer_read_request(p);
    server_expect(s, !strncmp(p->head.data, "GET /x HTTP/1.1\r\n", 17), "another request");
    peer_send(p, HELLO);
    peer_close(p);
}

static void body_lands_where_the_exchange_says(void **state)
{
    char peer[32];

    run_against(say_hello);
    assert_got(0, "hello");
    assert_int_equal(f.status, 200);
    assert_string_equal(f.etag, "\"e\"");
    assert_int_equal(f.x.content_length, 5);
    assert_int_equal(f.x.body_len, 5);
    assert_true(f.x.started_ns && f.x.started_ns <= f.x.first_byte_ns);
    snprintf(peer, sizeof(peer), "127.0.0.1:%u", server.port);
    assert_string_equal(f.x.peer, peer);
}

static void drip_hello(struct server *s)
{
    struct peer *p = server_accept(s);

    peer_read_request(p);
    peer_drip(p, HELLO);
    peer_close(p);
}

static void answer_may_come_byte_by_byte(void **state)
{
    run_against(drip_hello);
    assert_got(0, "hello");
}

#define CHUNKS                                                                                     \
    "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"                                        \
    "5\r\nhello\r\n7;a=b\r\n, world\r\n0\r\nT: x\r\n\r\n"

static void send_chunks(struct server *s)
{
    struct peer *p = server_accept(s);

    peer_read_request(p);
    peer_send(p, CHUNKS);
    peer_read_request(p);
    peer_drip(p, CHUNKS);
    peer_close(p);
}

static void chunked_bodies_are_joined(void **state)
{
    server_start(&server, send_chunks, NULL);
    fetch_expect(server.port, "/1", "hello, world");
    fetch_expect(server.port, "/2", "hello, world");
    server_stop(&server);
    assert_int_equal(counter_read(&http_client_stats(test_client)->connections_opened), 1);
}

static void send_broken_chunks(struct server *s)
{
    struct peer *p = server_accept(s);

    peer_read_request(p);
    peer_send(p, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhelloo\r\n");
    peer_expect_end(p);
    peer_close(p);
}

static void broken_chunks_end_the_exchange(void **state)
{
    run_against(send_broken_chunks);
    assert_got(-EBADMSG, "hello");
}

static void cut_chunks(struct server *s)
{
    struct peer *p = server_accept(s);

    peer_read_request(p);
    peer_send(p, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n");
    peer_close(p);
}

static void chunked_body_without_its_last_chunk_is_an_error(void **state)
{
    run_against(cut_chunks);
    assert_got(-ECONNRESET, "hello");
}

static void continue_first(struct server *s)
{
    struct peer *p = server_accept(s);

    peer_read_request(p);
    peer_send(p, "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n" HELLO);
    peer_close(p);
}

static void interim_answers_are_passed_over(void **state)
{
    run_against(continue_first);
    assert_got(0, "hello");
    assert_int_equal(f.heads, 1);
    assert_int_equal(f.status, 200);
}

static void continue_for_ever(struct server *s)
{
    struct peer *p = server_accept(s);

    peer_read_request(p);
    for (int i = 0; i < 100; i++)
        peer_send(p, "HTTP/1.1 100 Continue\r\n\r\n");
    peer_close(p);
}

static void endless_interim_answers_are_an_error(void **state)
{
    run_against(continue_for_ever);
    assert_got(-EBADMSG, "");
}

static void answer_without_bodies(struct server *s)
{
    struct peer *p = server_accept(s);

    peer_read_request(p);
    peer_send(p, "HTTP/1.1 200 OK\r\nContent-Length: 12345\r\n\r\n");
    peer_read_request(p);
    peer_send(p, "HTTP/1.1 204 No Content\r\n\r\n");
    peer_read_request(p);
    peer_send(p, "HTTP/1.1 304 Not Modified\r\nContent-Length: 7\r\n\r\n");
    peer_read_request(p);
    peer_send(p, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
    peer_read_request(p);
    peer_send(p, HELLO);
    peer_close(p);
}

static void head_204_304_and_empty_answers_have_no_body(void **state)
{
    server_start(&server, answer_without_bodies, NULL);
    fetch_init(&f, server.port, "/");
    f.x.head_only = true;
    fetch_run(&f);
    assert_got(0, "");
    assert_int_equal(f.x.content_length, 12345);
    for (int i = 0; i < 3; i++)
        fetch_expect(server.port, "/", "");
    fetch_expect(server.port, "/", "hello");
    server_stop(&server);
    assert_int_equal(counter_read(&http_client_stats(test_client)->connections_opened), 1);
}

static void end_by_closing(struct server *s)
{
    struct peer *p = server_accept(s);

    peer_read_request(p);
    peer_send(p, "HTTP/1.0 200 OK\r\n\r\nup to ");
    usleep(2000);
    peer_send(p, "the end");
    peer_close(p);
}

static void body_of_unknown_length_ends_with_the_connection(void **state)
{
    run_against(end_by_closing);
    assert_got(0, "up to the end");
    assert_int_equal(f.x.content_length, -1);
    assert_int_equal(http_client_idle(test_client), 0);
}

static void promise_no_end(struct server *s)
{
    struct peer *p = server_accept(s);

    peer_read_request(p);
    peer_send(p, "HTTP/1.1 200 OK\r\n\r\nbody");
    peer_close(p);
}

static void body_of_unknown_length_on_a_connection_kept_alive_is_an_error(void **state)
{
    run_against(promise_no_end);
    assert_got(-EBADMSG, "");
}

static size_t padding;

static void answer_with_long_head(struct server *s)
{
    struct peer *p = server_accept(s);
    char *value = xmalloc(padding + 1);

    memset(value, 'v', padding);
    value[padding] = 0;
    peer_read_request(p);
    peer_send(p, "HTTP/1.1 200 OK\r\nX-Long: ");
    peer_send(p, value);
    peer_send(p, "\r\nContent-Length: 5\r\n\r\nhello");
    peer_close(p);
    free(value);
}

static void head_may_be_long_but_not_endless(void **state)
{
    padding = 60 * 1024;
    run_against(answer_with_long_head);
    assert_got(0, "hello");
    fetch_free(&f);
    padding = 1024 * 1024;
    run_against(answer_with_long_head);
    assert_got(-EBADMSG, "");
}

static void talk_ssh(struct server *s)
{
    struct peer *p = server_accept(s);

    peer_send(p, "SSH-2.0-OpenSSH_9.2p1\r\n");
    peer_read_request(p);
    peer_close(p);
}

static void answer_that_is_not_http_is_an_error(void **state)
{
    run_against(talk_ssh);
    assert_got(-EBADMSG, "");
    assert_string_not_equal(f.x.error_text, "");
}

static void send_large(struct server *s)
{
    struct peer *p = server_accept(s);
    char *data = xmalloc(3 * MIB);

    for (size_t i = 0; i < 3 * MIB; i++)
        data[i] = (char)(i * 31 + (i >> 16));
    peer_read_request(p);
    peer_send(p, "HTTP/1.1 200 OK\r\nContent-Length: 3145728\r\n\r\n");
    peer_send_bytes(p, data, 3 * MIB);
    peer_close(p);
    free(data);
}

static void large_body_arrives_whole(void **state)
{
    server_start(&server, send_large, NULL);
    fetch_init(&f, server.port, "/");
    f.room = 100000;
    fetch_run(&f);
    server_stop(&server);
    assert_int_equal(f.error, 0);
    assert_int_equal(f.body.len, 3 * MIB);
    for (size_t i = 0; i < 3 * MIB; i++)
        if (f.body.data[i] != (char)(i * 31 + (i >> 16)))
            fail_msg("byte %zu is wrong", i);
    assert_true(counter_read(&http_client_stats(test_client)->bytes_in) > 3 * MIB);
}

static void body_of_any_length_is_seen_to_be_complete(void **state)
{
    // whatever it is that the reader does at a time, one of these ends with it
    for (size_t room = 1024; room <= 4 * MIB; room *= 2) {
        server_start(&server, send_large, NULL);
        fetch_init(&f, server.port, "/");
        f.room = room;
        fetch_run(&f);
        server_stop(&server);
        assert_int_equal(f.body.len, 3 * MIB);
        fetch_free(&f);
    }
}

// --- requests ---

static void take_large_request(struct server *s)
{
    struct peer *p = server_accept(s);

    peer_read_request(p);
    peer_send(p, HELLO);
    peer_close(p);
}

static void large_request_is_sent_whole(void **state)
{
    static char part[1 << 20];
    struct iovec iov[10] = {{"PUT / HTTP/1.1\r\nContent-Length: 8388608\r\n\r\n", 43}, {NULL, 0}};

    for (size_t i = 2; i < ARRAY_LEN(iov); i++)
        iov[i] = (struct iovec){part, sizeof(part)};
    server_start(&server, take_large_request, NULL);
    fetch_init(&f, server.port, "/");
    f.x.request = iov;
    f.x.request_iovs = ARRAY_LEN(iov);
    fetch_run(&f);
    server_stop(&server);
    assert_got(0, "hello");
    assert_int_equal(counter_read(&http_client_stats(test_client)->bytes_out), 43 + 8 * MIB);
}

static void refuse_early(struct server *s)
{
    struct peer *p = server_accept(s);
    char c;

    usleep(2000);
    peer_send(p, "HTTP/1.1 413 Too Large\r\nContent-Length: 5\r\n\r\nlarge");
    while (recv(p->fd, &c, 1, 0) > 0)
        ;
    peer_close(p);
}

static void answer_before_the_whole_request_was_sent_counts(void **state)
{
    static char part[16 << 20];
    struct iovec iov[2] = {{"PUT / HTTP/1.1\r\nContent-Length: 16777216\r\n\r\n", 44},
                           {part, sizeof(part)}};

    server_start(&server, refuse_early, NULL);
    fetch_init(&f, server.port, "/");
    f.x.request = iov;
    f.x.request_iovs = 2;
    fetch_run(&f);
    assert_got(0, "large");
    assert_int_equal(f.status, 413);
    assert_int_equal(http_client_active(test_client) + http_client_idle(test_client), 0);
    server_stop(&server);
}

// --- failures ---

static void send_too_little(struct server *s)
{
    struct peer *p = server_accept(s);

    peer_read_request(p);
    peer_send(p, "HTTP/1.1 200 OK\r\nContent-Length: 50\r\n\r\nhello");
    peer_close(p);
}

static void body_shorter_than_promised_is_an_error(void **state)
{
    run_against(send_too_little);
    assert_got(-ECONNRESET, "hello");
    assert_int_equal(f.x.body_len, 5);
}

static void send_too_much(struct server *s)
{
    struct peer *p = server_accept(s);

    peer_read_request(p);
    peer_send(p, HELLO "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil");
    peer_expect_end(p);
    peer_close(p);
    say_hello(s);
}

static void bytes_behind_the_promised_end_are_never_taken_for_an_answer(void **state)
{
    server_start(&server, send_too_much, NULL);
    fetch_expect(server.port, "/first", "hello");
    fetch_expect(server.port, "/x", "hello");
    server_stop(&server);
    assert_int_equal(counter_read(&http_client_stats(test_client)->connections_opened), 2);
}

static void close_before_answer(struct server *s)
{
    struct peer *p = server_accept(s);

    peer_read_request(p);
    peer_close(p);
}

static void connection_closed_before_an_answer_is_an_error(void **state)
{
    run_against(close_before_answer);
    assert_got(-ECONNRESET, "");
    assert_int_equal(f.heads, 0);
    assert_int_equal(counter_read(&http_client_stats(test_client)->stale_retries), 0);
}

static void reset_before_answer(struct server *s)
{
    struct peer *p = server_accept(s);

    peer_read_request(p);
    peer_reset(p);
}

static void connection_reset_before_an_answer_is_an_error(void **state)
{
    run_against(reset_before_answer);
    assert_got(-ECONNRESET, "");
}

static void reset_in_head(struct server *s)
{
    struct peer *p = server_accept(s);

    peer_read_request(p);
    peer_send(p, "HTTP/1.1 200 OK\r\nContent-Le");
    usleep(5000);
    peer_reset(p);
}

static void connection_reset_within_the_head_is_an_error(void **state)
{
    run_against(reset_in_head);
    assert_got(-ECONNRESET, "");
    assert_int_equal(f.heads, 0);
}

static void reset_in_body(struct server *s)
{
    struct peer *p = server_accept(s);

    peer_read_request(p);
    peer_send(p, "HTTP/1.1 200 OK\r\nContent-Length: 50\r\n\r\nhello");
    usleep(5000);
    peer_reset(p);
}

static void connection_reset_within_the_body_is_an_error(void **state)
{
    run_against(reset_in_body);
    assert_got(-ECONNRESET, "hello");
}

static void refused_connection_is_an_error(void **state)
{
    server_start(&server, reset_before_answer, NULL);
    fetch_init(&f, server.port, "/");
    fetch_run(&f);
    server_stop(&server); // nobody listens there any more
    fetch_free(&f);
    fetch_init(&f, server.port, "/");
    fetch_run(&f);
    assert_got(-ECONNREFUSED, "");
    assert_string_not_equal(f.x.error_text, "");
    assert_int_equal(counter_read(&http_client_stats(test_client)->connect_failures), 1);
}

static void unknown_name_is_an_error(void **state)
{
    fetch_init(&f, 80, "/");
    // longer than a label may be, so that no name server needs to be asked
    f.x.host = "a123456789b123456789c123456789d123456789e123456789f123456789g12345.invalid";
    fetch_run(&f);
    assert_got(-ENOENT, "");
    assert_string_not_equal(f.x.error_text, "");
}

static void host_that_is_no_name_is_an_error(void **state)
{
    static const char *const bad[] = {"a b", "user@127.0.0.1", "127.0.0.1/x", "", "a\r\nb"};

    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        fetch_init(&f, 80, "/");
        f.x.host = bad[i];
        fetch_run(&f);
        assert_true(f.error == -EINVAL || f.error == -ENOENT);
    }
}

static void errors_of_call_backs_end_the_exchange(void **state)
{
    for (int i = 0; i < 3; i++) {
        server_start(&server, say_hello, NULL);
        fetch_init(&f, server.port, "/x");
        f.head_error = i == 0 ? -E2BIG : 0;
        f.room_error = i == 1 ? -ENOSPC : 0;
        f.body_error = i == 2 ? -EIO : 0;
        fetch_run(&f);
        assert_int_equal(f.error, i == 0 ? -E2BIG : i == 1 ? -ENOSPC : -EIO);
        server_stop(&server);
        fetch_free(&f);
    }
    assert_int_equal(http_client_idle(test_client), 0);
}

// --- time-outs ---

static atomic_bool go_on;

static void wait_to_go_on(void)
{
    for (int i = 0; i < 5000 && !atomic_load(&go_on); i++)
        usleep(1000);
}

static int set_up_hasty(void **state)
{
    struct http_client_config config = {.max_connections = 2,
                                        .proxy = "",
                                        .connect_timeout_ns = NS_PER_S,
                                        .stall_timeout_ns = 200 * NS_PER_MS,
                                        .idle_timeout_ns = NS_PER_S};

    atomic_store(&go_on, false);
    fetch_client_new(&config);
    return 0;
}

static void say_nothing(struct server *s)
{
    struct peer *p = server_accept(s);

    peer_read_request(p);
    peer_expect_end(p);
    peer_close(p);
}

static void silent_server_times_out(void **state)
{
    uint64_t start = clock_monotonic_ns();

    run_against(say_nothing);
    assert_got(-ETIMEDOUT, "");
    assert_in_range(clock_monotonic_ns() - start, 200 * NS_PER_MS, 2 * NS_PER_S);
}

static void first_byte_may_have_a_time_out_of_its_own(void **state)
{
    server_start(&server, say_nothing, NULL);
    fetch_init(&f, server.port, "/");
    f.x.first_byte_timeout_ns = 10 * NS_PER_MS;
    fetch_run(&f);
    server_stop(&server);
    assert_got(-ETIMEDOUT, "");
    assert_in_range(clock_monotonic_ns() - f.x.started_ns, 10 * NS_PER_MS, 2 * NS_PER_S);
}

static void answer_late(struct server *s)
{
    struct peer *p = server_accept(s);

    peer_read_request(p);
    usleep(300000);
    peer_send(p, HELLO);
    peer_close(p);
}

static void first_byte_time_out_may_be_longer_than_the_stall_time_out(void **state)
{
    server_start(&server, answer_late, NULL);
    fetch_init(&f, server.port, "/");
    f.x.first_byte_timeout_ns = NS_PER_S;
    fetch_run(&f);
    server_stop(&server);
    assert_got(0, "hello");
}

static void stall_in_body(struct server *s)
{
    struct peer *p = server_accept(s);

    peer_read_request(p);
    peer_send(p, "HTTP/1.1 200 OK\r\nContent-Length: 50\r\n\r\nhello");
    peer_expect_end(p);
    peer_close(p);
}

static void stalled_body_times_out(void **state)
{
    run_against(stall_in_body);
    assert_got(-ETIMEDOUT, "hello");
}

static void send_slowly(struct server *s)
{
    struct peer *p = server_accept(s);

    peer_read_request(p);
    peer_send(p, "HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\n");
    for (const char *c = "slowly"; *c; c++) {
        usleep(50000);
        peer_send_bytes(p, c, 1);
    }
    peer_close(p);
}

static void slow_body_does_not_time_out(void **state)
{
    run_against(send_slowly);
    assert_got(0, "slowly");
}

static void do_not_accept(struct server *s)
{
    wait_to_go_on();
}

static void request_that_the_server_does_not_take_times_out(void **state)
{
    static char part[32 << 20];
    struct iovec iov[2] = {{"PUT / HTTP/1.1\r\nContent-Length: 33554432\r\n\r\n", 44},
                           {part, sizeof(part)}};

    server_start(&server, do_not_accept, NULL);
    fetch_init(&f, server.port, "/");
    f.x.request = iov;
    f.x.request_iovs = 2;
    fetch_run(&f);
    atomic_store(&go_on, true);
    server_stop(&server);
    assert_got(-ETIMEDOUT, "");
}

// --- cancelling ---

static int set_up_to_wait(void **state)
{
    atomic_store(&go_on, false);
    return set_up(state);
}

static void assert_cancelled(void)
{
    fetch_cancel(&f); // twice is once
    fetch_wait(&f);
    assert_int_equal(f.error, -ECANCELED);
    fetch_cancel(&f);
    turn(5, NULL);
    assert_int_equal(f.dones, 1);
    assert_int_equal(http_client_active(test_client) + http_client_waiting(test_client), 0);
}

static void exchange_can_be_cancelled_while_connecting(void **state)
{
    server_start(&server, do_not_accept, NULL);
    fetch_init(&f, server.port, "/");
    fetch_start(&f);
    assert_int_equal(f.x.started_ns, 0);
    fetch_cancel(&f);
    assert_cancelled();
    atomic_store(&go_on, true);
    server_stop(&server);
}

static void exchange_can_be_cancelled_before_the_answer(void **state)
{
    server_start(&server, say_nothing, NULL);
    fetch_init(&f, server.port, "/");
    fetch_start(&f);
    turn_until(f.x.started_ns);
    turn(5, NULL);
    fetch_cancel(&f);
    assert_cancelled();
    server_stop(&server);
}

static void exchange_can_be_cancelled_while_sending(void **state)
{
    static char part[32 << 20];
    struct iovec iov[2] = {{"PUT / HTTP/1.1\r\nContent-Length: 33554432\r\n\r\n", 44},
                           {part, sizeof(part)}};

    server_start(&server, do_not_accept, NULL);
    fetch_init(&f, server.port, "/");
    f.x.request = iov;
    f.x.request_iovs = 2;
    fetch_start(&f);
    turn_until(f.x.started_ns);
    fetch_cancel(&f);
    assert_cancelled();
    atomic_store(&go_on, true);
    server_stop(&server);
}

static void exchange_can_be_cancelled_within_the_body(void **state)
{
    server_start(&server, stall_in_body, NULL);
    fetch_init(&f, server.port, "/");
    fetch_start(&f);
    turn_until(f.body.len == 5);
    fetch_cancel(&f);
    assert_cancelled();
    server_stop(&server);
}

static void exchange_can_be_cancelled_by_its_own_call_backs(void **state)
{
    for (int i = 0; i < 3; i++) {
        server_start(&server, say_hello, NULL);
        fetch_init(&f, server.port, "/x");
        f.cancel_in_head = i == 0;
        f.cancel_in_room = i == 1;
        f.cancel_in_body = i == 2;
        fetch_run(&f);
        assert_cancelled();
        server_stop(&server);
        fetch_free(&f);
    }
}

static void cancelling_what_never_started_or_has_ended_does_nothing(void **state)
{
    fetch_init(&f, 1, "/");
    fetch_cancel(&f);
    turn(2, NULL);
    assert_int_equal(f.dones, 0);
    run_against(say_hello);
    fetch_cancel(&f);
    turn(2, NULL);
    assert_got(0, "hello");
    assert_int_equal(f.dones, 1);
}

static void failure_on_its_way_is_not_turned_into_a_cancellation(void **state)
{
    fetch_init(&f, 80, "/");
    f.x.host = "user@host";
    fetch_start(&f);
    fetch_cancel(&f);
    fetch_wait(&f);
    assert_int_equal(f.error, -EINVAL);
}

// --- back-pressure ---

static void reading_stops_without_room_and_goes_on(void **state)
{
    server_start(&server, send_large, NULL);
    fetch_init(&f, server.port, "/");
    f.room = 65536;
    f.no_room = true;
    fetch_start(&f);
    for (int i = 0; i < 20 && !f.dones; i++) {
        size_t len;

        turn_until(f.pauses || f.dones);
        len = f.body.len;
        turn(1, NULL);
        assert_int_equal(f.body.len, len);
        assert_in_range(f.pauses, 0, 1);
        f.pauses = 0;
        fetch_resume(&f);
        turn_until(f.body.len > len || f.dones);
        f.no_room = true;
    }
    fetch_resume(&f);
    fetch_wait(&f);
    server_stop(&server);
    assert_int_equal(f.error, 0);
    assert_int_equal(f.body.len, 3 * MIB);
}

static void waiting_for_room_is_no_stall(void **state)
{
    server_start(&server, say_hello, NULL);
    fetch_init(&f, server.port, "/x");
    f.no_room = true;
    fetch_start(&f);
    turn(400, NULL);
    assert_int_equal(f.dones, 0);
    fetch_resume(&f);
    fetch_wait(&f);
    server_stop(&server);
    assert_got(0, "hello");
}

static void exchange_can_be_cancelled_without_room(void **state)
{
    server_start(&server, send_large, NULL);
    fetch_init(&f, server.port, "/");
    f.no_room = true;
    fetch_start(&f);
    turn_until(f.pauses);
    fetch_resume(&f);
    fetch_cancel(&f);
    assert_cancelled();
    assert_int_equal(f.body.len, 0);
    server_stop(&server);
}

int main(void)
{
#define TEST(name)    cmocka_unit_test_setup_teardown(name, set_up, tear_down)
#define HASTY(name)   cmocka_unit_test_setup_teardown(name, set_up_hasty, tear_down)
#define WAITING(name) cmocka_unit_test_setup_teardown(name, set_up_to_wait, tear_down)
    const struct CMUnitTest tests[] = {
        TEST(body_lands_where_the_exchange_says),
        TEST(answer_may_come_byte_by_byte),
        TEST(chunked_bodies_are_joined),
        TEST(broken_chunks_end_the_exchange),
        TEST(chunked_body_without_its_last_chunk_is_an_error),
        TEST(interim_answers_are_passed_over),
        TEST(endless_interim_answers_are_an_error),
        TEST(head_204_304_and_empty_answers_have_no_body),
        TEST(body_of_unknown_length_ends_with_the_connection),
        TEST(body_of_unknown_length_on_a_connection_kept_alive_is_an_error),
        TEST(head_may_be_long_but_not_endless),
        TEST(answer_that_is_not_http_is_an_error),
        TEST(large_body_arrives_whole),
        TEST(body_of_any_length_is_seen_to_be_complete),
        TEST(large_request_is_sent_whole),
        TEST(answer_before_the_whole_request_was_sent_counts),
        TEST(body_shorter_than_promised_is_an_error),
        TEST(bytes_behind_the_promised_end_are_never_taken_for_an_answer),
        TEST(connection_closed_before_an_answer_is_an_error),
        TEST(connection_reset_before_an_answer_is_an_error),
        TEST(connection_reset_within_the_head_is_an_error),
        TEST(connection_reset_within_the_body_is_an_error),
        TEST(refused_connection_is_an_error),
        TEST(unknown_name_is_an_error),
        TEST(host_that_is_no_name_is_an_error),
        TEST(errors_of_call_backs_end_the_exchange),
        HASTY(silent_server_times_out),
        TEST(first_byte_may_have_a_time_out_of_its_own),
        HASTY(first_byte_time_out_may_be_longer_than_the_stall_time_out),
        HASTY(stalled_body_times_out),
        HASTY(slow_body_does_not_time_out),
        HASTY(request_that_the_server_does_not_take_times_out),
        WAITING(exchange_can_be_cancelled_while_connecting),
        WAITING(exchange_can_be_cancelled_before_the_answer),
        WAITING(exchange_can_be_cancelled_while_sending),
        WAITING(exchange_can_be_cancelled_within_the_body),
        TEST(exchange_can_be_cancelled_by_its_own_call_backs),
        TEST(cancelling_what_never_started_or_has_ended_does_nothing),
        TEST(failure_on_its_way_is_not_turned_into_a_cancellation),
        TEST(reading_stops_without_room_and_goes_on),
        HASTY(waiting_for_room_is_no_stall),
        TEST(exchange_can_be_cancelled_without_room),
    };

    return cmocka_run_group_tests_name("net/http_exchange", tests, NULL, NULL);
}
