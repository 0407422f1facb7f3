// SPDX-License-Identifier: Apache-2.0
// The ioctls on the control file of a mount, DIR/.os2g/control, and on the plan files one gets by
// opening it: each open file holds at most one plan, dropped when it closes.
//
// An ioctl carries at most 16,383 bytes in restricted mode (kernel and virtio-fs alike), so an
// order travels in pieces. Layouts are fixed: little-endian, no padding.
#pragma once

#include <assert.h>
#include <stdint.h>
#include <sys/ioctl.h>

#define OS2G_CONTROL_DIR   ".os2g"
#define OS2G_CONTROL_FILE  "control"
#define OS2G_STALLS_FILE   "stalls"  // the stall report as JSON, made when it is read
#define OS2G_STALLS_BYTES  (2 << 20) // its size, as shown; the text is shorter
#define OS2G_CONTROL_BYTES 16368

enum os2g_plan_op {
    OS2G_PLAN_BEGIN = 1, // window_bytes; forgets an earlier plan of this open file
    OS2G_PLAN_ADD = 2,   // paths relative to the mount's root, each ended by a zero byte
    OS2G_PLAN_COMMIT = 3,
    OS2G_PLAN_STATUS = 4, // fills the answer only
    // A plan does not outlive a crash of the daemon's worker: then ADD and COMMIT are ESTALE,
    // STATUS shows no entries, and who made the plan begins again.
};

struct os2g_plan_request {
    uint32_t op;
    uint32_t len;          // bytes of data used
    uint64_t window_bytes; // BEGIN: 0 for the default
    char data[OS2G_CONTROL_BYTES - 16 - 48];
    // answer
    uint64_t entries, fetched, used, dropped, missing; // so far, of this plan
    uint64_t bytes;                                    // fetched
};
_Static_assert(sizeof(struct os2g_plan_request) == OS2G_CONTROL_BYTES, "as sent");

#define OS2G_IOC_PLAN _IOWR('o', 1, struct os2g_plan_request)
