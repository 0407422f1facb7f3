// SPDX-License-Identifier: Apache-2.0
// gdd/: regions, that is, memory of a host which the device may write and read, and landing in
// it. Uses cache/dest.h, cuda/, loop/, base/; the wires use it.
//
// This header: the memory that one host (session) has shared. Changed on the namespace loop only.
// Translated pieces are used on any loop until their reference to the map is dropped or the region
// is taken away, whichever the wire arranges with a fence.
#pragma once

#include "base/base.h"

#include <stdatomic.h>
#include <sys/stat.h>
#include <sys/uio.h>

struct region_map;

// Of one host. Neither kind takes room of the other's: a host is told how many of each it may have.
#define REGIONS_MAX 128 // mapped; what GET_MAX_MEM_SLOTS answers
#define WINDOWS_MAX 32

enum region_kind {
    REGION_HOST, // mapped here: addressable
    REGION_BAR,  // the same, but a GPU's by the operator's word: leases only (gdd/lease.h)
    REGION_CUDA, // opened by a helper process: engine
};

struct region_info {
    uint64_t addr;      // as descriptors name it
    uint64_t user_addr; // as SET_VRING_ADDR names it
    uint64_t size;
    uint64_t fd_offset; // of its first byte in the descriptor
};

// gpu_memory: (st_dev, st_ino) of what the operator has declared to be a GPU's; copied.
struct region_file {
    dev_t dev;
    ino_t ino;
};
struct region_map *region_map_new(const struct region_file *gpu_memory, size_t n);
void region_map_free(struct region_map *m); // nobody uses a piece any more; NULL is allowed

// fd: to be mapped, becomes the map's on success (it is closed: nobody else may use it then). 0;
// -EINVAL (empty, overflow, beyond the file's end); -EEXIST (overlaps another); -ENOBUFS (too many
// of its kind, or more than 8 TiB of it, or more of all hosts than there are addresses for);
// -ENOTSUP (neither memfd, tmpfs or huge pages nor declared by the operator); or -errno of mmap.
// *ret_id: never 0, not used again.
int region_add(struct region_map *m, const struct region_info *r, int fd, uint64_t *ret_id);
// A window of engine memory (gdd/engine.h), not mapped.
int region_add_window(struct region_map *m, const struct region_info *r, void *engine_memory,
                      uint64_t *ret_id);
// The region at (addr, user_addr, size), or 0.
uint64_t region_find(const struct region_map *m, const struct region_info *r);
// No translation finds it any more; its mapping stays until region_remove_end.
void region_remove_begin(struct region_map *m, uint64_t id);
void region_remove_end(struct region_map *m, uint64_t id);
size_t region_count(const struct region_map *m);

// A contiguous piece of one region.
struct region_piece {
    void *base; // NULL: engine memory
    uint64_t len;
    uint64_t id;     // of the region
    uint64_t offset; // in the region
    enum region_kind kind;
    bool sealed; // cannot shrink: may be received into
    void *engine_memory;
};
// The piece from addr on, at most len bytes (it may end earlier, at its region's end). 0 or
// -EFAULT. REGION_BAR memory is not for descriptors: -EFAULT, unless bar is asked for.
int region_translate(const struct region_map *m, uint64_t addr, uint64_t len,
                     struct region_piece *ret);
// The whole ring part at a user address, in one piece; REGION_HOST only. NULL: it is in none.
void *region_translate_user(const struct region_map *m, uint64_t user_addr, uint64_t len,
                            uint64_t *ret_id);
// The declared GPU memory (the first, in order of region_add, that is there): a piece of it by
// offset in its file. -ENXIO: there is none; -EFAULT: it is not all there.
int region_translate_bar(const struct region_map *m, uint64_t offset, uint64_t len,
                         struct region_piece *ret);
// Where the declared memory ends, as far as it is shared; 0: there is none.
uint64_t region_bar_size(const struct region_map *m);

// --- memory that its owner may shrink at any moment ---
//
// Every access to a region's bytes by this process's own instructions stands between these two.
// A fault there ends at region_guard with true instead of killing the process:
//
//     if (region_guard(&g)) { region_unguard(&g); return -EFAULT; }
//     memcpy(…);
//     region_unguard(&g);
//
// Per thread, not nested; between them nothing that must be undone (no locks, no allocation).
// System calls need no guard: they say EFAULT.
#include <setjmp.h>

struct region_guard {
    sigjmp_buf env;
};
void region_guard_arm(struct region_guard *g); // private to the macro
void region_unguard(struct region_guard *g);
#define region_guard(g) (region_guard_arm(g), sigsetjmp((g)->env, 0))
// The SIGBUS handler, over whatever handler there is; done by region_map_new. A fault elsewhere
// does what it did before.
void region_guard_install(void);

// memcpy under guard. 0 or -EFAULT.
int region_copy_in(void *to, const void *host, size_t len);
int region_copy_out(void *host, const void *from, size_t len);
