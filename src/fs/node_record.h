// SPDX-License-Identifier: Apache-2.0
// The shared half of a node: a record of 96 bytes, with more of them chained behind it for what
// does not fit of its name (and, if that is text, its ETag). For nodes.c and node_record.c.
#pragma once

#include "fs/nodes.h"
#include "fs/table.h"

#define NODE_PAYLOAD      44
#define NODE_MORE_PAYLOAD 72

struct node_record {
    _Atomic uint8_t state; // enum node_kind; stored last
    _Atomic uint8_t flags;
    uint8_t name_len;
    uint8_t etag_kind;
    uint8_t etag_len; // ETAG_TEXT: bytes behind the name
    uint8_t unused;
    uint16_t etag_parts;
    uint32_t generation; // stays when the record is freed
    uint32_t parent;
    uint32_t more; // the record that holds the rest, or 0; of a free one: the next free one
    _Atomic uint32_t lookups; // UINT32_MAX: too many to count, never freed
    union {
        struct {
            uint64_t size;
            uint8_t md5[16];
            uint32_t mtime_s;
            char payload[NODE_PAYLOAD];
        };
        char more_payload[NODE_MORE_PAYLOAD];
    };
};
_Static_assert(sizeof(struct node_record) == 96, "kept in memory that outlives a worker");
_Static_assert(offsetof(struct node_record, payload) == 52, "no holes");

// Slot 0.
struct node_header {
    _Atomic uint64_t magic; // stored last
    int64_t created_s;
    char unused[80];
};
_Static_assert(sizeof(struct node_header) == sizeof(struct node_record), "takes a record's place");
#define NODE_MAGIC 0x6f73326e6f646533 // "os2node3"

static inline struct node_record *node_at(const struct table *t, uint32_t slot)
{
    return table_at(t, slot);
}

// How many further records a payload of len bytes needs.
static inline uint32_t node_more_records(size_t len)
{
    return len <= NODE_PAYLOAD
               ? 0
               : (uint32_t)((len - NODE_PAYLOAD + NODE_MORE_PAYLOAD - 1) / NODE_MORE_PAYLOAD);
}

// Copies len bytes at offset of the payload out. The chain has been checked.
void node_payload_read(const struct table *t, uint32_t slot, size_t offset, void *out, size_t len);
bool node_payload_equal(const struct table *t, uint32_t slot, size_t offset, const void *data,
                        size_t len);
// Fills r and the chain behind it (r->more and so on are linked already).
void node_payload_write(const struct table *t, uint32_t slot, const char *name, size_t name_len,
                        const char *text, size_t text_len);
// Whether a record found at start can be used: numbers in range, chain as long as it must be.
bool node_record_valid(const struct table *t, uint32_t slot);
