// SPDX-License-Identifier: Apache-2.0
// raw: the bare client that the benchmarks measure us against. One thread, epoll, recv() into
// pre-faulted memory, unsigned requests, no retries: what it costs at least to get the bytes.
//
//   raw get  HOST:PORT /BUCKET/KEY SIZE [--range 8M] [--connections 8] [--in-place]
//                                                   one object, in ranges; --in-place: each to its
//                                                   place in a memfd of the object's size, mapped
//                                                   shared, instead of a buffer per connection
//   raw keys HOST:PORT FILE [--connections 64]      objects named in FILE, a path a line, each once
//   raw list HOST:PORT BUCKET FILE                  directory listings, one after the other; the
//                                                   prefixes in FILE, a line each (list.c)
//
// Prints one line of JSON: seconds, bytes, requests, cpu_s (its own user and system time).
#include "raw.h"

#include "base/clock.h"
#include "base/text.h"
#include "lines.h"

#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#define BUFFER_BYTES ((size_t)1 << 20)
#define HEAD_BYTES   8192

void raw_die(const char *what)
{
    fprintf(stderr, "raw: %s: %s\n", what, errno ? strerror(errno) : "unexpected answer");
    exit(1);
}

// What is to be fetched: either ranges of one object or a list of paths.
struct work {
    const char *host;
    const char *path;
    uint64_t size, range, next_offset;
    char *memory; // a buffer per connection, or (in_place) room for the whole object
    size_t memory_bytes;
    bool in_place;
    char **paths;
    size_t n_paths, next_path;
    unsigned active;
    uint64_t bytes, requests;
};

struct conn {
    int fd;
    char *buffer;
    size_t filled; // in_place: bytes of the body that are there
    char head[HEAD_BYTES];
    size_t head_len;
    uint64_t body_left;
    bool in_body;
};

int raw_connect(const struct sockaddr_in *addr)
{
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), one = 1;

    if (fd < 0 || connect(fd, (const struct sockaddr *)addr, sizeof(*addr)) < 0)
        raw_die("connect");
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
    return fd;
}

// Sends the connection's next request; false when there is none left.
static bool send_next(struct work *w, struct conn *c)
{
    char request[4096];
    int n;

    if (w->paths) {
        if (w->next_path == w->n_paths)
            return false;
        n = snprintf(request, sizeof(request), "GET %s HTTP/1.1\r\nHost: %s\r\n\r\n",
                     w->paths[w->next_path++], w->host);
    } else {
        uint64_t end = MIN(w->next_offset + w->range, w->size);

        if (w->next_offset == w->size)
            return false;
        n = snprintf(request, sizeof(request),
                     "GET %s HTTP/1.1\r\nHost: %s\r\nRange: bytes=%lu-%lu\r\n\r\n", w->path,
                     w->host, w->next_offset, end - 1);
        if (w->in_place)
            c->buffer = w->memory + w->next_offset;
        w->next_offset = end;
    }
    if (n >= (int)sizeof(request) || send(c->fd, request, (size_t)n, MSG_NOSIGNAL) != n)
        raw_die("send");
    c->head_len = 0;
    c->filled = 0;
    c->in_body = false;
    w->requests++;
    return true;
}

static void take_body(struct work *w, struct conn *c, size_t n)
{
    c->body_left -= n;
    w->bytes += n;
    if (w->in_place)
        c->filled += n;
}

// The head is complete: learns the body's length, moves on past body bytes that came with it.
static void take_head(struct work *w, struct conn *c, char *end)
{
    const char *length = strcasestr(c->head, "\r\nContent-Length:");
    size_t early = (size_t)(c->head + c->head_len - end);

    errno = 0;
    if (strncmp(c->head, "HTTP/1.1 20", 11) != 0 || !length)
        raw_die(c->head);
    c->body_left = strtoull(length + strlen("\r\nContent-Length:"), NULL, 10);
    if (early > c->body_left)
        raw_die("bytes behind the body");
    memcpy(c->buffer, end, early);
    take_body(w, c, early);
    c->in_body = true;
}

static ssize_t receive(const struct work *w, struct conn *c)
{
    if (!c->in_body)
        return recv(c->fd, c->head + c->head_len, HEAD_BYTES - 1 - c->head_len, MSG_DONTWAIT);
    return recv(c->fd, c->buffer + c->filled,
                w->in_place ? c->body_left : MIN(BUFFER_BYTES, c->body_left), MSG_DONTWAIT);
}

static void on_readable(struct work *w, struct conn *c)
{
    for (;;) {
        ssize_t n = receive(w, c);

        if (n < 0 && errno == EAGAIN)
            return;
        if (n <= 0)
            raw_die("recv");
        if (c->in_body) {
            take_body(w, c, (size_t)n);
        } else {
            char *end;

            c->head_len += (size_t)n;
            c->head[c->head_len] = 0;
            end = strstr(c->head, "\r\n\r\n");
            if (!end)
                continue;
            take_head(w, c, end + 4);
        }
        if (c->in_body && c->body_left == 0) {
            // the answer to the next request can't be there yet: back to epoll
            if (!send_next(w, c)) {
                close(c->fd);
                c->fd = -1;
                w->active--;
            }
            return;
        }
    }
}

// Pre-faulted: what that costs is not measured.
static void make_memory(struct work *w, unsigned connections)
{
    int fd = w->in_place ? memfd_create("raw", MFD_CLOEXEC) : -1;
    int flags = w->in_place ? MAP_SHARED : MAP_PRIVATE | MAP_ANONYMOUS;

    w->memory_bytes = w->in_place ? w->size : connections * BUFFER_BYTES;
    if (w->in_place && (fd < 0 || ftruncate(fd, (off_t)w->memory_bytes) < 0))
        raw_die("memfd");
    w->memory = mmap(NULL, w->memory_bytes, PROT_READ | PROT_WRITE, flags | MAP_POPULATE, fd, 0);
    if (w->memory == MAP_FAILED)
        raw_die("mmap");
    if (fd >= 0)
        close(fd);
}

static void fetch_all(struct work *w, const struct sockaddr_in *addr, unsigned connections)
{
    int epoll = epoll_create1(EPOLL_CLOEXEC);
    struct conn *conns = xcalloc(connections, sizeof(*conns));

    for (unsigned i = 0; i < connections; i++) {
        struct epoll_event event = {.events = EPOLLIN, .data.ptr = &conns[i]};

        conns[i].fd = raw_connect(addr);
        if (!w->in_place)
            conns[i].buffer = w->memory + i * BUFFER_BYTES;
        epoll_ctl(epoll, EPOLL_CTL_ADD, conns[i].fd, &event);
        if (send_next(w, &conns[i]))
            w->active++;
    }
    while (w->active) {
        struct epoll_event events[64];
        int n = epoll_wait(epoll, events, ARRAY_LEN(events), -1);

        for (int i = 0; i < n; i++)
            on_readable(w, events[i].data.ptr);
    }
    free(conns);
    close(epoll);
}

static double cpu_seconds(void)
{
    struct rusage u;

    getrusage(RUSAGE_SELF, &u);
    return (double)u.ru_utime.tv_sec + (double)u.ru_stime.tv_sec +
           (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec) * 1e-6;
}

static struct sockaddr_in parse_address(const char *text)
{
    struct sockaddr_in addr = {.sin_family = AF_INET};
    const char *colon = strchr(text, ':');
    char ip[INET_ADDRSTRLEN];
    uint64_t port = 0;

    errno = EINVAL;
    if (!colon || text_parse_u64(colon + 1, &port) < 0 || port > 65535)
        raw_die(text);
    snprintf(ip, sizeof(ip), "%.*s", (int)(colon - text), text);
    if (inet_pton(AF_INET, ip, &addr.sin_addr) != 1)
        raw_die(text);
    addr.sin_port = htons((uint16_t)port);
    return addr;
}

static bool has_option(int argc, char **argv, const char *name)
{
    for (int i = 1; i < argc; i++)
        if (!strcmp(argv[i], name))
            return true;
    return false;
}

// The value of "--name" among the arguments, or what is the default.
static uint64_t option(int argc, char **argv, const char *name, uint64_t value)
{
    for (int i = 1; i + 1 < argc; i++)
        if (!strcmp(argv[i], name) && text_parse_size(argv[i + 1], &value) < 0)
            raw_die(argv[i + 1]);
    return value;
}

int main(int argc, char **argv)
{
    const char *mode = argc > 1 ? argv[1] : "";
    struct work w = {0};
    struct sockaddr_in addr;
    unsigned connections;
    uint64_t start;
    double cpu, seconds;

    if (argc < 4 || (argc < 5 && strcmp(mode, "keys") != 0)) {
        fputs("usage: raw get HOST:PORT PATH SIZE | keys HOST:PORT FILE | "
              "list HOST:PORT BUCKET FILE  [--range N] [--connections N] [--in-place]\n",
              stderr);
        return 2;
    }
    addr = parse_address(argv[2]);
    w.host = argv[2];
    if (!strcmp(mode, "get")) {
        w.path = argv[3];
        w.range = option(argc, argv, "--range", 8 * MIB);
        w.in_place = has_option(argc, argv, "--in-place");
        if (text_parse_size(argv[4], &w.size) < 0 || w.range == 0)
            raw_die(argv[4]);
    } else if (!strcmp(mode, "keys")) {
        w.paths = lines_read(argv[3], &w.n_paths);
    }

    connections = (unsigned)option(argc, argv, "--connections", w.path ? 8 : 64);
    if (w.path || w.paths)
        make_memory(&w, connections);
    cpu = cpu_seconds();
    start = clock_monotonic_ns();
    if (w.path || w.paths)
        fetch_all(&w, &addr, connections);
    else
        raw_list(&addr, argv[2], argv[3], argv[4], &w.requests, &w.bytes);
    seconds = (double)(clock_monotonic_ns() - start) / 1e9;
    printf("{\"seconds\": %.6f, \"bytes\": %lu, \"requests\": %lu, \"cpu_s\": %.6f}\n", seconds,
           w.bytes, w.requests, cpu_seconds() - cpu);
    return 0;
}
