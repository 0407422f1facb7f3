// SPDX-License-Identifier: Apache-2.0
// Many exchanges: reuse of connections, stale ones, the waiting line, limits.
#include "fetch.h"
#include "server.h"
#include "test.h"

#include "base/clock.h"

#include <stdatomic.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define HELLO "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello"

static struct server server;
static struct fetch fetches[8];
static atomic_bool go_on;

static int set_up_with(unsigned max_connections, unsigned idle_timeout_ms)
{
    struct http_client_config config = {.max_connections = max_connections,
                                        .proxy = "",
                                        .connect_timeout_ns = 3 * NS_PER_S,
                                        .stall_timeout_ns = 3 * NS_PER_S,
                                        .idle_timeout_ns = idle_timeout_ms * NS_PER_MS};

    atomic_store(&go_on, false);
    fetch_client_new(&config);
    return 0;
}

static int set_up_many(void **state)
{
    return set_up_with(8, 3000);
}

static int set_up_two(void **state)
{
    return set_up_with(2, 100);
}

static int set_up_one(void **state)
{
    return set_up_with(1, 3000);
}

static int set_up_one_shortly(void **state)
{
    return set_up_with(1, 100);
}

static int set_up_impatient(void **state)
{
    return set_up_with(8, 40);
}

static int tear_down(void **state)
{
    for (size_t i = 0; i < ARRAY_LEN(fetches); i++)
        fetch_free(&fetches[i]);
    fetch_client_free();
    return 0;
}

static void wait_to_go_on(void)
{
    for (int i = 0; i < 5000 && !atomic_load(&go_on); i++)
        usleep(1000);
}

static uint64_t opened(void)
{
    return counter_read(&http_client_stats(test_client)->connections_opened);
}

static uint64_t closed(void)
{
    return counter_read(&http_client_stats(test_client)->connections_closed);
}

static uint64_t stale_retries(void)
{
    return counter_read(&http_client_stats(test_client)->stale_retries);
}

static void start(size_t i, enum http_priority priority)
{
    char target[16] = {'/', (char)('0' + i)};

    fetch_init(&fetches[i], server.port, target);
    fetches[i].x.priority = priority;
    fetch_start(&fetches[i]);
}

// --- reuse ---

static void answer_three(struct server *s)
{
    struct peer *p = server_accept(s);

    for (int i = 0; i < 3; i++) {
        peer_read_request(p);
        peer_send(p, HELLO);
    }
    peer_close(p);
}

static void connection_is_used_again(void **state)
{
    server_start(&server, answer_three, NULL);
    for (int i = 0; i < 2; i++) {
        fetch_expect(server.port, "/", "hello");
        assert_int_equal(http_client_idle(test_client), 1);
        assert_int_equal(http_client_active(test_client), 0);
    }
    fetch_expect(server.port, "/", "hello");
    server_stop(&server);
    assert_int_equal(opened(), 1);
    assert_int_equal(counter_read(&http_client_stats(test_client)->exchanges), 3);
    assert_int_equal(histogram_count(&http_client_stats(test_client)->connect_time), 1);
}

static void answer_and_announce_close(struct server *s)
{
    struct peer *p = server_accept(s);

    peer_read_request(p);
    peer_send(p, "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 5\r\n\r\nhello");
    peer_expect_end(p);
    peer_close(p);
}

static void connection_is_closed_when_the_server_says_so(void **state)
{
    server_start(&server, answer_and_announce_close, NULL);
    fetch_expect(server.port, "/", "hello");
    assert_int_equal(http_client_idle(test_client), 0);
    server_stop(&server);
    assert_int_equal(closed(), 1);
}

static void answer_and_linger(struct server *s)
{
    struct peer *p = server_accept(s);

    peer_read_request(p);
    peer_send(p, HELLO);
    peer_expect_end(p);
    peer_close(p);
}

static void idle_connection_is_closed_after_a_while(void **state)
{
    uint64_t since;

    server_start(&server, answer_and_linger, NULL);
    fetch_expect(server.port, "/", "hello");
    since = clock_monotonic_ns();
    turn_until(http_client_idle(test_client) == 0);
    assert_in_range(clock_monotonic_ns() - since, 38 * NS_PER_MS, NS_PER_S);
    server_stop(&server);
}

static void answer_two_and_linger(struct server *s)
{
    struct peer *p = server_accept(s);

    peer_read_request(p);
    peer_send(p, HELLO);
    peer_read_request(p);
    peer_send(p, HELLO);
    peer_expect_end(p);
    peer_close(p);
}

static void use_restarts_the_idle_time(void **state)
{
    uint64_t since;

    server_start(&server, answer_two_and_linger, NULL);
    fetch_expect(server.port, "/", "hello");
    turn(20, NULL);
    since = clock_monotonic_ns();
    fetch_expect(server.port, "/", "hello");
    turn_until(http_client_idle(test_client) == 0);
    assert_in_range(clock_monotonic_ns() - since, 40 * NS_PER_MS, NS_PER_S);
    server_stop(&server);
}

static void answer_and_close_when_told(struct server *s)
{
    struct peer *p = server_accept(s);

    peer_read_request(p);
    peer_send(p, HELLO);
    wait_to_go_on();
    peer_close(p);
}

static void idle_connection_that_the_server_closes_is_closed(void **state)
{
    server_start(&server, answer_and_close_when_told, NULL);
    fetch_expect(server.port, "/", "hello");
    assert_int_equal(http_client_idle(test_client), 1);
    atomic_store(&go_on, true);
    turn_until(http_client_idle(test_client) == 0);
    server_stop(&server);
    assert_int_equal(closed(), 1);
}

static void answer_twice(struct server *s)
{
    struct peer *p = server_accept(s);

    peer_read_request(p);
    peer_send(p, HELLO);
    wait_to_go_on();
    peer_send(p, "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil");
    peer_expect_end(p);
    peer_close(p);
    p = server_accept(s);
    peer_read_request(p);
    peer_send(p, HELLO);
    peer_close(p);
}

static void answer_that_nobody_asked_for_closes_the_idle_connection(void **state)
{
    server_start(&server, answer_twice, NULL);
    fetch_expect(server.port, "/", "hello");
    atomic_store(&go_on, true);
    turn_until(http_client_idle(test_client) == 0);
    fetch_expect(server.port, "/", "hello");
    server_stop(&server);
}

static void answer_that_nobody_asked_for_is_not_taken_for_the_next_one(void **state)
{
    server_start(&server, answer_twice, NULL);
    fetch_expect(server.port, "/", "hello");
    atomic_store(&go_on, true);
    usleep(20000); // it arrives while the loop is not looking
    fetch_expect(server.port, "/", "hello");
    server_stop(&server);
    assert_int_equal(opened(), 2);
}

// --- stale connections ---

static void answer_then_close_at_the_next_request(struct server *s)
{
    struct peer *p = server_accept(s);

    peer_read_request(p);
    peer_send(p, HELLO);
    peer_read_request(p);
    peer_close(p);
    p = server_accept(s);
    peer_read_request(p);
    peer_send(p, "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nfresh");
    peer_close(p);
}

static void stale_connection_is_replaced_at_once(void **state)
{
    server_start(&server, answer_then_close_at_the_next_request, NULL);
    fetch_expect(server.port, "/", "hello");
    fetch_expect(server.port, "/", "fresh");
    server_stop(&server);
    assert_int_equal(stale_retries(), 1);
    assert_int_equal(opened(), 2);
}

static void answer_then_reset_at_the_next_request(struct server *s)
{
    struct peer *p = server_accept(s);

    peer_read_request(p);
    peer_send(p, HELLO);
    peer_read_request(p);
    peer_reset(p);
    p = server_accept(s);
    peer_read_request(p);
    peer_reset(p);
}

static void fresh_connection_that_breaks_too_is_an_error(void **state)
{
    server_start(&server, answer_then_reset_at_the_next_request, NULL);
    fetch_expect(server.port, "/", "hello");
    start(0, HTTP_DEMAND);
    fetch_wait(&fetches[0]);
    server_stop(&server);
    assert_int_equal(fetches[0].error, -ECONNRESET);
    assert_int_equal(stale_retries(), 1);
}

static void answer_then_close_once(struct server *s)
{
    struct peer *p = server_accept(s);

    peer_read_request(p);
    peer_send(p, HELLO);
    peer_read_request(p);
    peer_close(p);
}

static void request_that_may_not_be_repeated_is_not(void **state)
{
    server_start(&server, answer_then_close_once, NULL);
    fetch_expect(server.port, "/", "hello");
    fetch_init(&fetches[0], server.port, "/");
    fetches[0].x.resend_when_stale = false;
    fetch_run(&fetches[0]);
    server_stop(&server);
    assert_int_equal(fetches[0].error, -ECONNRESET);
    assert_int_equal(stale_retries(), 0);
}

static void answer_then_begin_another_and_close(struct server *s)
{
    struct peer *p = server_accept(s);

    peer_read_request(p);
    peer_send(p, HELLO);
    peer_read_request(p);
    peer_send(p, "H");
    peer_close(p);
}

static void request_is_not_repeated_once_its_answer_has_begun(void **state)
{
    server_start(&server, answer_then_begin_another_and_close, NULL);
    fetch_expect(server.port, "/", "hello");
    start(0, HTTP_DEMAND);
    fetch_wait(&fetches[0]);
    server_stop(&server);
    assert_int_equal(fetches[0].error, -ECONNRESET);
    assert_int_equal(stale_retries(), 0);
}

// --- the waiting line ---

static char served[16];
static size_t n_served;

// Answers n requests on one connection, the first when told; notes their order.
static void serve_in_order(struct server *s, int n)
{
    struct peer *p = server_accept(s);

    n_served = 0;
    memset(served, 0, sizeof(served));
    for (int i = 0; i < n; i++) {
        peer_read_request(p);
        served[n_served++] = p->head.data[5]; // "GET /3"
        if (i == 0)
            wait_to_go_on();
        peer_send(p, HELLO);
    }
    peer_close(p);
}

static void serve_five(struct server *s)
{
    serve_in_order(s, 5);
}

static void demand_goes_first_and_each_class_in_order(void **state)
{
    static const enum http_priority priorities[] = {HTTP_DEMAND, HTTP_BACKGROUND, HTTP_BACKGROUND,
                                                    HTTP_DEMAND, HTTP_DEMAND};

    server_start(&server, serve_five, NULL);
    for (size_t i = 0; i < 5; i++)
        start(i, priorities[i]);
    assert_int_equal(http_client_waiting(test_client), 4);
    assert_int_equal(http_client_active(test_client), 1);
    atomic_store(&go_on, true);
    for (size_t i = 0; i < 5; i++) {
        fetch_wait(&fetches[i]);
        assert_int_equal(fetches[i].error, 0);
    }
    server_stop(&server);
    assert_string_equal(served, "03412");
    assert_int_equal(opened(), 1);
}

static void serve_two(struct server *s)
{
    serve_in_order(s, 2);
}

static void exchange_can_be_cancelled_in_the_line(void **state)
{
    server_start(&server, serve_two, NULL);
    for (size_t i = 0; i < 3; i++)
        start(i, HTTP_DEMAND);
    fetch_cancel(&fetches[1]);
    assert_int_equal(http_client_waiting(test_client), 1);
    fetch_wait(&fetches[1]);
    assert_int_equal(fetches[1].error, -ECANCELED);
    atomic_store(&go_on, true);
    fetch_wait(&fetches[0]);
    fetch_wait(&fetches[2]);
    server_stop(&server);
    assert_string_equal(served, "02");
}

static void hang_then_answer(struct server *s)
{
    struct peer *p = server_accept(s);

    peer_read_request(p);
    peer_expect_end(p);
    peer_close(p);
    serve_in_order(s, 1);
}

static void cancelling_lets_the_next_in_line_go(void **state)
{
    server_start(&server, hang_then_answer, NULL);
    start(0, HTTP_DEMAND);
    start(1, HTTP_DEMAND);
    turn_until(fetches[0].x.started_ns);
    turn(5, NULL);
    fetch_cancel(&fetches[0]);
    atomic_store(&go_on, true);
    fetch_wait(&fetches[1]);
    fetch_wait(&fetches[0]);
    server_stop(&server);
    assert_int_equal(fetches[1].error, 0);
}

static void failing_lets_the_next_in_line_go(void **state)
{
    server_start(&server, serve_two, NULL);
    fetch_init(&fetches[0], 1, "/"); // nobody listens there
    fetch_start(&fetches[0]);
    start(1, HTTP_DEMAND);
    start(2, HTTP_DEMAND);
    atomic_store(&go_on, true);
    fetch_wait(&fetches[1]);
    fetch_wait(&fetches[2]);
    server_stop(&server);
    assert_int_equal(fetches[0].error, -ECONNREFUSED);
    assert_string_equal(served, "12");
}

// Two connections at once, each with a request in it before either is answered; then as many
// connections as come with one request each.
static void serve_two_at_once(struct server *s)
{
    struct peer *a = server_accept(s), *b = server_accept(s);

    peer_read_request(a);
    peer_read_request(b);
    wait_to_go_on();
    peer_send(a, HELLO);
    peer_send(b, HELLO);
    peer_expect_end(a);
    peer_close(a);
    peer_expect_end(b);
    peer_close(b);
}

static void as_many_connections_as_allowed_work_at_once(void **state)
{
    server_start(&server, serve_two_at_once, NULL);
    for (size_t i = 0; i < 2; i++)
        start(i, HTTP_DEMAND);
    assert_int_equal(http_client_active(test_client), 2);
    atomic_store(&go_on, true);
    for (size_t i = 0; i < 2; i++)
        fetch_wait(&fetches[i]);
    assert_int_equal(http_client_idle(test_client), 2);
    turn_until(http_client_idle(test_client) == 0);
    server_stop(&server);
}

static void shrinking_the_limit_closes_idle_connections(void **state)
{
    server_start(&server, serve_two_at_once, NULL);
    for (size_t i = 0; i < 2; i++)
        start(i, HTTP_DEMAND);
    atomic_store(&go_on, true);
    for (size_t i = 0; i < 2; i++)
        fetch_wait(&fetches[i]);
    http_client_set_max_connections(test_client, 1);
    assert_int_equal(http_client_idle(test_client), 1);
    http_client_set_max_connections(test_client, 0); // one is the least
    assert_int_equal(http_client_idle(test_client), 1);
    turn_until(http_client_idle(test_client) == 0);
    server_stop(&server);
}

static void shrinking_the_limit_closes_busy_connections_when_they_are_done(void **state)
{
    server_start(&server, serve_two_at_once, NULL);
    for (size_t i = 0; i < 2; i++)
        start(i, HTTP_DEMAND);
    http_client_set_max_connections(test_client, 1);
    assert_int_equal(http_client_active(test_client), 2);
    atomic_store(&go_on, true);
    for (size_t i = 0; i < 2; i++) {
        fetch_wait(&fetches[i]);
        assert_int_equal(fetches[i].error, 0);
    }
    assert_int_equal(http_client_idle(test_client), 1);
    turn_until(http_client_idle(test_client) == 0);
    server_stop(&server);
}

static void raising_the_limit_lets_the_line_go(void **state)
{
    server_start(&server, serve_two_at_once, NULL);
    for (size_t i = 0; i < 2; i++)
        start(i, HTTP_DEMAND);
    assert_int_equal(http_client_waiting(test_client), 1);
    http_client_set_max_connections(test_client, 2);
    assert_int_equal(http_client_waiting(test_client), 0);
    atomic_store(&go_on, true);
    for (size_t i = 0; i < 2; i++)
        fetch_wait(&fetches[i]);
    turn_until(http_client_idle(test_client) == 0);
    server_stop(&server);
}

static void idle_connection_gives_way_to_another_server(void **state)
{
    struct server other;

    server_start(&server, answer_and_linger, NULL);
    server_start(&other, answer_and_linger, NULL);
    fetch_expect(server.port, "/", "hello");
    assert_int_equal(http_client_idle(test_client), 1);
    fetch_expect(other.port, "/", "hello");
    assert_int_equal(http_client_idle(test_client), 1);
    assert_int_equal(closed(), 1);
    turn_until(http_client_idle(test_client) == 0);
    server_stop(&server);
    server_stop(&other);
}

// --- call-backs that start the next exchange ---

static struct fetch chain[50];
static size_t chain_done;

static void start_next_in_chain(struct http_exchange *x, int error)
{
    chain[chain_done].dones++;
    chain[chain_done].error = error;
    if (++chain_done < ARRAY_LEN(chain))
        http_exchange_start(test_client, &chain[chain_done].x);
}

static void serve_chain(struct server *s)
{
    struct peer *p = server_accept(s);

    for (size_t i = 0; i < ARRAY_LEN(chain); i++) {
        peer_read_request(p);
        peer_send(p, HELLO);
    }
    peer_close(p);
}

static void exchange_may_be_started_where_another_ends(void **state)
{
    server_start(&server, serve_chain, NULL);
    for (size_t i = 0; i < ARRAY_LEN(chain); i++) {
        fetch_init(&chain[i], server.port, "/");
        chain[i].x.on_done = start_next_in_chain;
    }
    chain_done = 0;
    fetch_start(&chain[0]);
    turn_until(chain_done == ARRAY_LEN(chain));
    for (size_t i = 0; i < ARRAY_LEN(chain); i++) {
        assert_int_equal(chain[i].error, 0);
        assert_int_equal(chain[i].dones, 1);
        fetch_free(&chain[i]);
    }
    server_stop(&server);
    assert_int_equal(opened(), 1);
}

static void free_client(struct http_exchange *x, int error)
{
    fetches[0].dones++;
    http_client_free(test_client);
    test_client = NULL;
}

static void client_may_be_freed_where_its_last_exchange_ends(void **state)
{
    server_start(&server, answer_and_linger, NULL);
    fetch_init(&fetches[0], server.port, "/");
    fetches[0].x.on_done = free_client;
    fetch_run(&fetches[0]);
    server_stop(&server);
}

int main(void)
{
#define MANY(name)        cmocka_unit_test_setup_teardown(name, set_up_many, tear_down)
#define TWO(name)         cmocka_unit_test_setup_teardown(name, set_up_two, tear_down)
#define ONE_SHORTLY(name) cmocka_unit_test_setup_teardown(name, set_up_one_shortly, tear_down)
#define IMPATIENT(name)   cmocka_unit_test_setup_teardown(name, set_up_impatient, tear_down)
#define ONE(name)         cmocka_unit_test_setup_teardown(name, set_up_one, tear_down)
    const struct CMUnitTest tests[] = {
        MANY(connection_is_used_again),
        MANY(connection_is_closed_when_the_server_says_so),
        IMPATIENT(idle_connection_is_closed_after_a_while),
        IMPATIENT(use_restarts_the_idle_time),
        MANY(idle_connection_that_the_server_closes_is_closed),
        MANY(answer_that_nobody_asked_for_closes_the_idle_connection),
        MANY(answer_that_nobody_asked_for_is_not_taken_for_the_next_one),
        MANY(stale_connection_is_replaced_at_once),
        ONE(stale_connection_is_replaced_at_once),
        MANY(fresh_connection_that_breaks_too_is_an_error),
        MANY(request_that_may_not_be_repeated_is_not),
        MANY(request_is_not_repeated_once_its_answer_has_begun),
        ONE(demand_goes_first_and_each_class_in_order),
        ONE(exchange_can_be_cancelled_in_the_line),
        ONE(cancelling_lets_the_next_in_line_go),
        ONE(failing_lets_the_next_in_line_go),
        TWO(as_many_connections_as_allowed_work_at_once),
        TWO(shrinking_the_limit_closes_idle_connections),
        TWO(shrinking_the_limit_closes_busy_connections_when_they_are_done),
        ONE_SHORTLY(raising_the_limit_lets_the_line_go),
        ONE_SHORTLY(idle_connection_gives_way_to_another_server),
        MANY(exchange_may_be_started_where_another_ends),
        MANY(client_may_be_freed_where_its_last_exchange_ends),
    };

    return cmocka_run_group_tests_name("net/http_pool", tests, NULL, NULL);
}
