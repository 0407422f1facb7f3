// SPDX-License-Identifier: Apache-2.0
// The ioctls on DIR/.os2g/gdd, in a guest's mount: objects landing in GPU memory, that is, in the
// BAR which the operator has declared to be a GPU's. Places are offsets in that memory, wherever
// the guest has mapped it.
//
//   LEASE   a piece of the memory, for this open file alone
//   SUBMIT  reads of objects into leased pieces
//   REAP    waits for their ends
//
// A blocked REAP is answered after a second at most: virtio-fs does not interrupt what waits.
// Layouts are fixed: little-endian, no hidden padding; at most 16,383 bytes each way.
//
// Leases outlive a crash of the daemon's worker; what was submitted does not. Every SUBMIT and REAP
// tells an epoch, never 0: whoever sees a later one than that of a request which has not ended
// submits it again.
#pragma once

#include <assert.h>
#include <stdint.h>
#include <sys/ioctl.h>

#define OS2G_GDD_FILE   "gdd" // in OS2G_CONTROL_DIR
#define OS2G_GDD_ALIGN  4096
#define OS2G_GDD_LEASES 13 // of an open file

// -ENXIO: there is no such memory (now); -EBUSY: overlaps another's lease; -EINVAL: not aligned to
// OS2G_GDD_ALIGN, empty, beyond the end; -ENOSPC: nowhere free, or too many. UNLEASE: size is
// ignored; what lands there ends with -ECANCELED; answered when nothing does any more. -ENOENT.
struct os2g_gdd_lease {
    uint64_t offset; // OS2G_GDD_ANYWHERE: where there is room; the answer says where
    uint64_t size;
    uint64_t memory_size; // answer: of all of the memory
    uint64_t pad;
};
_Static_assert(sizeof(struct os2g_gdd_lease) == 32, "as sent");
#define OS2G_GDD_ANYWHERE    UINT64_MAX
#define OS2G_IOC_GDD_LEASE   _IOWR('o', 2, struct os2g_gdd_lease)
#define OS2G_IOC_GDD_UNLEASE _IOW('o', 3, struct os2g_gdd_lease)

// On an open object of the same mount: what a SUBMIT calls it. Good as long as it is open.
struct os2g_gdd_id {
    uint64_t id;
    uint64_t size;
};
_Static_assert(sizeof(struct os2g_gdd_id) == 16, "as sent");
#define OS2G_IOC_GDD_ID _IOR('o', 4, struct os2g_gdd_id)

// SUBMIT and REAP are as long as their numbers say.
#define OS2G_GDD_BYTES_MAX       16368
#define OS2G_IOC_GDD_SUBMIT(len) _IOC(_IOC_READ | _IOC_WRITE, 'o', 5, len)
#define OS2G_IOC_GDD_REAP(len)   _IOC(_IOC_READ | _IOC_WRITE, 'o', 6, len)

// All or none is taken: -EINVAL (malformed, or not within one lease), -EAGAIN (more than
// OS2G_GDD_SUBMITTED_MAX under way in this open file).
struct os2g_gdd_submit {
    uint64_t epoch; // answer
    uint32_t n;     // entries that follow
    uint32_t pad;
};
_Static_assert(sizeof(struct os2g_gdd_submit) == 16, "as sent");
#define OS2G_GDD_SUBMITTED_MAX 4096

struct os2g_gdd_entry {
    uint64_t tag;
    uint64_t id;      // of an opened object; unused with a key
    uint64_t offset;  // in the object; 0 with a key
    uint64_t len;     // room, up to 16 MiB with an id: fewer bytes land at the object's end
    uint64_t place;   // in the memory
    uint32_t key_len; // > 0: the object with this key below the export, literally, and all of it
    uint32_t flags;   // 0
    // key_len bytes follow, and zeroes up to a multiple of 8
};
_Static_assert(sizeof(struct os2g_gdd_entry) == 48, "as sent");

struct os2g_gdd_reap {
    uint64_t epoch;      // answer
    uint32_t n;          // answer: completions that follow
    uint32_t min;        // wait for so many,
    uint32_t timeout_ms; // but no longer (1000 at most), nor while fewer are under way
    uint32_t pad;
};
_Static_assert(sizeof(struct os2g_gdd_reap) == 24, "as sent");

struct os2g_gdd_completion {
    uint64_t tag;
    int64_t result; // bytes that have landed, or -errno: as of FETCH and READ; -ECANCELED: the
                    // memory has gone, or CANCEL, or UNLEASE
    uint64_t size;  // of the object, with a key and result >= 0 or -EFBIG
};
_Static_assert(sizeof(struct os2g_gdd_completion) == 24, "as sent");

// Asks for the end of those with this tag: they are reported still. 0 if there was none.
struct os2g_gdd_cancel {
    uint64_t tag;
};
#define OS2G_IOC_GDD_CANCEL _IOW('o', 7, struct os2g_gdd_cancel)
