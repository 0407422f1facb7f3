// SPDX-License-Identifier: Apache-2.0
// Reads into leased pieces of the BAR, by way of .os2g/gdd. All leases are of one open file, whose
// ends one thread reaps while anything is under way.
#include "host/guest.h"

#include "host/error.h"
#include "wire/control.h"
#include "wire/ops.h"

#include <fcntl.h>
#include <linux/fuse.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define PCI_DEVICES "/sys/bus/pci/devices"
#define LEASE_ALIGN ((uint64_t)2 << 20) // as buffers are
#define REAPED      64

int guest_gdd_open(struct guest *g)
{
    char *path;
    int rc = 0;

    if (g->control.gdd_fd >= 0)
        return 0;
    path = xasprintf("%s/%s/%s", g->directory, OS2G_CONTROL_DIR, OS2G_GDD_FILE);
    g->control.gdd_fd = open(path, O_RDONLY | O_CLOEXEC);
    if (g->control.gdd_fd < 0)
        rc = client_fail_errno(-errno, path);
    free(path);
    return rc;
}

// --- the BAR ---

static bool says(const char *device, const char *file, const char *text)
{
    char *path = xasprintf(PCI_DEVICES "/%s/%s", device, file), line[16] = "";
    FILE *f = fopen(path, "re");
    bool same = f && fgets(line, sizeof(line), f) && !strcmp(line, text);

    if (f)
        fclose(f);
    free(path);
    return same;
}

// Maps the device's BAR 2 if it has this size. 0; -ENODEV; -errno.
static int map_bar(struct guest *g, const char *device, uint64_t size)
{
    char *path = xasprintf(PCI_DEVICES "/%s/resource2", device);
    int fd = open(path, O_RDWR | O_CLOEXEC), rc = 0;
    struct stat st;
    char *room;

    free(path);
    if (fd < 0)
        return -errno;
    if (fstat(fd, &st) < 0 || (uint64_t)st.st_size != size)
        rc = -ENODEV;
    // so that places in it are aligned here as they are there
    room = rc ? MAP_FAILED
              : mmap(NULL, size + LEASE_ALIGN, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (room != MAP_FAILED) {
        char *at = room + (LEASE_ALIGN - (uintptr_t)room % LEASE_ALIGN) % LEASE_ALIGN;

        if (at > room)
            munmap(room, (size_t)(at - room));
        munmap(at + size, LEASE_ALIGN - (size_t)(at - room));
        if (mmap(at, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 0) == MAP_FAILED) {
            rc = -errno;
            munmap(at, size);
        } else {
            g->control.bar = at;
            g->control.bar_size = size;
        }
    } else if (!rc) {
        rc = -errno;
    }
    close(fd);
    return rc;
}

// The memory of this size that a guest sees as the BAR of an ivshmem device.
static int find_bar(struct guest *g, uint64_t size)
{
    DIR *d = opendir(PCI_DEVICES);
    const struct dirent *e;
    int rc = -ENODEV;

    while (d && rc == -ENODEV && (e = readdir(d)))
        if (e->d_name[0] != '.' && says(e->d_name, "vendor", "0x1af4\n") &&
            says(e->d_name, "device", "0x1110\n"))
            rc = map_bar(g, e->d_name, size);
    if (d)
        closedir(d);
    return rc;
}

// --- leases ---

// The first place with room, aligned as buffers are; else wherever there is some.
static int lease(struct guest *g, struct os2g_gdd_lease *l)
{
    uint64_t size = l->size;
    int rc = 0;

    l->offset = OS2G_GDD_ANYWHERE;
    if (ioctl(g->control.gdd_fd, OS2G_IOC_GDD_LEASE, l) < 0)
        return -errno;
    if (l->offset % LEASE_ALIGN == 0)
        return 0;
    for (uint64_t at = 0; at + size <= l->memory_size; at += LEASE_ALIGN) {
        struct os2g_gdd_lease aligned = {.offset = at, .size = size};

        rc = ioctl(g->control.gdd_fd, OS2G_IOC_GDD_LEASE, &aligned) < 0 ? -errno : 0;
        if (rc == 0) {
            ioctl(g->control.gdd_fd, OS2G_IOC_GDD_UNLEASE, l);
            *l = aligned;
        }
        if (rc != -EBUSY)
            break;
    }
    return 0;
}

static int lease_failed(int rc)
{
    switch (rc) {
    case -ENXIO:
        return client_fail(rc, "the host's operator has declared no memory of this machine to be a "
                               "GPU's (gpu-memory)");
    case -ENOSPC:
        return client_fail(rc, "no room is left in the BAR, or %d pieces are leased",
                           OS2G_GDD_LEASES);
    case -ENODEV:
        return client_fail(rc, "no ivshmem device of this machine has the memory that is leased");
    default:
        return client_fail_errno(rc, "a lease of the BAR");
    }
}

static int lease_locked(struct guest *g, struct os2g_gdd_lease *l)
{
    int rc = guest_gdd_open(g);

    if (rc < 0)
        return rc;
    rc = lease(g, l);
    if (rc == 0 && !g->control.bar) {
        rc = find_bar(g, l->memory_size);
        if (rc < 0)
            ioctl(g->control.gdd_fd, OS2G_IOC_GDD_UNLEASE, l);
    }
    return rc < 0 ? lease_failed(rc) : 0;
}

int guest_memory_lease(struct transport *t, struct transport_memory **ret, void **ret_base,
                       uint64_t size)
{
    struct guest *g = guest_of(t);
    struct os2g_gdd_lease l = {.size = ALIGN_UP(size, (uint64_t)OS2G_GDD_ALIGN)};
    struct transport_memory *m;
    int rc;

    pthread_mutex_lock(&g->control.lock.mutex);
    rc = lease_locked(g, &l);
    pthread_mutex_unlock(&g->control.lock.mutex);
    if (rc < 0)
        return rc;
    m = xcalloc(1, sizeof(*m));
    m->bar = true;
    m->base = (char *)g->control.bar + l.offset;
    m->size = l.size;
    m->place = l.offset;
    m->forks = fork_count();
    memset(m->base, 0, m->size); // whoever had it before
    *ret = m;
    *ret_base = m->base;
    return 0;
}

void guest_memory_cut(struct transport *t, struct transport_memory *m)
{
    struct guest *g = guest_of(t);
    struct os2g_gdd_lease l = {.offset = m->place};

    // a parent's is the parent's to end
    if (m->forks == fork_count())
        ioctl(g->control.gdd_fd, OS2G_IOC_GDD_UNLEASE, &l);
}

// --- submitting ---

struct submission {
    struct os2g_gdd_submit head;
    struct os2g_gdd_entry e;
    char key[OS2G_KEY_MAX];
};

#define SLOT_BITS 16 // of a tag; the others tell a request from a later one in its slot

uint64_t guest_gdd_tag_locked(const struct guest *g, int slot)
{
    return g->locked.slots[slot].serial << SLOT_BITS | (unsigned)slot;
}

// What r asks for, as .os2g/gdd has it. The length, or -errno.
static int encode(struct guest *g, const struct transport_request *r, uint64_t tag,
                  struct submission *s)
{
    _Alignas(8) char in[TRANSPORT_IN_MAX];
    size_t len = guest_message(r, in);
    const struct fuse_read_in *read = (const void *)in;
    const struct os2g_fetch_in *fetch = (const void *)in;

    *s = (struct submission){.head = {.n = 1}};
    s->e.tag = tag;
    s->e.place = r->memory->place + r->memory_offset;
    s->e.len = r->data_len;
    if (r->opcode == FUSE_READ) {
        int rc = guest_file_id(g, read->fh, &s->e.id);

        if (rc < 0)
            return rc;
        s->e.offset = read->offset;
        s->e.len = MIN(s->e.len, (uint64_t)read->size);
    } else {
        if (fetch->key_len > sizeof(s->key) || fetch->key_len > len - sizeof(*fetch))
            return -EINVAL;
        s->e.key_len = fetch->key_len;
        memcpy(s->key, in + sizeof(*fetch), fetch->key_len);
    }
    return (int)(offsetof(struct submission, key) + ALIGN_UP(s->e.key_len, 8u));
}

// --- slots ---

static void end_slot_locked(struct guest *g, unsigned slot, int error, uint32_t out, uint64_t data)
{
    struct guest_slot *s = &g->locked.slots[slot];
    struct transport_request *r = s->request;

    *s = (struct guest_slot){.serial = s->serial + 1};
    guest_end_locked(g, r, error, out, data);
}

// Hands what is in the slot to the daemon; once more, if the worker of it that took it has died
// since. The lock is given back meanwhile, and what was in the slot may have ended then.
static void send_locked(struct guest *g, unsigned slot)
{
    struct guest_slot *at = &g->locked.slots[slot];
    struct transport_request *r = at->request;
    uint64_t serial = at->serial, tag = guest_gdd_tag_locked(g, (int)slot);
    int rc;

    do {
        struct submission s;

        at->epoch = 0;
        pthread_mutex_unlock(&g->locked.lock.mutex);
        rc = encode(g, r, tag, &s);
        if (rc > 0)
            rc = ioctl(g->control.gdd_fd, OS2G_IOC_GDD_SUBMIT((unsigned)rc), &s) < 0 ? -errno : 0;
        pthread_mutex_lock(&g->locked.lock.mutex);
        if (at->serial != serial)
            return;
        at->epoch = rc == 0 ? s.head.epoch : 0;
    } while (rc == 0 && at->epoch < g->locked.epoch);
    if (rc < 0)
        end_slot_locked(g, slot, rc, 0, 0);
    else
        pthread_cond_signal(&g->locked.reap);
}

void guest_gdd_submit(struct guest *g, struct transport_request *r)
{
    unsigned slot = 0;

    pthread_mutex_lock(&g->locked.lock.mutex);
    while (g->locked.slots[slot].request) // there are as many as requests
        slot++;
    g->locked.slots[slot].request = r;
    r->slot = (int)slot;
    send_locked(g, slot);
    pthread_mutex_unlock(&g->locked.lock.mutex);
}

void guest_gdd_cancel(struct guest *g, uint64_t tag)
{
    struct os2g_gdd_cancel c = {.tag = tag};

    // if it has ended meanwhile there is nothing of that name
    ioctl(g->control.gdd_fd, OS2G_IOC_GDD_CANCEL, &c);
}

// --- the reaper ---

struct reaped {
    struct os2g_gdd_reap head;
    struct os2g_gdd_completion c[REAPED];
};

static bool any_taken_locked(const struct guest *g)
{
    for (unsigned i = 0; i < g->depth; i++)
        if (g->locked.slots[i].epoch)
            return true;
    return false;
}

static void end_one_locked(struct guest *g, const struct os2g_gdd_completion *c)
{
    unsigned slot = (unsigned)(c->tag & ((1u << SLOT_BITS) - 1));
    struct transport_request *r = slot < g->depth && c->tag == guest_gdd_tag_locked(g, (int)slot)
                                      ? g->locked.slots[slot].request
                                      : NULL;
    int error = (int)MIN(c->result, (int64_t)0);
    uint32_t out = 0;

    if (!r)
        return;
    if (r->opcode == OS2G_OP_FETCH && r->out_len >= sizeof(struct os2g_fetch_out)) {
        *(struct os2g_fetch_out *)r->out = (struct os2g_fetch_out){.size = c->size};
        out = sizeof(struct os2g_fetch_out);
    }
    // the memory went away, or the request was cancelled: -ENXIO says so of one that came too late
    if (error == -ENXIO)
        error = -ECANCELED;
    end_slot_locked(g, slot, error, out, error ? 0 : (uint64_t)c->result);
}

// What a worker before this one had taken is lost.
static void send_again_locked(struct guest *g)
{
    for (unsigned i = 0; i < g->depth; i++)
        if (g->locked.slots[i].epoch && g->locked.slots[i].epoch < g->locked.epoch)
            send_locked(g, i);
}

static void end_all_locked(struct guest *g, int error)
{
    for (unsigned i = 0; i < g->depth; i++)
        if (g->locked.slots[i].epoch)
            end_slot_locked(g, i, error, 0, 0);
}

void *guest_reaper(void *arg)
{
    struct guest *g = arg;
    struct reaped r;
    int rc;

    pthread_mutex_lock(&g->locked.lock.mutex);
    while (!g->locked.stopping) {
        if (!any_taken_locked(g)) {
            pthread_cond_wait(&g->locked.reap, &g->locked.lock.mutex);
            continue;
        }
        pthread_mutex_unlock(&g->locked.lock.mutex);
        r.head = (struct os2g_gdd_reap){.min = 1, .timeout_ms = 1000};
        rc = ioctl(g->control.gdd_fd, OS2G_IOC_GDD_REAP(sizeof(r)), &r) < 0 ? -errno : 0;
        pthread_mutex_lock(&g->locked.lock.mutex);
        for (uint32_t i = 0; rc == 0 && i < MIN(r.head.n, (uint32_t)REAPED); i++)
            end_one_locked(g, &r.c[i]);
        if (rc == 0 && r.head.epoch != g->locked.epoch) {
            g->locked.epoch = r.head.epoch;
            send_again_locked(g);
        }
        if (rc < 0 && rc != -EINTR)
            end_all_locked(g, rc == -ENODEV ? -ENOTCONN : rc); // the mount has gone
    }
    g->locked.reaper = false;
    pthread_cond_broadcast(&g->locked.left);
    pthread_mutex_unlock(&g->locked.lock.mutex);
    return NULL;
}
