// SPDX-License-Identifier: Apache-2.0
#include "host/io.h"

#include "host/file.h"
#include "host/staging.h"
#include "wire/ops.h"

#include <linux/fuse.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>

// As many pieces of one read are under way at a time; with pieces of an extent that is more than
// any device has connections for.
#define PIECES_MAX 64

// Pieces that are copied are small, so that copying one goes on beside the landing of others; a
// fetch into memory to copy from begins with so much room, for the size is not known yet.
#define COPIED_PIECE MIB
#define COPIED_FETCH (8 * MIB)

struct io_piece {
    struct transport_request r;
    struct list link; // idle
    struct io *io;
    uint64_t offset, len; // of the io
    bool under_way;
    struct staging_chunk chunk;
    struct staging *own; // made for this piece alone
    union {
        struct fuse_read_in read;
        struct os2g_fetch_in fetch;
    } in;
    struct os2g_fetch_out out;
};

static void lock(struct os2g *c)
{
    pthread_mutex_lock(&c->locked.lock.mutex);
}

static void unlock(struct os2g *c)
{
    pthread_mutex_unlock(&c->locked.lock.mutex);
}

// --- the end ---

static void finish(struct io *io)
{
    struct os2g *c = io->client;

    lock(c);
    io->n_pieces = 0; // for io_cancel
    unlock(c);
    if (io->kind == OS2G_IO_READ)
        io->result = io->error ? io->error : (int64_t)MIN(io->stop, io->size);
    else
        io->result = io->error ? io->error : (int64_t)io->object_size;
    destination_end(&io->to);
    file_unref(io->file);
    io->done(io);
}

static bool drop(struct io *io)
{
    return atomic_fetch_sub(&io->open, 1) == 1;
}

static void on_posted(struct transport_request *r, int error, uint32_t out_got, uint64_t data_got)
{
    finish(container_of(r, struct io_piece, r)->io);
}

// Nothing more is to be submitted. On a thread that does not collect: its end, if this is it, is
// told by one that does.
static void submitted_all(struct io *io)
{
    struct io_piece *p = &io->memory.pieces[0];

    if (!drop(io))
        return;
    p->r = (struct transport_request){.done = on_posted};
    transport_post(io->client->transport, &p->r);
}

// A piece has ended, n bytes of it whole.
static void note_locked(struct io *io, const struct io_piece *p, uint64_t n, int error)
{
    if (!error && n == p->len)
        return;
    io->over = true; // what lies behind is of no use
    if (p->offset + n < io->stop) {
        io->stop = p->offset + n;
        io->error = error;
    }
}

// --- copying ---

static int copy_out(struct io *io, const struct io_piece *p, uint64_t len)
{
    struct os2g_buffer *b = io->to.buffer;
    int rc = 0;

    // memory that its owner may free once he was told that time is over
    atomic_fetch_add(&io->copying, 1);
    if (atomic_load(&io->abandoned))
        rc = -ECANCELED;
    else if (b)
        rc = buffer_copy(b, io->to.offset + p->offset, p->chunk.base, len);
    else
        memcpy((uint8_t *)io->to.address + p->offset, p->chunk.base, len);
    atomic_fetch_sub(&io->copying, 1);
    if (rc == 0 && (!b || b->memory == OS2G_MEMORY_HOST) && !(io->file && io->file->control))
        atomic_fetch_add(&io->client->bounced_bytes, len);
    return rc;
}

void io_abandon(struct io *io)
{
    atomic_store(&io->abandoned, true);
    while (atomic_load(&io->copying))
        sched_yield();
}

static void give_back(struct io_piece *p)
{
    staging_give(&p->chunk);
    staging_free(p->own);
    p->own = NULL;
}

// --- one piece ---

// The object is larger than the room it got where it is copied from, and not than its destination:
// it is asked for again, now that its size is known.
static bool fetch_again_locked(struct io *io, struct io_piece *p)
{
    if (!p->chunk.staging || io->room || p->out.size <= p->len || p->out.size > io->size ||
        p->out.size > TRANSPORT_DATA_MAX || io->cancelled)
        return false;
    io->room = p->out.size;
    io->next = 0;
    atomic_fetch_add(&io->open, 1);
    list_push_back(&io->client->locked.pending, &io->link);
    return true;
}

static int fetched(struct io_piece *p, int error, uint32_t out_got, uint64_t data_got)
{
    struct io *io = p->io;

    if ((error && error != -EFBIG) || out_got < sizeof(p->out))
        return error ? error : -EIO;
    io->object_size = p->out.size;
    if (error)
        // only a size that does not fit explains it
        return p->out.size > p->len ? error : -EIO;
    return p->out.size == data_got ? 0 : -EIO;
}

static void on_piece(struct transport_request *r, int error, uint32_t out_got, uint64_t data_got)
{
    struct io_piece *p = container_of(r, struct io_piece, r);
    struct io *io = p->io;
    struct os2g *c = io->client;
    struct staging *own = p->own;

    if (io->kind == OS2G_IO_FETCH)
        error = fetched(p, error, out_got, data_got);
    if (!error && p->chunk.staging && data_got)
        error = copy_out(io, p, data_got);
    if (!error && io->to.buffer && io->to.buffer->memory == OS2G_MEMORY_CUDA)
        atomic_fetch_add(&c->cuda_bytes, data_got);
    lock(c);
    if (io->kind == OS2G_IO_READ)
        note_locked(io, p, error ? 0 : data_got, error);
    else if (error != -EFBIG || !fetch_again_locked(io, p))
        io->error = error;
    staging_give(&p->chunk);
    p->own = NULL;
    p->under_way = false;
    list_push_back(&io->idle, &p->link);
    if (io->parked) {
        io->parked = false;
        list_push_back(&c->locked.pending, &io->link);
    }
    unlock(c);
    staging_free(own);
    io_pump(c);
    if (drop(io))
        finish(io);
}

static int renew_read(struct transport_request *r)
{
    struct io_piece *p = container_of(r, struct io_piece, r);
    int rc = file_renew(p->io->file);

    if (rc == 0)
        file_handle(p->io->file, &r->generation, &r->nodeid, &p->in.read.fh);
    // this thread's user was called away, not the read's: the next that collects does it
    return rc == -EINTR ? -ENOTCONN : rc;
}

static void fill_read(struct io_piece *p)
{
    struct io *io = p->io;

    p->in.read =
        (struct fuse_read_in){.offset = io->file_offset + p->offset, .size = (uint32_t)p->len};
    p->r.opcode = FUSE_READ;
    p->r.in[0] = (struct iovec){&p->in.read, sizeof(p->in.read)};
    p->r.n_in = 1;
    p->r.renew = renew_read;
    file_handle(io->file, &p->r.generation, &p->r.nodeid, &p->in.read.fh);
}

static void fill_fetch(struct io_piece *p)
{
    struct io *io = p->io;
    const char *below = transport_below(io->client->transport);
    size_t below_len = strlen(below);

    p->in.fetch = (struct os2g_fetch_in){.key_len = (uint32_t)(below_len + io->key_len)};
    p->r.opcode = OS2G_OP_FETCH;
    p->r.nodeid = FUSE_ROOT_ID;
    p->r.in[0] = (struct iovec){&p->in.fetch, sizeof(p->in.fetch)};
    p->r.in[1] = (struct iovec){(void *)below, below_len};
    p->r.in[2] = (struct iovec){io->memory.key, io->key_len};
    p->r.n_in = 3;
    p->r.out = &p->out;
    p->r.out_len = sizeof(p->out);
}

static int submit_piece_locked(struct io_piece *p)
{
    struct io *io = p->io;
    struct os2g_buffer *b = io->to.buffer;

    p->r = (struct transport_request){.data_len = p->len, .again = true, .done = on_piece};
    if (p->chunk.staging) {
        p->r.memory = p->chunk.memory;
        p->r.memory_offset = p->chunk.offset;
    } else if (p->len) {
        p->r.memory = b->landing;
        p->r.memory_offset = io->to.offset + p->offset;
    }
    if (io->kind == OS2G_IO_READ)
        fill_read(p);
    else
        fill_fetch(p);
    return transport_submit(io->client->transport, &p->r, true);
}

// --- all of them ---

static bool lands_in_place(const struct io *io)
{
    return io->to.buffer && io->to.buffer->landing;
}

// What of the io the next piece is.
static void cut_piece(const struct io *io, struct io_piece *p)
{
    uint64_t max = lands_in_place(io)
                       ? transport_max_read(io->client->transport)
                       : MIN(COPIED_PIECE, transport_max_read(io->client->transport));

    p->offset = io->next;
    if (io->kind == OS2G_IO_FETCH) {
        p->len = MIN(io->size, lands_in_place(io) ? TRANSPORT_DATA_MAX : COPIED_FETCH);
        if (io->room)
            p->len = io->room;
    } else {
        uint64_t at = io->file_offset + io->next;

        p->len = MIN(io->end - io->next, max - at % max);
    }
}

static int take_chunk(struct io *io, struct io_piece *p)
{
    struct os2g_buffer *b = io->to.buffer;
    struct staging *s = b ? b->staging : NULL;
    int rc = 0;

    if (lands_in_place(io) || !p->len)
        return 0;
    if (io->room)
        rc = staging_new(&p->own, io->client, p->len);
    else if (!s)
        rc = client_bounce(io->client, &s);
    return rc < 0 ? rc : staging_take(io->room ? p->own : s, p->len, &p->chunk);
}

enum { STEP_MORE, STEP_ALL, STEP_PARKED }; // or -EAGAIN: not now

// Takes the io's next piece, to be submitted.
static int next_piece_locked(struct io *io, struct io_piece **ret)
{
    if (io->cancelled && !io->over && io->next < io->end) {
        io->error = -ECANCELED;
        io->over = true;
    }
    if (io->over || io->next == io->end)
        return STEP_ALL;
    *ret = list_first(&io->idle, struct io_piece, link);
    io->parked = !*ret;
    if (io->parked)
        return STEP_PARKED;
    cut_piece(io, *ret);
    list_remove(&(*ret)->link);
    io->next = io->kind == OS2G_IO_FETCH ? io->end : (*ret)->offset + (*ret)->len;
    return STEP_MORE;
}

// It could not be submitted.
static int put_back_locked(struct io *io, struct io_piece *p, int error)
{
    list_push_front(&io->idle, &p->link);
    io->next = p->offset;
    if (error == -EAGAIN)
        return -EAGAIN;
    note_locked(io, p, 0, error);
    return STEP_ALL;
}

static int step(struct io *io)
{
    struct os2g *c = io->client;
    struct io_piece *p;
    int rc, error;

    lock(c);
    rc = next_piece_locked(io, &p);
    unlock(c);
    if (rc != STEP_MORE)
        return rc;
    error = take_chunk(io, p);
    lock(c);
    if (error == 0) {
        // it may end before it is submitted here: not while the lock is held
        atomic_fetch_add(&io->open, 1);
        p->under_way = true;
        error = submit_piece_locked(p);
    }
    if (error < 0) {
        if (p->under_way)
            atomic_fetch_sub(&io->open, 1); // one is left while more are to be submitted
        p->under_way = false;
        rc = put_back_locked(io, p, error);
    }
    unlock(c);
    if (error < 0)
        give_back(p);
    return rc;
}

void io_pump(struct os2g *c)
{
    lock(c);
    c->locked.pump_more = true;
    if (c->locked.pumping || list_empty(&c->locked.pending)) {
        unlock(c);
        return;
    }
    c->locked.pumping = true;
    unlock(c);
    transport_plug(c->transport);
    lock(c);
    while (c->locked.pump_more) {
        struct io *io = list_first(&c->locked.pending, struct io, link);
        int rc;

        c->locked.pump_more = false;
        for (; io; io = list_first(&c->locked.pending, struct io, link)) {
            list_remove(&io->link);
            unlock(c);
            do
                rc = step(io);
            while (rc == STEP_MORE);
            if (rc == STEP_ALL)
                submitted_all(io);
            lock(c);
            if (rc == -EAGAIN) {
                list_push_front(&c->locked.pending, &io->link);
                break;
            }
        }
    }
    c->locked.pumping = false;
    unlock(c);
    transport_unplug(c->transport);
}

static void keep_key(struct io_memory *m, const char *key, size_t len)
{
    if (m->key_size < len) {
        free(m->key);
        m->key_size = ALIGN_UP(len, 64);
        m->key = xmalloc(m->key_size);
    }
    memcpy(m->key, key, len);
}

static void make_pieces(struct io *io, unsigned n)
{
    struct io_memory *m = &io->memory;

    if (m->n_pieces < n) {
        free(m->pieces);
        m->pieces = xcalloc(n, sizeof(*m->pieces));
        m->n_pieces = n;
    }
    list_init(&io->idle);
    for (unsigned i = 0; i < n; i++) {
        m->pieces[i].io = io;
        list_push_back(&io->idle, &m->pieces[i].link);
    }
}

void io_fini(struct io *io)
{
    free(io->memory.pieces);
    free(io->memory.key);
    io->memory = (struct io_memory){0};
}

int io_start(struct io *io)
{
    struct os2g *c = io->client;
    uint64_t piece = lands_in_place(io) ? transport_max_read(c->transport) : COPIED_PIECE, n = 1;

    if (io->kind == OS2G_IO_READ) {
        uint64_t size = io->file->size;

        if (io->file_offset > INT64_MAX - io->size)
            return client_fail(-EINVAL, "an offset beyond what files can have");
        io->end = MIN(io->size, size > io->file_offset ? size - io->file_offset : 0);
        n = io->end / piece + 2;
    } else {
        if (!io->key_len || io->key_len > OS2G_KEY_MAX)
            return client_fail(-EINVAL, "keys have 1 to %d bytes", OS2G_KEY_MAX);
        keep_key(&io->memory, io->key, io->key_len);
        io->end = 1; // one piece
    }
    if (io->file)
        file_ref(io->file);
    n = MIN(n, PIECES_MAX);
    make_pieces(io, (unsigned)n);
    io->stop = io->kind == OS2G_IO_READ ? io->end : UINT64_MAX;
    io->open = 1;
    lock(c);
    io->n_pieces = (unsigned)n;
    list_push_back(&c->locked.pending, &io->link);
    unlock(c);
    io_pump(c);
    return 0;
}

void io_cancel(struct io *io)
{
    struct os2g *c = io->client;

    lock(c);
    io->cancelled = true;
    for (unsigned i = 0; i < io->n_pieces; i++)
        if (io->memory.pieces[i].under_way)
            transport_cancel(c->transport, &io->memory.pieces[i].r);
    unlock(c);
    // one that waits for its turn ends now
    io_pump(c);
}
