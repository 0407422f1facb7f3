// SPDX-License-Identifier: Apache-2.0
// What the host holds, where it is not the local kernel: it can use and give back nothing else.
#include "fuse/holdings.h"
#include "fuse/internal.h"

bool fuse_holds_node(const struct fuse_session *s, uint64_t node)
{
    return !s->config.holdings || node == FS_ROOT ||
           fuse_holdings_has_node(s->config.holdings, node);
}

bool fuse_holds_handle(const struct fuse_session *s, uint64_t handle, bool dir)
{
    return !s->config.holdings || fuse_holdings_has_handle(s->config.holdings, handle, dir);
}

int fuse_hold_node(struct fuse_session *s, uint64_t node)
{
    return s->config.holdings ? fuse_holdings_add_node(s->config.holdings, node, 1) : 0;
}

int fuse_hold_handle(struct fuse_session *s, uint64_t handle, bool dir)
{
    return s->config.holdings ? fuse_holdings_add_handle(s->config.holdings, handle, dir) : 0;
}

void fuse_unhold_node(struct fuse_session *s, uint64_t node)
{
    fuse_drop_node(s, node, 1);
    s->config.ops->unlookup(s->config.fs, node, 1);
}

void fuse_unhold_handle(struct fuse_session *s, uint64_t handle, bool dir)
{
    fuse_drop_handle(s, handle, dir);
    s->config.ops->unopen(s->config.fs, handle);
}

uint64_t fuse_drop_node(struct fuse_session *s, uint64_t node, uint64_t n)
{
    return s->config.holdings ? fuse_holdings_drop_node(s->config.holdings, node, n) : n;
}

bool fuse_drop_handle(struct fuse_session *s, uint64_t handle, bool dir)
{
    return !s->config.holdings || fuse_holdings_drop_handle(s->config.holdings, handle, dir);
}

bool fuse_session_give_back(struct fuse_session *s, uint64_t max)
{
    const struct fuse_session_config *c = &s->config;
    enum fuse_holding what;
    uint64_t id, n;

    if (!c->holdings)
        return true;
    for (; max; max--) {
        if (!fuse_holdings_take(c->holdings, &what, &id, &n))
            return true;
        if (what == FUSE_HOLDS_NODE)
            c->ops->forget(c->fs, id, n);
        else
            c->ops->unopen(c->fs, id);
    }
    return !fuse_holdings_count(c->holdings);
}
