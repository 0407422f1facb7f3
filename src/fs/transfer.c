// SPDX-License-Identifier: Apache-2.0
#include "fs/transfer.h"

static uint64_t hash_of(const struct fs_request *req, uint64_t unique)
{
    return fs_hash(&unique, sizeof(unique), (uintptr_t)req);
}

// It may have been answered already, and its operation be on its way back here. Numbers are unique
// within one host only, and memory is used again under another number.
static void on_cancel(struct fs_request *req, void *arg)
{
    struct fs *fs = arg;
    struct hmap_link *l = hmap_first(&fs->transfers, hash_of(req, req->unique));

    for (; l; l = hmap_next(l)) {
        struct transfer *t = container_of(l, struct transfer, link);

        if (t->req == req && t->unique == req->unique) {
            t->cancel(t);
            return;
        }
    }
}

void transfer_begin(struct fs *fs, struct transfer *t, struct fs_request *req,
                    void (*cancel)(struct transfer *t))
{
    t->req = req;
    t->unique = req->unique;
    t->cancel = cancel;
    hmap_add(&fs->transfers, &t->link, hash_of(req, t->unique));
    req->cancel = on_cancel;
    req->cancel_arg = fs;
    fs_busy_begin(fs);
}

void transfer_end(struct fs *fs, struct transfer *t)
{
    hmap_remove(&fs->transfers, &t->link);
    fs_busy_end(fs);
}
