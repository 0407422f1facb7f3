// SPDX-License-Identifier: Apache-2.0
// INIT: what the kernel and we agree on, once per mount.
#include "base/log.h"
#include "fuse/internal.h"

#include <string.h>

// max_pages came with 7.28 (Linux 4.20); without it a READ is 128 KiB at most.
#define MINOR_MIN      28
#define FUSE_PAGE_SIZE 4096

// Nothing is ever written; the kernel takes no less.
#define MAX_WRITE 4096

// What we ask for when the kernel offers it:
//   ASYNC_READ, ASYNC_DIO  several READs of one file at once, also for one large O_DIRECT read
//   PARALLEL_DIROPS        lookups and readdirs of one directory side by side
//   DO_READDIRPLUS         without READDIRPLUS_AUTO, which goes back to plain names after a
//                          directory's first batch and then asks for each file's attributes one
//                          by one; a listing has them at no cost
//   EXPLICIT_INVAL_DATA    a node is one version of an object, so its pages are never wrong; the
//                          alternative, AUTO_INVAL_DATA, drops them when a time stamp moves and
//                          asks for attributes before cached reads
//   HAS_IOCTL_DIR          ioctls on directories arrive, as those on files do
//   DIRECT_IO_ALLOW_MMAP   mmap of a file that was opened for direct I/O (Linux 6.6)
#define FLAGS_WANTED                                                                               \
    ((uint64_t)FUSE_ASYNC_READ | FUSE_ASYNC_DIO | FUSE_PARALLEL_DIROPS | FUSE_DO_READDIRPLUS |     \
     FUSE_EXPLICIT_INVAL_DATA | FUSE_HAS_IOCTL_DIR | FUSE_MAX_PAGES | FUSE_INIT_EXT |              \
     FUSE_DIRECT_IO_ALLOW_MMAP)

static void negotiate(struct fuse_session *s, const struct fuse_init_in *in)
{
    uint64_t offered = in->flags;

    if (offered & FUSE_INIT_EXT)
        offered |= (uint64_t)in->flags2 << 32;
    s->negotiated = (struct fuse_negotiated){
        .minor = MIN(in->minor, FUSE_KERNEL_MINOR_VERSION),
        .max_readahead = MIN(in->max_readahead, s->config.max_readahead),
        .max_write = MAX_WRITE,
        .max_read = s->config.max_read,
        .flags = offered & FLAGS_WANTED,
    };
    s->destroyed = false;
}

void fuse_init(struct fuse_request *r, const void *arg, size_t len)
{
    struct fuse_session *s = r->session;
    const struct fuse_negotiated *n = &s->negotiated;
    struct fuse_init_in in = {0};
    struct fuse_init_out out = {.major = FUSE_KERNEL_VERSION, .minor = FUSE_KERNEL_MINOR_VERSION};

    // older kernels send less of it
    memcpy(&in, arg, MIN(len, sizeof(in)));
    if (in.major > FUSE_KERNEL_VERSION) {
        // the kernel sends another INIT of our major version
        fuse_reply_bytes(r, &out, sizeof(out));
        return;
    }
    if (in.major < FUSE_KERNEL_VERSION || in.minor < MINOR_MIN) {
        log_warning("fuse", "the kernel speaks FUSE %u.%u; at least %u.%u (Linux 4.20) is needed",
                    in.major, in.minor, FUSE_KERNEL_VERSION, MINOR_MIN);
        fuse_reply_error(r, -EPROTO);
        return;
    }
    // whoever mounts, or boots, has nothing of before
    fuse_session_give_back(s, UINT64_MAX);
    negotiate(s, &in);
    out.max_readahead = n->max_readahead;
    out.flags = (uint32_t)n->flags;
    out.flags2 = (uint32_t)(n->flags >> 32);
    out.max_background = s->config.max_background;
    out.congestion_threshold = s->config.max_background / 4 * 3;
    out.max_write = n->max_write;
    out.time_gran = 1000000000; // times of objects are whole seconds
    out.max_pages = (uint16_t)(n->max_read / FUSE_PAGE_SIZE);
    log_debug("fuse", "init: kernel 7.%u, flags %#llx, read-ahead %u", in.minor,
              (unsigned long long)n->flags, n->max_readahead);
    fuse_reply_bytes(r, &out, sizeof(out));
}
