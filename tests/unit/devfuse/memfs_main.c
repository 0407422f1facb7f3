// SPDX-License-Identifier: Apache-2.0
// Mounts the file system in memory, for measuring this wire beside bench/nullfuse:
//
//     memfs [--size 4G] [--files 1000] [--file-size 100K] [--direct-io] [--data-loop]
//           [--read-ahead 1M] [--max-background 64] [--max-read 1M] DIR
//
// Prints "ready", serves until unmounted, then prints the CPU time it took.
#include "base/log.h"
#include "base/text.h"
#include "front/devfuse/devfuse.h"
#include "memfs.h"

#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <unistd.h>

struct options {
    struct memfs_options fs;
    struct devfuse_config wire;
    uint64_t readahead;
    bool data_loop;
    const char *dir;
};

static uint64_t size_arg(const char *s)
{
    uint64_t v;

    if (text_parse_size(s, &v) < 0) {
        fprintf(stderr, "memfs: %s is not a size\n", s);
        exit(2);
    }
    return v;
}

static void parse(int argc, char **argv, struct options *o)
{
    static const struct option known[] = {
        {"size", required_argument, NULL, 's'},
        {"files", required_argument, NULL, 'n'},
        {"file-size", required_argument, NULL, 'f'},
        {"direct-io", no_argument, NULL, 'd'},
        {"data-loop", no_argument, NULL, 'l'},
        {"read-ahead", required_argument, NULL, 'r'},
        {"max-background", required_argument, NULL, 'b'},
        {"max-read", required_argument, NULL, 'm'},
        {0},
    };
    int c;

    while ((c = getopt_long(argc, argv, "", known, NULL)) != -1) {
        switch (c) {
        case 's':
            o->fs.big_size = size_arg(optarg);
            break;
        case 'n':
            o->fs.files = (unsigned)size_arg(optarg);
            break;
        case 'f':
            o->fs.file_size = size_arg(optarg);
            break;
        case 'd':
            o->fs.direct_io = true;
            break;
        case 'l':
            o->data_loop = true;
            break;
        case 'r':
            o->readahead = size_arg(optarg);
            break;
        case 'b':
            o->wire.max_background = (uint16_t)size_arg(optarg);
            break;
        case 'm':
            o->wire.max_read = (uint32_t)size_arg(optarg);
            break;
        default:
            exit(2);
        }
    }
    if (optind + 1 != argc) {
        fprintf(stderr, "usage: memfs [options] DIR\n");
        exit(2);
    }
    o->dir = argv[optind];
}

static void on_gone(void *arg)
{
    loop_quit(arg);
}

// Asks the mount for its attributes, so not on the loop that answers.
static void *raise_readahead(void *arg)
{
    const struct options *o = arg;
    int rc = devfuse_set_readahead(o->dir, o->readahead);

    if (rc < 0)
        fprintf(stderr, "memfs: the read-ahead stays as it is: %d\n", rc);
    puts("ready");
    fflush(stdout);
    return NULL;
}

static int serve(struct options *o, struct loop *l)
{
    struct devfuse *d;
    struct rusage u;
    pthread_t thread;
    int rc = devfuse_new(&d, l, &o->wire);

    if (rc < 0) {
        fprintf(stderr, "memfs: %d\n", rc);
        return 1;
    }
    pthread_create(&thread, NULL, raise_readahead, o);
    loop_run(l);
    pthread_join(thread, NULL);
    devfuse_free(d);
    getrusage(RUSAGE_SELF, &u);
    printf("cpu_s %.3f\n", (double)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) +
                               (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec) / 1e6);
    return 0;
}

int main(int argc, char **argv)
{
    struct options o = {
        .fs = {.big_size = 4 * GIB, .files = 1000, .file_size = 100000},
        .wire = {.ops = &memfs_ops, .slots_fd = -1, .max_background = 64},
        .readahead = MIB,
    };
    struct devfuse_mount_options mount = {.source = "memfs"};
    struct loop *l;
    char *error = NULL;
    int rc;

    parse(argc, argv, &o);
    mount.max_read = o.wire.max_read;
    o.wire.max_readahead = (uint32_t)o.readahead;
    if (loop_new(&l, "main") < 0 || (o.data_loop && loop_start(&o.fs.data_loop, "data") < 0))
        return 1;
    o.wire.fs = memfs_new(&o.fs);
    o.wire.gone = on_gone;
    o.wire.arg = l;
    o.wire.fuse_fd = devfuse_mount(o.dir, &mount, &error);
    if (o.wire.fuse_fd < 0) {
        fprintf(stderr, "memfs: %s\n", error);
        return 1;
    }
    rc = serve(&o, l);
    close(o.wire.fuse_fd);
    loop_stop(o.fs.data_loop);
    loop_stop(l);
    memfs_free(o.wire.fs);
    return rc;
}
