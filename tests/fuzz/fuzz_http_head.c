// SPDX-License-Identifier: Apache-2.0
// The first byte chooses: a response's head, a request's head, or a chunked body; the rest is it.
// The response's body, too, is decoded when its head says chunked.
#include "net/http_head.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

// Decodes to the end in pieces whose lengths follow from the data; checks what must hold.
static void decode(const char *s, size_t len)
{
    struct http_chunked c = {0};
    size_t pos = 0;

    while (pos < len && !c.done) {
        size_t n = MIN((size_t)(unsigned char)s[pos] % 37 + 1, len - pos);
        ssize_t took = (ssize_t)n;

        if (c.data_left) {
            took = (ssize_t)MIN(c.data_left, (uint64_t)n);
            http_chunked_took(&c, (uint64_t)took);
        } else {
            took = http_chunked_feed(&c, s + pos, n);
            if (took < 0)
                return;
        }
        if (took == 0 || (size_t)took > n)
            abort();
        pos += (size_t)took;
    }
}

static void parse(enum http_kind kind, char *s, size_t len)
{
    static struct http_head head;
    ssize_t n = http_head_parse(&head, kind, s, len);

    if (n > (ssize_t)len || head.n_headers > HTTP_MAX_HEADERS)
        abort();
    if (n <= 0)
        return;
    for (size_t i = 0; i < head.n_headers; i++) {
        const char *end = head.headers[i].value + strlen(head.headers[i].value);

        if (head.headers[i].name < s || end >= s + n)
            abort();
    }
    if (head.chunked)
        decode(s + n, len - (size_t)n);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *copy;

    if (size < 1)
        return 0;
    copy = xmalloc(size - 1);
    memcpy(copy, data + 1, size - 1);
    if (data[0] % 3 == 2)
        decode(copy, size - 1);
    else
        parse(data[0] % 3 ? HTTP_REQUEST : HTTP_RESPONSE, copy, size - 1);
    free(copy);
    return 0;
}
