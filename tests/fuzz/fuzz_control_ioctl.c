// SPDX-License-Identifier: Apache-2.0
// ioctls on the control files of a mount, as programs and guests send them: plans on .os2g/control
// (wire/control.h), leases and reads on .os2g/gdd (wire/gdd.h). The file system is a real one, on
// doubles of the store and the cache.
//
// Input: messages, each one byte (which ioctl), two bytes of length and that many bytes. Plans are
// filled up with zeroes to the length of theirs.
#include "../unit/fs/world.h"

#include "cache/dest.h"
#include "fs/nodes.h"
#include "wire/control.h"
#include "wire/gdd.h"

#include <stdlib.h>
#include <string.h>

#define MEMORY   (1 << 20)
#define MESSAGES 12 // fewer than the host's requests

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void must(bool ok)
{
    if (!ok)
        abort();
}

// --- GPU memory ---

static uint8_t memory[MEMORY];
static unsigned landings;

struct landing {
    struct cache_dest dest;
    struct iovec iov;
};

static int put(struct cache_dest *d, uint64_t at, const struct iovec *iov, int n,
               struct cache_put *p)
{
    for (int i = 0; i < n; i++) {
        must(at <= d->len && iov[i].iov_len <= d->len - at);
        memcpy((uint8_t *)d->iov[0].iov_base + at, iov[i].iov_base, iov[i].iov_len);
        at += iov[i].iov_len;
    }
    return d->cut ? -ECANCELED : 0;
}

static const struct cache_dest_ops dest_ops = {.put = put};

static int gpu_size(struct fs_gpu *g, uint64_t *ret)
{
    *ret = MEMORY;
    return 0;
}

static int gpu_landing_new(struct fs_gpu *g, uint64_t offset, uint64_t len, struct cache_dest **ret)
{
    struct landing *l;

    if (offset > MEMORY || len > MEMORY - offset)
        return -EFAULT;
    l = xcalloc(1, sizeof(*l));
    l->iov = (struct iovec){memory + offset, len};
    l->dest = (struct cache_dest){
        .ops = &dest_ops, .len = len, .direct = true, .iov = &l->iov, .n_iov = 1};
    landings++;
    *ret = &l->dest;
    return 0;
}

static void gpu_landing_free(struct cache_dest *d)
{
    landings--;
    free(container_of(d, struct landing, dest));
}

static bool gpu_holds_file(struct fs_gpu *g, uint64_t handle)
{
    return true;
}

static struct fs_gpu gpu = {.size = gpu_size,
                            .landing_new = gpu_landing_new,
                            .landing_free = gpu_landing_free,
                            .holds_file = gpu_holds_file,
                            .host = 1,
                            .checks_modes = true};

// --- requests ---

static uint64_t open_node(uint64_t node)
{
    struct host_request *r = host_begin();

    r->fs.gpu = &gpu;
    fs_ops()->open(world.fs, &r->fs, node, 0);
    host_wait(r);
    must(r->answer == ANSWER_OPENED);
    return r->opened.handle;
}

static uint32_t command_of(uint8_t which, size_t len)
{
    switch (which % 8) {
    case 0:
    case 1:
        return OS2G_IOC_PLAN;
    case 2:
        return OS2G_IOC_GDD_LEASE;
    case 3:
        return OS2G_IOC_GDD_UNLEASE;
    case 4:
        return OS2G_IOC_GDD_SUBMIT(len);
    case 5:
        return OS2G_IOC_GDD_REAP(len);
    case 6:
        return OS2G_IOC_GDD_CANCEL;
    default:
        return OS2G_IOC_GDD_ID;
    }
}

// Without the bytes that a program would send beyond what it filled in.
static struct host_request *send_ioctl(uint64_t handle, uint32_t cmd, const uint8_t *data,
                                       size_t len, size_t message_len)
{
    struct host_request *r = host_begin();
    uint8_t *message = malloc(message_len ? message_len : 1); // so that reading beyond it is seen

    must(message != NULL);
    memset(message, 0, message_len);
    memcpy(message, data, MIN(len, message_len));
    r->fs.gpu = &gpu;
    fs_ops()->ioctl(world.fs, &r->fs, NODE_CONTROL_FILE, handle, cmd, message, message_len,
                    message_len);
    // what comes later must not look at the message any more
    free(message);
    world_run();
    return r;
}

static void start(void)
{
    world_begin();
    for (unsigned i = 0; i < 4; i++) {
        char key[] = "d/f0";

        key[3] += (char)i;
        world_put(key, 1000 * (i + 1), ETAG_1);
    }
    world_put("d/large", 3 << 20, ETAG_1);
    world_start();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct host_request *sent[MESSAGES];
    uint64_t control, file;
    unsigned n = 0;

    if (!world.fs)
        start();
    control = open_node(NODE_CONTROL_FILE);
    file = open_node(NODE_GDD_FILE);
    while (size >= 3 && n < MESSAGES) {
        size_t len = data[1] | (size_t)(data[2] & 0x3f) << 8;
        bool plan = data[0] % 8 < 2;

        len = MIN(len, size - 3);
        sent[n++] = send_ioctl(plan ? control : file, command_of(data[0], len), data + 3, len,
                               plan ? sizeof(struct os2g_plan_request) : len);
        data += 3 + len;
        size -= 3 + len;
    }
    host_release(control);
    host_release(file);
    world_run();
    for (unsigned i = 0; i < n; i++)
        must(sent[i]->answer == ANSWER_IOCTL || sent[i]->answer == ANSWER_ERROR);
    must(landings == 0);
    return 0;
}
