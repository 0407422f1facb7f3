// SPDX-License-Identifier: Apache-2.0
#include "front/vhost/eventfd.h"

#include <fcntl.h>
#include <linux/aio_abi.h>
#include <poll.h>
#include <pthread.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

// There is no write() to an eventfd that surely returns at once. But the kernel adds to one itself
// when a request of its asynchronous I/O has completed, and that never waits: so a poll is asked
// for that is true from the beginning, with the host's eventfd to be told of it.
static struct {
    aio_context_t context; // 0: there is none to be had
    int readable;          // an eventfd that nobody empties
} aio;

#define EVENTS 128 // completions that wait to be taken away
#define TRIES  100

static void aio_init(void)
{
    aio.readable = eventfd(1, EFD_CLOEXEC);
    if (aio.readable < 0 || syscall(SYS_io_setup, EVENTS, &aio.context) < 0)
        aio.context = 0;
}

static int submit(int fd)
{
    struct iocb request = {
        .aio_lio_opcode = IOCB_CMD_POLL,
        .aio_fildes = (uint32_t)aio.readable,
        .aio_buf = POLLIN,
        .aio_flags = IOCB_FLAG_RESFD,
        .aio_resfd = (uint32_t)fd,
    };
    struct iocb *list = &request;

    return syscall(SYS_io_submit, aio.context, 1, &list) == 1 ? 0 : -errno;
}

// Where the kernel has no asynchronous I/O: the best that is left.
static int write_one(int fd)
{
    uint64_t one = 1;
    int flags = fcntl(fd, F_GETFL);

    if (flags < 0 || fcntl(fd, F_SETFL, flags | O_NONBLOCK) < 0)
        return -errno;
    return write(fd, &one, sizeof(one)) < 0 && errno != EAGAIN ? -errno : 0;
}

int vhost_eventfd_signal(int fd)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    struct io_event done[EVENTS];
    int rc;

    pthread_once(&once, aio_init);
    if (!aio.context)
        return write_one(fd);
    rc = submit(fd);
    for (int i = 0; rc == -EAGAIN && i < TRIES; i++) {
        // full of completions, which say nothing; another thread may be faster with the room
        syscall(SYS_io_getevents, aio.context, 0L, (long)EVENTS, done, NULL);
        rc = submit(fd);
    }
    return rc;
}

bool vhost_eventfd_take(int fd)
{
    uint64_t n;
    struct iovec iov = {&n, sizeof(n)};
    ssize_t got = preadv2(fd, &iov, 1, -1, RWF_NOWAIT);

    return got == sizeof(n) || (got < 0 && (errno == EAGAIN || errno == EINTR));
}
