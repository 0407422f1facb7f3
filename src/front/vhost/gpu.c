// SPDX-License-Identifier: Apache-2.0
// What .os2g/gdd asks of its host: declared GPU memory, by offset, among the regions that it
// shares.
#include "front/vhost/session.h"
#include "fuse/holdings.h"

static struct session *session_of(struct fs_gpu *g)
{
    return container_of(g, struct session, gpu);
}

static int gpu_size(struct fs_gpu *g, uint64_t *ret_size)
{
    *ret_size = region_bar_size(session_of(g)->map);
    return *ret_size ? 0 : -ENXIO;
}

static int gpu_landing_new(struct fs_gpu *g, uint64_t offset, uint64_t len, struct cache_dest **ret)
{
    struct session *s = session_of(g);

    return s->leases ? leases_landing_new(s->leases, offset, len, ret) : -ENXIO;
}

static bool gpu_holds_file(struct fs_gpu *g, uint64_t handle)
{
    return fuse_holdings_has_handle(session_of(g)->holdings, handle, false);
}

void session_gpu_init(struct session *s)
{
    s->leases = leases_new(s->map);
    s->gpu = (struct fs_gpu){
        .size = gpu_size,
        .landing_new = gpu_landing_new,
        .landing_free = leases_landing_free,
        .holds_file = gpu_holds_file,
        .host = s->number,
        // who says HELLO is no kernel
        .checks_modes = !fuse_session_negotiated(s->fuse)->hello,
    };
}
