// SPDX-License-Identifier: Apache-2.0
// TLS with a throw-away authority, and proxies.
#include "fetch.h"
#include "server.h"
#include "test.h"

#include "base/clock.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define HELLO "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello"

static struct test_ca ca;
static struct server server, proxy;
static struct fetch f;

static int make_ca(void **state)
{
    static const char *const variables[] = {"http_proxy", "https_proxy", "HTTPS_PROXY", "all_proxy",
                                            "ALL_PROXY",  "no_proxy",    "NO_PROXY"};

    for (size_t i = 0; i < ARRAY_LEN(variables); i++)
        unsetenv(variables[i]);
    test_ca_make(&ca);
    return 0;
}

static int free_ca(void **state)
{
    test_ca_free(&ca);
    return 0;
}

static void client_with_proxy(const char *url)
{
    struct http_client_config config = {.max_connections = 8,
                                        .ca_file = ca.file,
                                        .proxy = url,
                                        .connect_timeout_ns = 3 * NS_PER_S,
                                        .stall_timeout_ns = 3 * NS_PER_S,
                                        .idle_timeout_ns = 3 * NS_PER_S};

    fetch_client_new(&config);
}

static int set_up(void **state)
{
    client_with_proxy("");
    return 0;
}

static int tear_down(void **state)
{
    fetch_free(&f);
    fetch_client_free();
    return 0;
}

static void start_tls(void (*script)(struct server *s), const char *alt_name)
{
    server_start(&server, script, test_ca_server(&ca, alt_name));
    fetch_init(&f, server.port, "/x");
    f.x.tls = true;
}

static void run_tls_again(void)
{
    fetch_free(&f);
    fetch_init(&f, server.port, "/x");
    f.x.tls = true;
    fetch_run(&f);
}

// --- TLS ---

static void answer_two(struct server *s)
{
    struct peer *p = server_accept(s);

    for (int i = 0; i < 2; i++) {
        peer_read_request(p);
        peer_send(p, HELLO);
    }
    peer_close(p);
}

static void tls_connection_is_used_again(void **state)
{
    start_tls(answer_two, "IP:127.0.0.1");
    fetch_run(&f);
    assert_string_equal(buf_str(&f.body), "hello");
    turn(20, NULL); // session tickets on the idle connection are no reason to close it
    assert_int_equal(http_client_idle(test_client), 1);
    run_tls_again();
    assert_int_equal(f.error, 0);
    assert_string_equal(buf_str(&f.body), "hello");
    assert_int_equal(counter_read(&http_client_stats(test_client)->connections_opened), 1);
    server_stop(&server);
}

static bool second_resumed;

static void answer_twice_on_two_connections(struct server *s)
{
    for (int i = 0; i < 2; i++) {
        struct peer *p = server_accept(s);

        peer_read_request(p);
        second_resumed = p->resumed;
        peer_send(p, "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 5\r\n\r\nhello");
        peer_close(p);
    }
}

static void further_connection_resumes_the_tls_session(void **state)
{
    start_tls(answer_twice_on_two_connections, "IP:127.0.0.1");
    fetch_run(&f);
    run_tls_again();
    server_stop(&server);
    assert_int_equal(f.error, 0);
    assert_true(second_resumed);
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

static void assert_large(void)
{
    assert_int_equal(f.error, 0);
    assert_int_equal(f.body.len, 3 * MIB);
    for (size_t i = 0; i < 3 * MIB; i++)
        if (f.body.data[i] != (char)(i * 31 + (i >> 16)))
            fail_msg("byte %zu is wrong", i);
}

static void large_body_arrives_whole_through_tls(void **state)
{
    start_tls(send_large, "IP:127.0.0.1");
    f.room = 1 << 20;
    fetch_run(&f);
    server_stop(&server);
    assert_large();
}

static void reading_tls_stops_without_room_and_goes_on(void **state)
{
    start_tls(send_large, "IP:127.0.0.1");
    f.room = 10000; // less than a record: the rest waits where the socket does not show it
    f.no_room = true;
    fetch_start(&f);
    for (int i = 0; i < 20 && !f.dones; i++) {
        size_t len;

        turn_until(f.pauses || f.dones);
        len = f.body.len;
        f.pauses = 0;
        fetch_resume(&f);
        turn_until(f.body.len > len || f.dones);
        f.no_room = true;
    }
    fetch_resume(&f);
    fetch_wait(&f);
    server_stop(&server);
    assert_large();
}

static void take_large_request(struct server *s)
{
    struct peer *p = server_accept(s);

    peer_read_request(p);
    peer_send(p, HELLO);
    peer_close(p);
}

static void large_request_is_sent_whole_through_tls(void **state)
{
    static char part[4 << 20];
    struct iovec iov[2] = {{"PUT / HTTP/1.1\r\nContent-Length: 4194304\r\n\r\n", 43},
                           {part, sizeof(part)}};

    start_tls(take_large_request, "IP:127.0.0.1");
    f.x.request = iov;
    f.x.request_iovs = 2;
    fetch_run(&f);
    server_stop(&server);
    assert_int_equal(f.error, 0);
    assert_string_equal(buf_str(&f.body), "hello");
}

static void cut_body(struct server *s)
{
    struct peer *p = server_accept(s);

    peer_read_request(p);
    peer_send(p, "HTTP/1.0 200 OK\r\n\r\nhello");
    usleep(5000);
    SSL_free(p->ssl); // no close_notify: anybody on the way could have done this
    p->ssl = NULL;
    peer_close(p);
}

static void body_ended_by_closing_needs_a_proper_end_of_tls(void **state)
{
    start_tls(cut_body, "IP:127.0.0.1");
    fetch_run(&f);
    server_stop(&server);
    assert_int_equal(f.error, -ECONNRESET);
}

static void only_shake_hands(struct server *s)
{
    peer_close(server_accept(s));
}

static void certificate_of_another_name_is_rejected(void **state)
{
    start_tls(only_shake_hands, "DNS:other.test");
    fetch_run(&f);
    server_stop(&server);
    assert_int_equal(f.error, -EKEYREJECTED);
    assert_string_not_equal(f.x.error_text, "");
}

static void certificate_of_another_authority_is_rejected(void **state)
{
    struct test_ca other;

    test_ca_make(&other);
    server_start(&server, only_shake_hands, test_ca_server(&other, "IP:127.0.0.1"));
    fetch_init(&f, server.port, "/");
    f.x.tls = true;
    fetch_run(&f);
    server_stop(&server);
    test_ca_free(&other);
    assert_int_equal(f.error, -EKEYREJECTED);
    assert_int_equal(f.heads, 0);
}

static void say_hello_and_close(struct server *s)
{
    struct peer *p = server_accept(s);

    peer_send(p, HELLO);
    peer_close(p);
}

static void server_without_tls_is_an_error(void **state)
{
    server_start(&server, say_hello_and_close, NULL);
    fetch_init(&f, server.port, "/");
    f.x.tls = true;
    fetch_run(&f);
    server_stop(&server);
    assert_int_equal(f.error, -ECONNRESET);
}

static void tls_is_not_spoken_to_in_plain(void **state)
{
    server_start(&server, only_shake_hands, test_ca_server(&ca, "IP:127.0.0.1"));
    fetch_init(&f, server.port, "/");
    fetch_run(&f);
    server_stop(&server);
    assert_true(f.error == -EBADMSG || f.error == -ECONNRESET);
    assert_int_equal(f.heads, 0);
}

static void file_without_authorities_is_refused(void **state)
{
    struct http_client_config config = {.ca_file = "/nowhere/ca.pem", .max_connections = 1};
    struct http_client *client;

    assert_int_equal(http_client_new(&client, test_loop, &config), -ENOENT);
    config.ca_file = "/dev/null";
    assert_int_equal(http_client_new(&client, test_loop, &config), -EINVAL);
}

// --- proxies ---

static char connect_head[512];

// Carries bytes both ways until either side ends.
static void relay(int a, int b)
{
    for (;;) {
        fd_set set;
        char data[65536];
        struct timeval wait = {.tv_sec = 5};

        FD_ZERO(&set);
        FD_SET(a, &set);
        FD_SET(b, &set);
        if (select(MAX(a, b) + 1, &set, NULL, NULL, &wait) <= 0)
            return;
        for (int i = 0; i < 2; i++) {
            int from = i ? b : a, to = i ? a : b;
            ssize_t n;

            if (!FD_ISSET(from, &set))
                continue;
            n = recv(from, data, sizeof(data), 0);
            if (n <= 0 || send(to, data, (size_t)n, MSG_NOSIGNAL) != n)
                return;
        }
    }
}

static void tunnel(struct server *s)
{
    struct sockaddr_in addr = {.sin_family = AF_INET,
                               .sin_addr.s_addr = htonl(INADDR_LOOPBACK),
                               .sin_port = htons(server.port)};
    struct peer *p = server_accept(s);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    peer_read_request(p);
    snprintf(connect_head, sizeof(connect_head), "%s", buf_str(&p->head));
    server_expect(s, !connect(fd, (struct sockaddr *)&addr, sizeof(addr)), "no server behind");
    peer_send(p, "HTTP/1.1 200 Connection established\r\nVia: test\r\n\r\n");
    relay(p->fd, fd);
    close(fd);
    peer_close(p);
}

static void refuse_tunnel(struct server *s)
{
    struct peer *p = server_accept(s);

    peer_read_request(p);
    peer_send(p, "HTTP/1.1 403 Forbidden\r\nContent-Length: 2\r\n\r\nno");
    peer_close(p);
}

static void start_proxy(void (*script)(struct server *s), const char *user, bool environment)
{
    char *url;

    server_start(&proxy, script, NULL);
    url = xasprintf("http://%s127.0.0.1:%u", user, proxy.port);
    if (environment) {
        setenv("http_proxy", url, 1);
        setenv("https_proxy", url, 1);
    }
    client_with_proxy(environment ? NULL : url);
    free(url);
}

static int tear_down_proxy(void **state)
{
    unsetenv("http_proxy");
    unsetenv("https_proxy");
    unsetenv("no_proxy");
    fetch_free(&f);
    return 0;
}

static void answer_one(struct server *s)
{
    struct peer *p = server_accept(s);

    peer_read_request(p);
    peer_send(p, HELLO);
    peer_close(p);
}

static void assert_connect_to_server(void)
{
    char line[64];

    snprintf(line, sizeof(line), "CONNECT 127.0.0.1:%u HTTP/1.1\r\n", server.port);
    assert_memory_equal(connect_head, line, strlen(line));
}

static void plain_exchange_goes_through_the_proxys_tunnel(void **state)
{
    server_start(&server, answer_one, NULL);
    start_proxy(tunnel, "", false);
    fetch_expect(server.port, "/", "hello");
    fetch_client_free();
    server_stop(&server);
    server_stop(&proxy);
    assert_connect_to_server();
}

static void tls_exchange_goes_through_the_proxys_tunnel(void **state)
{
    start_tls(answer_one, "IP:127.0.0.1");
    start_proxy(tunnel, "", false);
    fetch_run(&f);
    assert_string_equal(buf_str(&f.body), "hello");
    fetch_client_free();
    server_stop(&server);
    server_stop(&proxy);
    assert_connect_to_server();
}

static void proxy_gets_the_name_and_password_of_its_url(void **state)
{
    server_start(&server, answer_one, NULL);
    start_proxy(tunnel, "user:secret@", false);
    fetch_expect(server.port, "/", "hello");
    fetch_client_free();
    server_stop(&server);
    server_stop(&proxy);
    assert_non_null(strstr(connect_head, "Proxy-Authorization: Basic dXNlcjpzZWNyZXQ=\r\n"));
}

static void proxy_is_taken_from_the_environment(void **state)
{
    server_start(&server, answer_one, NULL);
    start_proxy(tunnel, "", true);
    fetch_expect(server.port, "/", "hello");
    fetch_client_free();
    server_stop(&server);
    server_stop(&proxy);
    assert_connect_to_server();
}

static void no_proxy_of_the_environment_is_heeded(void **state)
{
    setenv("http_proxy", "http://127.0.0.1:1", 1);
    setenv("no_proxy", "example.com,127.0.0.1", 1);
    client_with_proxy(NULL);
    server_start(&server, answer_one, NULL);
    fetch_expect(server.port, "/", "hello");
    server_stop(&server);
    fetch_client_free();
}

static void be_proxy_and_server(struct server *s)
{
    struct peer *p = server_accept(s);

    peer_read_request(p);
    server_expect(s, !strncmp(p->head.data, "CONNECT ", 8), "no CONNECT");
    peer_send(p, "HTTP/1.1 200 OK\r\n\r\n");
    peer_read_request(p);
    peer_send(p, HELLO);
    peer_close(p);
}

static void way_to_the_proxy_may_be_tls(void **state)
{
    char *url;

    server_start(&proxy, be_proxy_and_server, test_ca_server(&ca, "IP:127.0.0.1"));
    url = xasprintf("https://127.0.0.1:%u", proxy.port);
    client_with_proxy(url);
    free(url);
    fetch_expect(80, "/", "hello");
    fetch_client_free();
    server_stop(&proxy);
}

static void certificate_of_the_proxy_is_verified(void **state)
{
    char *url;

    server_start(&proxy, only_shake_hands, test_ca_server(&ca, "DNS:other.test"));
    url = xasprintf("https://127.0.0.1:%u", proxy.port);
    client_with_proxy(url);
    free(url);
    fetch_init(&f, 80, "/");
    fetch_run(&f);
    fetch_client_free();
    server_stop(&proxy);
    assert_int_equal(f.error, -EKEYREJECTED);
}

static void proxy_that_refuses_is_an_error(void **state)
{
    start_proxy(refuse_tunnel, "", false);
    fetch_init(&f, 80, "/");
    fetch_run(&f);
    server_stop(&proxy);
    fetch_client_free();
    assert_int_equal(f.error, -EHOSTUNREACH);
    assert_non_null(strstr(f.x.error_text, "403"));
}

static void proxy_that_is_not_there_is_an_error(void **state)
{
    client_with_proxy("http://127.0.0.1:1");
    fetch_init(&f, 80, "/");
    fetch_run(&f);
    fetch_client_free();
    assert_int_equal(f.error, -ECONNREFUSED);
}

int main(void)
{
#define TEST(name)  cmocka_unit_test_setup_teardown(name, set_up, tear_down)
#define PROXY(name) cmocka_unit_test_setup_teardown(name, NULL, tear_down_proxy)
    const struct CMUnitTest tests[] = {
        TEST(tls_connection_is_used_again),
        TEST(further_connection_resumes_the_tls_session),
        TEST(large_body_arrives_whole_through_tls),
        TEST(reading_tls_stops_without_room_and_goes_on),
        TEST(large_request_is_sent_whole_through_tls),
        TEST(body_ended_by_closing_needs_a_proper_end_of_tls),
        TEST(certificate_of_another_name_is_rejected),
        TEST(certificate_of_another_authority_is_rejected),
        TEST(server_without_tls_is_an_error),
        TEST(tls_is_not_spoken_to_in_plain),
        TEST(file_without_authorities_is_refused),
        PROXY(plain_exchange_goes_through_the_proxys_tunnel),
        PROXY(tls_exchange_goes_through_the_proxys_tunnel),
        PROXY(proxy_gets_the_name_and_password_of_its_url),
        PROXY(proxy_is_taken_from_the_environment),
        PROXY(no_proxy_of_the_environment_is_heeded),
        PROXY(way_to_the_proxy_may_be_tls),
        PROXY(certificate_of_the_proxy_is_verified),
        PROXY(proxy_that_refuses_is_an_error),
        PROXY(proxy_that_is_not_there_is_an_error),
    };

    return cmocka_run_group_tests_name("net/http_tls", tests, make_ca, free_ca);
}
