// SPDX-License-Identifier: Apache-2.0
// What a device writes into the memory of libos2g: first byte 0: a list of names; 255: what it says
// that it serves; else how many requests are under way, then what the used ring holds from its
// index on, then what lies in the slots.
#include "host/dirents.h"
#include "host/source.h"
#include "host/vhost_ring.h"
#include "host/vhost_slots.h"

#include <stdlib.h>
#include <string.h>

#define SIZE    16
#define OUT_LEN 8
#define DATA    1000

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void names(const uint8_t *data, size_t size)
{
    struct dirent_plus d;
    // of its own length: what is read beyond it is noticed
    uint8_t *bytes = malloc(size ? size : 1);

    memcpy(bytes, data, size);
    for (size_t at = 0, n; at < size; at += n) {
        n = dirents_take(bytes + at, size - at, &d);
        if (!n)
            break;
        if (n > size - at || !d.name[0] || strlen(d.name) > 255)
            abort();
    }
    free(bytes);
}

static void answers(unsigned n, const uint8_t *data, size_t size)
{
    struct slots slots = {calloc(1, slots_bytes(SIZE, 0)), 1 << 20, SIZE, 0};
    void *memory = aligned_alloc(4096, 4096);
    size_t used = MIN(size, 2 + SIZE * sizeof(struct vring_used_elem));
    struct slot_message m = {.head = {.unique = 1}, .out_len = OUT_LEN, .data_len = DATA};
    struct slot_answer a;
    uint32_t id, len;
    struct ring r;

    memset(memory, 0, 4096);
    ring_init(&r, memory, SIZE);
    for (unsigned i = 0; i < n; i++) {
        slots_fill(&slots, i, &r, &m);
        ring_add(&r, (uint16_t)i);
    }
    memcpy(&r.v.used->idx, data, used);
    // the device can write everywhere, also into the tables
    memcpy(slots.memory, data + used, MIN(size - used, slots_bytes(SIZE, 0)));
    for (unsigned i = 0; ring_take(&r, &id, &len) > 0; i++) {
        if (i >= n)
            abort();
        if (id < SIZE && slots_answer(&slots, id, 1, OUT_LEN, DATA, &a) == 0 &&
            (a.out_got > OUT_LEN || a.data_got > DATA || a.error > 0 ||
             (const uint8_t *)a.out + a.out_got > slots.memory + slots_bytes(SIZE, 0)))
            abort();
    }
    free(memory);
    free(slots.memory);
}

static void source(const uint8_t *data, size_t size)
{
    struct source told = {0}, asked = {"s3://bucket/a/b/", "http://server"};
    // of its own length: what is read beyond it is noticed
    char *bytes = malloc(size ? size : 1);
    const char *below;

    memcpy(bytes, data, size);
    if (source_read(&told, bytes, size) == 0 && told.url) {
        if (strlen(told.url) + strlen(told.endpoint) + 2 != size)
            abort();
        below = source_below(&asked, &told);
        if (below && strlen(told.url) + strlen(below) != strlen(asked.url))
            abort();
        free(source_text(&told));
    }
    source_fini(&told);
    free(bytes);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (!size)
        return 0;
    if (data[0] == 0)
        names(data + 1, size - 1);
    else if (data[0] == 255)
        source(data + 1, size - 1);
    else
        answers(data[0] % (SIZE + 1), data + 1, size - 1);
    return 0;
}
