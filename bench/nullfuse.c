// SPDX-License-Identifier: Apache-2.0
// The least that a FUSE server can do: one thread, blocking reads of /dev/fuse, answers from
// memory that is there already. Its CPU time per GiB is the floor to compare a mount with, so it
// asks of the kernel what os2gd asks: the same INIT flags, 1 MiB requests, the same read-ahead.
//
//     nullfuse [--size 4G] [--files 1000] [--file-size 100K] [--direct-io]
//              [--read-ahead 1M] [--max-background 64] [--max-read 1M] DIR
//
// Mounts at DIR (as root): DIR/big of the size given, DIR/dir/f0 and so on of the small one.
// Prints "ready", serves until it is unmounted or gets SIGINT or SIGTERM, then prints
// "cpu_s SECONDS" and "read_bytes N".
#include "base/base.h"
#include "base/text.h"

#include <fcntl.h>
#include <getopt.h>
#include <linux/fuse.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/uio.h>
#include <unistd.h>

#define NODE_BIG   2
#define NODE_DIR   4
#define NODE_FILE0 16

// Newer than the system's header.
#define DIRECT_IO_ALLOW_MMAP (1ULL << 36)

struct server {
    uint64_t big_size, file_size, files;
    uint64_t readahead, max_read, max_background;
    bool direct_io;
    const char *dir;
    int fd;
    char *data; // max_read bytes
    uint64_t read_bytes;
};

static void fail(const char *what)
{
    fprintf(stderr, "nullfuse: %s: %s\n", what, strerror(errno));
    exit(1);
}

static void reply(struct server *s, uint64_t unique, int error, const void *data, size_t len)
{
    struct fuse_out_header h = {
        .len = (uint32_t)(sizeof(h) + len), .error = error, .unique = unique};
    struct iovec iov[] = {{&h, sizeof(h)}, {(void *)data, len}};

    if (writev(s->fd, iov, len ? 2 : 1) < 0 && errno != ENOENT && errno != ENODEV)
        fail("answer");
}

static bool attr_of(const struct server *s, uint64_t node, struct fuse_attr *a)
{
    bool dir = node == FUSE_ROOT_ID || node == NODE_DIR;

    *a = (struct fuse_attr){
        .ino = node,
        .mtime = 1000000000,
        .mode = dir ? S_IFDIR | 0755 : S_IFREG | 0644,
        .nlink = 1,
        .blksize = 4096,
    };
    if (node == NODE_BIG)
        a->size = s->big_size;
    else if (node >= NODE_FILE0 && node - NODE_FILE0 < s->files)
        a->size = s->file_size;
    else
        return dir;
    return true;
}

static uint64_t node_named(uint64_t parent, const char *name)
{
    if (parent == FUSE_ROOT_ID && !strcmp(name, "big"))
        return NODE_BIG;
    if (parent == FUSE_ROOT_ID && !strcmp(name, "dir"))
        return NODE_DIR;
    if (parent == NODE_DIR && name[0] == 'f')
        return NODE_FILE0 + strtoul(name + 1, NULL, 10);
    return 0;
}

static void on_init(struct server *s, const struct fuse_in_header *h, const struct fuse_init_in *in)
{
    uint64_t wanted = FUSE_ASYNC_READ | FUSE_ASYNC_DIO | FUSE_PARALLEL_DIROPS |
                      FUSE_DO_READDIRPLUS | FUSE_EXPLICIT_INVAL_DATA | FUSE_HAS_IOCTL_DIR |
                      FUSE_MAX_PAGES | FUSE_INIT_EXT | DIRECT_IO_ALLOW_MMAP;
    uint64_t offered = in->flags;
    struct fuse_init_out out = {
        .major = FUSE_KERNEL_VERSION,
        .minor = FUSE_KERNEL_MINOR_VERSION,
        .max_readahead = (uint32_t)s->readahead,
        .max_background = (uint16_t)s->max_background,
        .congestion_threshold = (uint16_t)(s->max_background / 4 * 3),
        .max_write = 4096,
        .time_gran = 1000000000,
        .max_pages = (uint16_t)(s->max_read / 4096),
    };

    if (offered & FUSE_INIT_EXT)
        offered |= (uint64_t)in->flags2 << 32;
    out.flags = (uint32_t)(offered & wanted);
    out.flags2 = (uint32_t)((offered & wanted) >> 32);
    reply(s, h->unique, 0, &out, sizeof(out));
}

static void on_lookup(struct server *s, const struct fuse_in_header *h, const char *name)
{
    struct fuse_entry_out out = {.entry_valid = 60, .attr_valid = 60};

    out.nodeid = node_named(h->nodeid, name);
    if (out.nodeid && !attr_of(s, out.nodeid, &out.attr))
        out.nodeid = 0;
    reply(s, h->unique, 0, &out, sizeof(out));
}

static void on_getattr(struct server *s, const struct fuse_in_header *h)
{
    struct fuse_attr_out out = {.attr_valid = 60};

    if (attr_of(s, h->nodeid, &out.attr))
        reply(s, h->unique, 0, &out, sizeof(out));
    else
        reply(s, h->unique, -ENOENT, NULL, 0);
}

static void on_open(struct server *s, const struct fuse_in_header *h)
{
    struct fuse_open_out out = {
        .fh = h->nodeid,
        .open_flags = FOPEN_KEEP_CACHE | (s->direct_io ? FOPEN_DIRECT_IO : 0),
    };

    reply(s, h->unique, 0, &out, sizeof(out));
}

static void on_read(struct server *s, const struct fuse_in_header *h, const struct fuse_read_in *in)
{
    struct fuse_attr a;
    uint64_t n = 0;

    attr_of(s, h->nodeid, &a);
    if (in->offset < a.size)
        n = MIN(MIN(in->size, a.size - in->offset), s->max_read);
    s->read_bytes += n;
    reply(s, h->unique, 0, s->data, n);
}

static void handle(struct server *s, const struct fuse_in_header *h)
{
    const void *arg = h + 1;

    switch (h->opcode) {
    case FUSE_READ:
        on_read(s, h, arg);
        break;
    case FUSE_LOOKUP:
        on_lookup(s, h, arg);
        break;
    case FUSE_OPEN:
    case FUSE_OPENDIR:
        on_open(s, h);
        break;
    case FUSE_RELEASE:
    case FUSE_RELEASEDIR:
    case FUSE_ACCESS:
        reply(s, h->unique, 0, NULL, 0);
        break;
    case FUSE_GETATTR:
        on_getattr(s, h);
        break;
    case FUSE_INIT:
        on_init(s, h, arg);
        break;
    case FUSE_FORGET:
    case FUSE_BATCH_FORGET:
    case FUSE_INTERRUPT:
        break;
    case FUSE_READDIR:
    case FUSE_READDIRPLUS:
        reply(s, h->unique, 0, NULL, 0);
        break; // no names are listed
    default:
        reply(s, h->unique, -ENOSYS, NULL, 0);
    }
}

static void serve(struct server *s)
{
    _Alignas(8) static char message[64 * KIB];

    for (;;) {
        ssize_t n = read(s->fd, message, sizeof(message));

        if (n > 0)
            handle(s, (const struct fuse_in_header *)message);
        else if (errno == ENODEV)
            return;
        else if (errno != EINTR && errno != ENOENT && errno != EAGAIN)
            fail("/dev/fuse");
    }
}

static void mount_it(struct server *s)
{
    char options[128];

    s->fd = open("/dev/fuse", O_RDWR | O_CLOEXEC);
    if (s->fd < 0)
        fail("/dev/fuse");
    snprintf(options, sizeof(options),
             "fd=%d,rootmode=40000,user_id=0,group_id=0,allow_other,"
             "max_read=%llu",
             s->fd, (unsigned long long)s->max_read);
    if (mount("nullfuse", s->dir, "fuse.nullfuse", MS_RDONLY | MS_NOSUID | MS_NODEV, options) < 0)
        fail(s->dir);
}

// The mount answers only while the main thread serves, so this is another: it raises the
// read-ahead, then waits for the signals that end the program.
static void *attend(void *arg)
{
    struct server *s = arg;
    struct stat st;
    char path[64];
    sigset_t set;
    FILE *f;
    int sig;

    if (stat(s->dir, &st) < 0)
        fail(s->dir);
    snprintf(path, sizeof(path), "/sys/class/bdi/%u:%u/read_ahead_kb", major(st.st_dev),
             minor(st.st_dev));
    f = fopen(path, "w");
    if (!f || fprintf(f, "%llu", (unsigned long long)(s->readahead / KIB)) < 0 || fclose(f))
        fail(path);
    puts("ready");
    fflush(stdout);
    sigemptyset(&set);
    sigaddset(&set, SIGINT);
    sigaddset(&set, SIGTERM);
    sigwait(&set, &sig);
    if (umount2(s->dir, MNT_DETACH) < 0)
        fail(s->dir);
    return NULL;
}

static void start_attending(struct server *s)
{
    pthread_t thread;
    sigset_t set;

    sigemptyset(&set);
    sigaddset(&set, SIGINT);
    sigaddset(&set, SIGTERM);
    pthread_sigmask(SIG_BLOCK, &set, NULL);
    errno = pthread_create(&thread, NULL, attend, s);
    if (errno)
        fail("thread");
}

static void print_usage_of_cpu(const struct server *s)
{
    struct rusage u;

    getrusage(RUSAGE_SELF, &u);
    printf("cpu_s %.3f\nread_bytes %llu\n",
           (double)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) +
               (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec) / 1e6,
           (unsigned long long)s->read_bytes);
}

static void parse(int argc, char **argv, struct server *s)
{
    static const struct option known[] = {
        {"size", required_argument, NULL, 's'},
        {"files", required_argument, NULL, 'n'},
        {"file-size", required_argument, NULL, 'f'},
        {"direct-io", no_argument, NULL, 'd'},
        {"read-ahead", required_argument, NULL, 'r'},
        {"max-background", required_argument, NULL, 'b'},
        {"max-read", required_argument, NULL, 'm'},
        {0},
    };
    uint64_t v = 0;
    int c;

    while ((c = getopt_long(argc, argv, "", known, NULL)) != -1) {
        if (c == '?' || (optarg && text_parse_size(optarg, &v) < 0))
            exit(2);
        switch (c) {
        case 's':
            s->big_size = v;
            break;
        case 'n':
            s->files = v;
            break;
        case 'f':
            s->file_size = v;
            break;
        case 'd':
            s->direct_io = true;
            break;
        case 'r':
            s->readahead = v;
            break;
        case 'b':
            s->max_background = v;
            break;
        case 'm':
            s->max_read = v;
            break;
        }
    }
    if (optind + 1 != argc) {
        fprintf(stderr, "usage: nullfuse [--size 4G] [--direct-io] DIR (see nullfuse.c)\n");
        exit(2);
    }
    s->dir = argv[optind];
}

int main(int argc, char **argv)
{
    struct server s = {
        .big_size = 4 * GIB,
        .file_size = 100 * KIB,
        .files = 1000,
        .readahead = MIB,
        .max_read = MIB,
        .max_background = 64,
    };

    parse(argc, argv, &s);
    s.data = aligned_alloc(4096, s.max_read);
    if (!s.data)
        fail("memory");
    memset(s.data, 0x5a, s.max_read); // present before it is measured
    mount_it(&s);
    start_attending(&s);
    serve(&s);
    print_usage_of_cpu(&s);
    free(s.data);
    return 0;
}
