// SPDX-License-Identifier: Apache-2.0
// A device (the worker's half) in front of the file system in memory, and hosts of it. The device
// runs on a loop of its own; reads are answered by another.
#pragma once

#include "../devfuse/memfs.h"
#include "driver.h"

#include "front/vhost/vhost.h"
#include "wire/ops.h"

#include <linux/fuse.h>
#include <pthread.h>
#include <sys/types.h>

#define EVENTS 64

struct device {
    struct loop *loop, *data;
    struct fs *fs;
    struct vhost *vhost;
    uint64_t seq;
    struct {
        pthread_mutex_t mutex;
        struct vhost_event events[EVENTS];
        unsigned n;
    } locked;
};

void device_init(struct device *d, const struct memfs_options *o);
void device_fini(struct device *d); // its sessions have been removed
void device_answer_held(struct device *d);
// Gives a command; fd stays the caller's (it is duplicated). Returns its seq.
uint64_t device_command(struct device *d, struct vhost_command c, int fd);
// Waits for the command's DONE; its value.
uint64_t device_done(struct device *d, uint64_t seq);
bool device_is_done(struct device *d, uint64_t seq);
void device_do(struct device *d, struct vhost_command c, int fd); // both
// Waits for the session's BAD; its text, valid until the next call.
const char *device_bad(struct device *d, uint32_t session);
struct vhost_stats device_stats(struct device *d);

// One host with one queue, and its memory. Requests lie in slots of the memory.
#define HOST_SLOTS      14
#define HOST_SLOT_BYTES ((uint64_t)256 * 1024)
#define HOST_IN_BYTES   ((uint64_t)32 * 1024)
#define HOST_OUT_BYTES  (HOST_SLOT_BYTES - HOST_IN_BYTES)

struct host {
    struct device *device;
    uint32_t session;
    unsigned queue;
    struct driver driver;
    int memory_fd, kick_fd, call_fd;
    uint32_t used[HOST_SLOTS];
    bool answered[HOST_SLOTS];
    uint32_t starts;
    uint64_t unique;
};

void host_make(struct host *h, uint32_t session); // its memory, without a device
// SESSION_ADD, REGION_ADD, QUEUE_START. resumed: to a worker after the first, the start of before.
void host_attach(struct host *h, struct device *d, bool resumed);
void host_init(struct host *h, struct device *d, uint32_t session); // both
void host_start(struct host *h, uint32_t base, bool resumed);
uint64_t host_stop(struct host *h); // the base
void host_remove(struct host *h);   // SESSION_REMOVE
void host_fini(struct host *h);

// A device of its own in a process of its own, to be killed. resumed: as of host_attach.
pid_t host_worker_start(struct host *h, const struct memfs_options *o, bool resumed);
void host_worker_kill(pid_t worker);

// A request into slot i: its message and room for out_len bytes of answer (0: none). Kicks.
void host_send(struct host *h, unsigned i, uint32_t opcode, uint64_t node, const void *arg,
               size_t len, uint32_t out_len);
// The same with the room given by the descriptors already made from 2 * i + 1 on.
void host_send_to(struct host *h, unsigned i, uint32_t opcode, uint64_t node, const void *arg,
                  size_t len);
// Waits for its answer.
const struct fuse_out_header *host_wait(struct host *h, unsigned i);
bool host_answered(struct host *h, unsigned i);
const void *host_body(struct host *h, unsigned i);
char *host_out(struct host *h, unsigned i); // where the answer comes
uint64_t host_out_addr(const struct host *h, unsigned i);

// Ordinary requests, through slot 0; 0 where the answer is an error.
void host_mount(struct host *h); // INIT
void host_hello(struct host *h);
uint64_t host_lookup(struct host *h, uint64_t parent, const char *name);
uint64_t host_open(struct host *h, uint64_t node);
// A READ that nobody waits for, into slot i.
void host_read(struct host *h, unsigned i, uint64_t handle, uint64_t offset, uint32_t size);
