// SPDX-License-Identifier: Apache-2.0
#include "front/vhost/session_memory.h"

#include "front/vhost/vhost.h"

#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#define SESSION_MAGIC   0x7373657366736f76ULL // "vosfsess"
#define SESSION_VERSION 1
#define PAGE            4096

#define HEAD_BYTES ALIGN_UP(sizeof(struct session_head), PAGE)
#define LOGS_BYTES ALIGN_UP(sizeof(struct virtq_log) * VHOST_QUEUES, PAGE)

uint64_t session_memory_holdings_offset(void)
{
    return HEAD_BYTES + LOGS_BYTES;
}

size_t vhost_session_bytes(void)
{
    return session_memory_holdings_offset();
}

// magic comes last: a head that is half made is made again.
static int make_head(struct session_head *h)
{
    h->version = SESSION_VERSION;
    h->queues = VHOST_QUEUES;
    if (getrandom(&h->unique_key, sizeof(h->unique_key), 0) != sizeof(h->unique_key))
        return -EIO;
    h->unique_key |= 1; // 0 would mean none
    __atomic_store_n(&h->magic, SESSION_MAGIC, __ATOMIC_RELEASE);
    return 0;
}

static int check_head(const struct session_head *h)
{
    return h->magic == SESSION_MAGIC && h->version == SESSION_VERSION &&
                   h->queues == VHOST_QUEUES && h->unique_key
               ? 0
               : -EINVAL;
}

int session_memory_open(struct session_memory *m, int fd)
{
    size_t size = vhost_session_bytes();
    struct stat st;
    void *p;
    int rc = 0;

    *m = (struct session_memory){.fd = fd};
    if (fstat(fd, &st) < 0 || ((uint64_t)st.st_size < size && ftruncate(fd, (off_t)size) < 0))
        rc = -errno;
    p = rc < 0 ? MAP_FAILED : mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (rc == 0 && p == MAP_FAILED)
        rc = -errno;
    if (rc == 0) {
        m->head = p;
        m->logs = (struct virtq_log *)((char *)p + HEAD_BYTES);
        rc = m->head->magic ? check_head(m->head) : make_head(m->head);
    }
    if (rc < 0)
        session_memory_close(m);
    return rc;
}

void session_memory_close(struct session_memory *m)
{
    if (m->head)
        munmap(m->head, vhost_session_bytes());
    if (m->fd >= 0)
        close(m->fd);
    *m = (struct session_memory){.fd = -1};
}
