// SPDX-License-Identifier: Apache-2.0
#include "base/log.h"
#include "fuse/internal.h"

#include <stdlib.h>

struct fuse_session *fuse_session_new(const struct fuse_session_config *c,
                                      const struct fuse_negotiated *resumed)
{
    struct fuse_session *s = xcalloc(1, sizeof(*s));

    assert(c->max_read >= 4096 && c->max_read % 4096 == 0);
    s->config = *c;
    if (resumed)
        s->negotiated = *resumed;
    return s;
}

void fuse_session_free(struct fuse_session *s)
{
    free(s);
}

const struct fuse_negotiated *fuse_session_negotiated(const struct fuse_session *s)
{
    return &s->negotiated;
}

bool fuse_session_destroyed(const struct fuse_session *s)
{
    return s->destroyed;
}

static bool denied(const struct fuse_session *s, const struct fuse_op *op, uint32_t uid)
{
    return s->config.deny_others && !op->any_user && uid != 0 && uid != s->config.owner_uid;
}

static void refuse(struct fuse_request *r, int error)
{
    if (r->opcode == FUSE_FORGET || r->opcode == FUSE_BATCH_FORGET ||
        r->opcode == FUSE_NOTIFY_REPLY)
        fuse_reply_end(r); // these are never answered
    else
        fuse_reply_error(r, error);
}

// One number for each request of all hosts (a permutation, splitmix64's, of this host's numbers).
static uint64_t unique_in_export(const struct fuse_session *s, uint64_t unique)
{
    uint64_t x = unique ^ s->config.unique_key;

    if (!s->config.unique_key)
        return unique;
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9;
    x = (x ^ x >> 27) * 0x94d049bb133111eb;
    return x ^ x >> 31;
}

int fuse_session_dispatch(struct fuse_session *s, struct fuse_request *r, const void *in,
                          size_t len, const struct fuse_arrival *arrival)
{
    const struct fuse_in_header *h = in;
    const struct fuse_op *op;

    if (len < sizeof(*h) || h->len != len)
        return -EBADMSG;
    *r = (struct fuse_request){
        .fs = {.reply = &fuse_fs_reply,
               .unique = unique_in_export(s, h->unique),
               .uid = h->uid,
               .gid = h->gid,
               .pid = h->pid,
               .gpu = s->config.gpu,
               .dest = arrival->dest,
               .replayed = arrival->replayed,
               .keeps_pages = !s->negotiated.hello},
        .session = s,
        .unique = h->unique,
        .nodeid = h->nodeid,
        .opcode = h->opcode,
    };
    if (s->negotiated.hello) {
        r->fs.uid = s->config.peer_uid;
        r->fs.gid = s->config.peer_gid;
        r->fs.pid = s->config.peer_pid;
    }
    len -= sizeof(*h);
    op = fuse_op_find(h->opcode);
    log_debug("fuse", "request %llu: opcode %u, node %llu", (unsigned long long)h->unique,
              h->opcode, (unsigned long long)h->nodeid);

    if (!op->run)
        refuse(r, op->error);
    else if (len < op->arg_size)
        refuse(r, -EINVAL);
    else if (!s->negotiated.minor && h->opcode != FUSE_INIT)
        refuse(r, -EIO);
    else if (denied(s, op, r->fs.uid))
        refuse(r, -EACCES);
    else if (op->node && !fuse_holds_node(s, r->nodeid))
        refuse(r, -ESTALE);
    else
        op->run(r, h + 1, len);
    return 0;
}
