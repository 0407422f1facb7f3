// SPDX-License-Identifier: Apache-2.0
#include "fs/gdd_file.h"

#include <stdlib.h>
#include <string.h>

#define READS_MAX 65536 // under way or not reaped, of all open files

void gdd_read_free(struct gdd_read *r)
{
    r->file->fs->gdd_reads--;
    list_remove(&r->link);
    free(r);
}

// --- the end of one ---

static void on_ended(struct loop_msg *msg)
{
    struct gdd_read *r = container_of(msg, struct gdd_read, msg);
    struct gdd_file *f = r->file;
    struct fs *fs = f->fs;

    if (r->req.dest)
        r->landing_free(r->req.dest);
    f->n_running--;
    if (f->handle) {
        list_remove(&r->link);
        list_push_back(&f->done, &r->link);
        f->n_done++;
    } else {
        gdd_read_free(r);
    }
    gdd_file_settle(f);
    fs_busy_end(fs);
}

// Any loop.
static void end(struct gdd_read *r, int64_t result, uint64_t size)
{
    r->result = result == -EINTR ? -ECANCELED : result;
    r->size = size;
    loop_post(r->file->fs->loop, &r->msg, on_ended);
}

static void reply_error(struct fs_request *req, int error)
{
    end(container_of(req, struct gdd_read, req), error, 0);
}

static void reply_landed(struct fs_request *req, uint64_t len)
{
    end(container_of(req, struct gdd_read, req), (int64_t)len, 0);
}

static void reply_fetched(struct fs_request *req, int error, uint64_t size)
{
    end(container_of(req, struct gdd_read, req), error ? error : (int64_t)size,
        error && error != -EFBIG ? 0 : size);
}

static const struct fs_reply replies = {
    .error = reply_error,
    .landed = reply_landed,
    .fetched = reply_fetched,
};

// --- what was asked for ---

// The entry at *at, checked as far as it can be without looking at f; *at is behind it then.
static int next_entry(const uint8_t *data, size_t len, size_t *at, struct os2g_gdd_entry *ret,
                      const char **ret_key)
{
    size_t key_room;

    if (len - *at < sizeof(*ret))
        return -EINVAL;
    memcpy(ret, data + *at, sizeof(*ret));
    *ret_key = (const char *)data + *at + sizeof(*ret);
    key_room = ((size_t)ret->key_len + 7) & ~(size_t)7;
    if (ret->flags || !ret->len || ret->key_len > KEY_MAX_BYTES || (ret->key_len && ret->offset) ||
        ret->offset > (uint64_t)INT64_MAX || ret->len > (uint64_t)INT64_MAX ||
        len - *at - sizeof(*ret) < key_room)
        return -EINVAL;
    *at += sizeof(*ret) + key_room;
    return 0;
}

static int check(struct gdd_file *f, const struct os2g_gdd_submit *s, const uint8_t *data,
                 size_t len)
{
    struct os2g_gdd_entry e;
    const char *key;
    size_t at = 0;

    for (uint32_t i = 0; i < s->n; i++) {
        int rc = next_entry(data, len, &at, &e, &key);
        const struct gdd_lease *lease;

        if (rc < 0)
            return rc;
        lease = gdd_leases_holding(&f->leases, e.place, e.len);
        if (!lease || lease->leaving)
            return -EINVAL;
    }
    if (!s->n || at != len)
        return -EINVAL;
    if (f->n_running + f->n_done + s->n > OS2G_GDD_SUBMITTED_MAX ||
        f->fs->gdd_reads + s->n > READS_MAX)
        return -EAGAIN;
    return 0;
}

static void start(struct gdd_file *f, const struct fs_request *by, const struct os2g_gdd_entry *e,
                  const char *key)
{
    struct gdd_read *r = xcalloc(1, sizeof(*r) + e->key_len + 1);
    struct fs *fs = f->fs;
    int rc;

    memcpy(r->key, key, e->key_len);
    r->file = f;
    r->tag = e->tag;
    r->lease = gdd_leases_holding(&f->leases, e->place, e->len)->offset;
    r->landing_free = by->gpu->landing_free;
    r->req = (struct fs_request){
        .reply = &replies, .unique = ++fs->gdd_unique, .uid = by->uid, .gid = by->gid};
    list_push_back(&f->running, &r->link);
    f->n_running++;
    fs->gdd_reads++;
    fs_busy_begin(fs);
    rc = e->key_len || by->gpu->holds_file(by->gpu, e->id) ? 0 : -EBADF;
    if (rc == 0)
        rc = by->gpu->landing_new(by->gpu, e->place, e->len, &r->req.dest);
    if (rc < 0) {
        r->req.dest = NULL;
        reply_error(&r->req, rc);
    } else if (e->key_len) {
        fs_op_fetch(fs, &r->req, r->key, e->key_len);
    } else {
        fs_op_read(fs, &r->req, e->id, e->offset, (uint32_t)MIN(e->len, (uint64_t)UINT32_MAX));
    }
}

void gdd_submit(struct gdd_file *f, struct fs_request *req, const void *in, size_t len)
{
    const uint8_t *data = (const uint8_t *)in + sizeof(struct os2g_gdd_submit);
    struct os2g_gdd_submit s;
    struct os2g_gdd_entry e;
    const char *key;
    size_t at = 0;
    int rc;

    if (len < sizeof(s)) {
        req->reply->error(req, -EINVAL);
        return;
    }
    memcpy(&s, in, sizeof(s));
    len -= sizeof(s);
    rc = req->gpu ? check(f, &s, data, len) : -ENXIO;
    if (rc < 0) {
        req->reply->error(req, rc);
        return;
    }
    for (uint32_t i = 0; i < s.n; i++) {
        next_entry(data, len, &at, &e, &key); // as in check
        start(f, req, &e, key);
    }
    s.epoch = f->leases.epoch;
    req->reply->ioctl(req, 0, &s, sizeof(s));
}

// --- giving up ---

static void cancel(struct gdd_read *r)
{
    if (r->req.cancel)
        r->req.cancel(&r->req, r->req.cancel_arg);
}

int gdd_cancel(struct gdd_file *f, uint64_t tag)
{
    int rc = -ENOENT;

    list_for_each_safe (it, &f->running) {
        struct gdd_read *r = list_entry(it, struct gdd_read, link);

        if (r->tag != tag)
            continue;
        cancel(r);
        rc = 0;
    }
    return rc;
}

void gdd_cut(struct gdd_file *f, const struct gdd_lease *lease)
{
    list_for_each_safe (it, &f->running) {
        struct gdd_read *r = list_entry(it, struct gdd_read, link);

        if (lease && r->lease != lease->offset)
            continue;
        if (r->req.dest)
            atomic_store(&r->req.dest->cut, true);
        cancel(r);
    }
}

bool gdd_lands_in(const struct gdd_file *f, const struct gdd_lease *lease)
{
    list_for_each (it, &f->running)
        if (list_entry(it, struct gdd_read, link)->lease == lease->offset)
            return true;
    return false;
}
