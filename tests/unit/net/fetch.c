// SPDX-License-Identifier: Apache-2.0
#include "fetch.h"

#include "base/clock.h"
#include "test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct loop *test_loop;
struct http_client *test_client;

static bool inside; // a call within which nothing may be called back

// --- the loop ---

static void on_turn_end(uv_timer_t *t)
{
    *(bool *)t->data = true;
    uv_stop(t->loop); // else the same turn would go on to wait for what comes next
}

void turn(unsigned ms, const bool *flag)
{
    uv_timer_t timer;
    bool over = false;

    uv_timer_init(loop_uv(test_loop), &timer);
    timer.data = &over;
    uv_timer_start(&timer, on_turn_end, ms, 0);
    while (!over && !(flag && *flag))
        uv_run(loop_uv(test_loop), UV_RUN_ONCE);
    uv_close((uv_handle_t *)&timer, NULL);
    uv_run(loop_uv(test_loop), UV_RUN_NOWAIT); // the close call-backs
}

void fetch_client_new(const struct http_client_config *config)
{
    static const struct http_client_config usual = {.max_connections = 8,
                                                    .proxy = "",
                                                    .connect_timeout_ns = 3000000000,
                                                    .stall_timeout_ns = 3000000000,
                                                    .idle_timeout_ns = 3000000000};

    assert_int_equal(loop_new(&test_loop, "test"), 0);
    assert_int_equal(http_client_new(&test_client, test_loop, config ? config : &usual), 0);
}

void fetch_client_free(void)
{
    http_client_free(test_client);
    loop_stop(test_loop);
    test_client = NULL;
    test_loop = NULL;
}

// --- call-backs ---

static int on_head(struct http_exchange *x, const struct http_head *head)
{
    struct fetch *f = container_of(x, struct fetch, x);
    const char *etag = http_head_find(head, "ETag");

    assert_false(inside);
    assert_int_equal(f->dones, 0);
    f->heads++;
    f->status = head->status;
    snprintf(f->etag, sizeof(f->etag), "%s", etag ? etag : "");
    if (f->cancel_in_head)
        fetch_cancel(f);
    return f->head_error;
}

static int on_room(struct http_exchange *x, struct iovec *iov, int max)
{
    struct fetch *f = container_of(x, struct fetch, x);
    size_t room = f->room ? f->room : 100;

    assert_false(inside);
    assert_int_equal(f->dones, 0);
    assert_int_equal(f->heads, 1);
    assert_true(max >= 2);
    if (f->cancel_in_room)
        fetch_cancel(f);
    if (f->room_error)
        return f->room_error;
    if (f->no_room) {
        f->pauses++;
        return 0;
    }
    // exact memory, so that the sanitizer sees a byte too many
    f->landing = xrealloc(f->landing, room);
    iov[0] = (struct iovec){f->landing, room / 3};
    iov[1] = (struct iovec){f->landing + room / 3, room - room / 3};
    return 2;
}

static int on_body(struct http_exchange *x, size_t n)
{
    struct fetch *f = container_of(x, struct fetch, x);

    assert_false(inside);
    assert_int_equal(f->dones, 0);
    assert_in_range(n, 1, f->room ? f->room : 100);
    buf_add(&f->body, f->landing, n);
    assert_int_equal(f->body.len, x->body_len);
    if (f->cancel_in_body)
        fetch_cancel(f);
    return f->body_error;
}

static void on_done(struct http_exchange *x, int error)
{
    struct fetch *f = container_of(x, struct fetch, x);

    assert_false(inside);
    f->dones++;
    f->error = error;
}

// --- use ---

void fetch_init(struct fetch *f, uint16_t port, const char *target)
{
    int n;

    memset(f, 0, sizeof(*f));
    n = snprintf(f->request_text, sizeof(f->request_text), "GET %s HTTP/1.1\r\nHost: test\r\n\r\n",
                 target);
    f->iov[0] = (struct iovec){f->request_text, (size_t)n};
    f->x = (struct http_exchange){.host = "127.0.0.1",
                                  .port = port,
                                  .request = f->iov,
                                  .request_iovs = 1,
                                  .resend_when_stale = true,
                                  .on_head = on_head,
                                  .on_room = on_room,
                                  .on_body = on_body,
                                  .on_done = on_done};
}

void fetch_start(struct fetch *f)
{
    inside = true;
    http_exchange_start(test_client, &f->x);
    inside = false;
    assert_int_equal(f->dones, 0);
}

void fetch_cancel(struct fetch *f)
{
    int dones = f->dones;
    bool was_inside = inside;

    inside = true;
    http_exchange_cancel(&f->x);
    inside = was_inside;
    assert_int_equal(f->dones, dones);
}

void fetch_resume(struct fetch *f)
{
    f->no_room = false;
    inside = true;
    http_exchange_resume(&f->x);
    inside = false;
}

void fetch_wait(struct fetch *f)
{
    turn_until(f->dones);
    assert_int_equal(f->dones, 1);
}

void fetch_run(struct fetch *f)
{
    fetch_start(f);
    fetch_wait(f);
}

void fetch_free(struct fetch *f)
{
    buf_free(&f->body);
    free(f->landing);
    f->landing = NULL;
}

void fetch_expect(uint16_t port, const char *target, const char *body)
{
    struct fetch f;

    fetch_init(&f, port, target);
    fetch_run(&f);
    assert_int_equal(f.error, 0);
    assert_string_equal(buf_str(&f.body), body);
    fetch_free(&f);
}
