// SPDX-License-Identifier: Apache-2.0
#include "fs/node_record.h"

#include <string.h>

// The piece of the payload that begins at offset: where it lies, and how many bytes of it follow.
static char *piece(const struct table *t, uint32_t slot, size_t offset, size_t *ret_len)
{
    struct node_record *r = node_at(t, slot);

    if (offset < NODE_PAYLOAD) {
        *ret_len = NODE_PAYLOAD - offset;
        return r->payload + offset;
    }
    offset -= NODE_PAYLOAD;
    for (r = node_at(t, r->more); offset >= NODE_MORE_PAYLOAD; offset -= NODE_MORE_PAYLOAD)
        r = node_at(t, r->more);
    *ret_len = NODE_MORE_PAYLOAD - offset;
    return r->more_payload + offset;
}

void node_payload_read(const struct table *t, uint32_t slot, size_t offset, void *out, size_t len)
{
    while (len) {
        size_t n;
        const char *p = piece(t, slot, offset, &n);

        n = MIN(n, len);
        memcpy(out, p, n);
        out = (char *)out + n;
        offset += n;
        len -= n;
    }
}

bool node_payload_equal(const struct table *t, uint32_t slot, size_t offset, const void *data,
                        size_t len)
{
    while (len) {
        size_t n;
        const char *p = piece(t, slot, offset, &n);

        n = MIN(n, len);
        if (memcmp(p, data, n) != 0)
            return false;
        data = (const char *)data + n;
        offset += n;
        len -= n;
    }
    return true;
}

static void payload_put(const struct table *t, uint32_t slot, size_t offset, const char *data,
                        size_t len)
{
    while (len) {
        size_t n;
        char *p = piece(t, slot, offset, &n);

        n = MIN(n, len);
        memcpy(p, data, n);
        data += n;
        offset += n;
        len -= n;
    }
}

void node_payload_write(const struct table *t, uint32_t slot, const char *name, size_t name_len,
                        const char *text, size_t text_len)
{
    payload_put(t, slot, 0, name, name_len);
    payload_put(t, slot, name_len, text, text_len);
}

bool node_record_valid(const struct table *t, uint32_t slot)
{
    const struct node_record *r = node_at(t, slot);
    uint32_t more = r->more;

    if (r->etag_kind > ETAG_TEXT || (r->etag_len && r->etag_kind != ETAG_TEXT) ||
        (r->name_len == 0) != (slot == NODE_ROOT))
        return false;
    if (slot != NODE_ROOT && (r->parent == NODE_NONE || r->parent >= t->n || r->parent == slot))
        return false;
    for (uint32_t i = node_more_records((size_t)r->name_len + r->etag_len); i; i--) {
        if (more <= NODE_FIXED_LAST || more >= t->n || node_at(t, more)->state != NODE_MORE)
            return false;
        more = node_at(t, more)->more;
    }
    return true;
}
