// SPDX-License-Identifier: Apache-2.0
// os2g_read and os2g_fetch: one io, waited for.
#include "base/clock.h"
#include "host/file.h"
#include "host/io.h"

#include <stdlib.h>
#include <string.h>

// Lives on after its caller's time is over, until it has ended.
struct waited {
    struct io io;
    _Atomic uint32_t ended;
    _Atomic unsigned refs; // the caller's and the io's
};

static void unref(struct waited *w)
{
    if (atomic_fetch_sub(&w->refs, 1) != 1)
        return;
    io_fini(&w->io);
    free(w);
}

static void on_done(struct io *io)
{
    struct waited *w = container_of(io, struct waited, io);

    transport_flag(io->client->transport, &w->ended);
    unref(w);
}

// what: for the sentence.
static int64_t run(struct waited *w, const char *what, size_t what_len, uint64_t *ret_size)
{
    struct os2g *c = w->io.client;
    int64_t result;

    w->refs = 2;
    w->io.done = on_done;
    result = io_start(&w->io);
    if (result < 0) {
        destination_end(&w->io.to);
        io_fini(&w->io);
        free(w);
        return result;
    }
    result = client_wait(c, &w->ended, NULL, client_deadline(c));
    if (result < 0) {
        io_abandon(&w->io);
        io_cancel(&w->io);
    } else {
        result = w->io.result;
        if (ret_size && (result >= 0 || result == -EFBIG))
            *ret_size = w->io.object_size;
    }
    unref(w);
    return result < 0 ? client_fail_name((int)result, what, what_len) : result;
}

static struct waited *new_waited(struct os2g *c, enum os2g_io_kind kind, size_t size)
{
    struct waited *w = xcalloc(1, sizeof(*w));

    w->io.client = c;
    w->io.kind = kind;
    w->io.size = size;
    return w;
}

ssize_t file_read(struct os2g_file *f, const struct destination *to, size_t size, off_t file_offset)
{
    struct destination given = *to;
    struct waited *w;

    if (file_offset < 0 || size > INT64_MAX) {
        destination_end(&given);
        return client_fail(-EINVAL, "an offset or a size that cannot be");
    }
    w = new_waited(f->client, OS2G_IO_READ, size);
    w->io.file = f;
    w->io.file_offset = (uint64_t)file_offset;
    w->io.to = given;
    return run(w, f->path, strlen(f->path), NULL);
}

ssize_t os2g_read(struct os2g_file *f, void *buffer_base, size_t size, off_t file_offset,
                  off_t buffer_offset)
{
    struct destination to;
    int rc = client_enter(f->client);

    if (rc == 0)
        rc = destination_find(f->client, buffer_base, size, buffer_offset, &to);
    return rc < 0 ? rc : file_read(f, &to, size, file_offset);
}

int os2g_fetch_key(struct os2g *c, const char *key, size_t key_len, void *buffer_base, size_t size,
                   off_t buffer_offset, uint64_t *ret_size)
{
    struct waited *w;
    int64_t result;
    int rc = client_enter(c);

    if (rc < 0)
        return rc;
    w = new_waited(c, OS2G_IO_FETCH, size);
    w->io.key = key;
    w->io.key_len = key_len;
    rc = destination_find(c, buffer_base, size, buffer_offset, &w->io.to);
    if (rc < 0) {
        free(w);
        return rc;
    }
    result = run(w, key, key_len, ret_size);
    return result < 0 ? (int)result : 0;
}

int os2g_fetch(struct os2g *c, const char *key, void *buffer_base, size_t size, off_t buffer_offset,
               uint64_t *ret_size)
{
    return os2g_fetch_key(c, key, strlen(key), buffer_base, size, buffer_offset, ret_size);
}
