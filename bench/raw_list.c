// SPDX-License-Identifier: Apache-2.0
// The bare client's listings: one connection, one request at a time, blocking.
#include "raw.h"

#include "base/text.h"
#include "lines.h"
#include "s3/xml.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#define HEAD_BYTES 8192

// Receives a head; returns how many bytes of the body came with it, moved to the buffer's front.
static size_t receive_head(int fd, char *buffer, uint64_t *ret_body_len)
{
    size_t len = 0;
    const char *length;
    char *end;

    do {
        ssize_t n = recv(fd, buffer + len, HEAD_BYTES - 1 - len, 0);

        if (n <= 0)
            raw_die("recv");
        len += (size_t)n;
        buffer[len] = 0;
        end = strstr(buffer, "\r\n\r\n");
    } while (!end);
    length = strcasestr(buffer, "\r\nContent-Length:");
    errno = 0;
    if (strncmp(buffer, "HTTP/1.1 200", 12) != 0 || !length)
        raw_die(buffer);
    *ret_body_len = strtoull(length + strlen("\r\nContent-Length:"), NULL, 10);
    end += 4;
    len -= (size_t)(end - buffer);
    memmove(buffer, end, len);
    return len;
}

static struct s3_xml_page *receive_page(int fd, uint64_t *bytes)
{
    struct s3_xml_page *page = s3_xml_page_new();
    char buffer[HEAD_BYTES];
    uint64_t left;
    size_t early = receive_head(fd, buffer, &left);

    *bytes += left;
    while (left) {
        size_t room;
        char *to = s3_xml_page_room(page, &room);
        ssize_t n;

        room = MIN(room, left);
        if (early) {
            n = (ssize_t)MIN(room, early);
            memcpy(to, buffer, (size_t)n);
            memmove(buffer, buffer + n, early - (size_t)n);
            early -= (size_t)n;
        } else {
            n = recv(fd, to, room, 0);
        }
        if (n <= 0 || s3_xml_page_fed(page, (size_t)n) < 0)
            raw_die("listing");
        left -= (uint64_t)n;
    }
    if (s3_xml_page_finish(page) < 0)
        raw_die("listing");
    return page;
}

static void list_prefix(int fd, const char *host, const char *bucket, const char *prefix,
                        uint64_t *requests, uint64_t *bytes)
{
    struct buf request = {0}, query = {0};
    struct s3_xml_page *page;
    const char *more;

    do {
        buf_reset(&request);
        buf_printf(
            &request,
            "GET /%s?list-type=2&encoding-type=url&delimiter=%%2F&max-keys=1000&prefix=", bucket);
        text_percent_encode(&request, prefix, strlen(prefix), false);
        buf_add_str(&request, buf_str(&query));
        buf_printf(&request, " HTTP/1.1\r\nHost: %s\r\n\r\n", host);
        if (send(fd, request.data, request.len, MSG_NOSIGNAL) != (ssize_t)request.len)
            raw_die("send");
        page = receive_page(fd, bytes);
        (*requests)++;
        more = s3_xml_page_continuation(page);
        buf_reset(&query);
        if (more) {
            buf_add_str(&query, "&continuation-token=");
            text_percent_encode(&query, more, strlen(more), false);
        }
        s3_xml_page_free(page);
    } while (query.len);
    buf_free(&request);
    buf_free(&query);
}

void raw_list(const struct sockaddr_in *addr, const char *host, const char *bucket,
              const char *file, uint64_t *requests, uint64_t *bytes)
{
    int fd = raw_connect(addr);
    size_t n;
    char **prefixes = lines_read(file, &n);

    for (size_t i = 0; i < n; i++)
        list_prefix(fd, host, bucket, prefixes[i], requests, bytes);
}
