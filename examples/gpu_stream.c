// SPDX-License-Identifier: Apache-2.0
// gpu_stream: all objects of a directory, in GPU memory (or host memory, where there is no GPU),
// several under way at a time.
//
//   cc gpu_stream.c $(pkg-config --cflags --libs os2g) -o gpu_stream
//   ./gpu_stream s3://bucket/train/ [--memory host]
#include <err.h>
#include <errno.h>
#include <os2g/os2g.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SLOTS     16 // objects under way, of up to
#define SLOT_SIZE ((size_t)8 << 20)

static char **names;
static size_t n_names;

static int add_name(void *arg, const char *name, const struct os2g_stat *st)
{
    if (st->directory)
        return 0;
    names = realloc(names, (n_names + 1) * sizeof(*names));
    if (!names || !(names[n_names++] = strdup(name)))
        err(1, NULL);
    return 0;
}

static void begin(struct os2g_batch *batch, void *base, size_t slot, const char *key)
{
    struct os2g_io io = {.kind = OS2G_IO_FETCH,
                         .key = key,
                         .buffer_base = base,
                         .buffer_offset = (off_t)(slot * SLOT_SIZE),
                         .size = SLOT_SIZE,
                         .cookie = (void *)slot};

    if (os2g_batch_submit(batch, &io, 1) < 0)
        errx(1, "%s: %s", key, os2g_last_error());
}

int main(int argc, char **argv)
{
    enum os2g_memory memory =
        argc == 4 && !strcmp(argv[3], "host") ? OS2G_MEMORY_HOST : OS2G_MEMORY_CUDA;
    struct os2g_buffer *buffer;
    struct os2g_batch *batch;
    struct os2g *c;
    size_t next = 0, running = 0, failed = 0;
    unsigned long long bytes = 0;
    int rc;

    if (argc < 2)
        errx(2, "usage: gpu_stream s3://BUCKET/PREFIX|SOCKET|DIR [--memory host]");
    if (os2g_connect(&c, argv[1], NULL) < 0 || os2g_list(c, "/", add_name, NULL) < 0)
        errx(1, "%s: %s", argv[1], os2g_last_error());
    rc = os2g_buffer_alloc(c, &buffer, SLOTS * SLOT_SIZE, memory, 0);
    if (rc == -ENODEV) {
        warnx("%s; to host memory, then", os2g_last_error());
        memory = OS2G_MEMORY_HOST;
        rc = os2g_buffer_alloc(c, &buffer, SLOTS * SLOT_SIZE, memory, 0);
    }
    if (rc < 0 || os2g_batch_new(c, &batch, SLOTS) < 0)
        errx(1, "%s", os2g_last_error());

    for (; running < SLOTS && next < n_names; running++)
        begin(batch, os2g_buffer_base(buffer), running, names[next++]);
    while (running) {
        struct os2g_io_event event;

        if (os2g_batch_status(batch, 1, 1, &event, NULL) != 1)
            errx(1, "%s", os2g_last_error());
        // here a kernel would work on what lies in the slot
        if (event.result >= 0)
            bytes += (unsigned long long)event.result;
        else
            failed++;
        running--;
        for (; running < SLOTS && next < n_names; running++)
            begin(batch, os2g_buffer_base(buffer), (size_t)event.cookie, names[next++]);
    }
    printf("%zu objects, %llu bytes in %s memory, %zu failed\n", n_names - failed, bytes,
           memory == OS2G_MEMORY_CUDA ? "GPU" : "host", failed);
    os2g_batch_free(batch);
    os2g_buffer_free(buffer);
    os2g_close(c);
    while (n_names)
        free(names[--n_names]);
    free(names);
    return failed ? 1 : 0;
}
