// SPDX-License-Identifier: Apache-2.0
// wire/: what travels between a host and the device beside FUSE itself; headers only, shared by
// both sides. Layouts are fixed: little-endian, no hidden padding. Uses nothing.
//
// This header: operations of our own, FUSE messages like any other (fuse_in_header before,
// fuse_out_header behind), that only libos2g sends. Their numbers lie far beyond what a kernel
// sends. After FUSE_INIT comes HELLO, once; the others are -ENOSYS without it.
#pragma once

#include <assert.h>
#include <stdint.h>

enum os2g_op {
    OS2G_OP_HELLO = 0x4f530001,
    OS2G_OP_FETCH = 0x4f530002,
    OS2G_OP_REGION = 0x4f530003,
};

#define OS2G_WIRE_VERSION     3 // what was spoken before still works: 3 tells the source
#define OS2G_WIRE_VERSION_MIN 1

// --- HELLO: which version is spoken. -EPROTO: none in common; the answer's body says ours ---

struct os2g_hello_in {
    uint32_t version_min, version_max; // that the host speaks
    uint32_t flags;                    // 0
    uint32_t pad;
};
_Static_assert(sizeof(struct os2g_hello_in) == 16, "as sent");

struct os2g_hello_out {
    uint32_t version;  // spoken from now on; with -EPROTO: the device's newest
    uint32_t max_read; // largest READ, and the boundary READs are best cut at
    uint32_t flags;    // 0
    // What is served, behind this: "s3://bucket/prefix/" and the URL of the server ("": Amazon's),
    // each ends with zero. 0: not told; always with -EPROTO and in versions 1 and 2. A host that
    // speaks 3 has room for OS2G_SOURCE_MAX.
    uint32_t source_len;
    char release[16]; // of the daemon, for people; ends with zero
};
_Static_assert(sizeof(struct os2g_hello_out) == 32, "as sent");

#define OS2G_SOURCE_MAX 4096

// --- FETCH: a whole object into the data descriptors, by its key below the export, literally ---
//
// device-readable: fuse_in_header, os2g_fetch_in, the key
// device-writable: fuse_out_header, os2g_fetch_out, room for the data
//
// 0: size bytes have landed. -EFBIG: it is larger than the room; size says how large; the room's
// contents are undefined. Other errors as of OPEN and READ. os2g_fetch_out follows the header
// with 0 and -EFBIG only.

struct os2g_fetch_in {
    uint32_t key_len; // 1 .. OS2G_KEY_MAX
    uint32_t flags;   // 0
};
_Static_assert(sizeof(struct os2g_fetch_in) == 8, "as sent");

#define OS2G_KEY_MAX 1024 // as S3 has it

struct os2g_fetch_out {
    uint64_t size;
};
_Static_assert(sizeof(struct os2g_fetch_out) == 8, "as sent");

// --- REGION: memory that has no descriptor to map gets a window of addresses ---
//
// Descriptors of requests may then name [addr, addr + size) like shared memory. Windows overlap
// neither each other nor memory shared by ADD_MEM_REG. Host memory needs none of this.

enum os2g_region_op {
    OS2G_REGION_ADD_CUDA_IPC = 1, // handle: CUipcMemHandle of a cudaMalloc allocation
    // handle unused: the memory's POSIX file descriptor (cuMemExportToShareableHandle) comes by
    // ADD_MEM_REG for the same addr and size, after this and before any request names it
    OS2G_REGION_ADD_CUDA_FD = 2,
    OS2G_REGION_REMOVE = 3, // answered when nothing more can land in it
    // Answered when the memory of the window (addr, size) has been opened: 0, or why that failed
    // (-ENODEV: no such GPU here, -EIO; gdd/engine.h); it is to be removed then.
    OS2G_REGION_WAIT = 4,
};

struct os2g_region_in {
    uint32_t op;
    int32_t device;         // CUDA ordinal, as the daemon sees it by uuid
    uint64_t addr, size;    // window
    uint64_t handle_offset; // of the window's first byte in the allocation
    uint8_t handle[64];
    uint8_t uuid[16]; // of the GPU
};
_Static_assert(sizeof(struct os2g_region_in) == 112, "as sent");
