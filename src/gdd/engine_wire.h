// SPDX-License-Identifier: Apache-2.0
// What the engine and its helper process say to each other. Only for engine*.c.
//
//   shared memory   commands ──► (copies, and the end of a memory; in order)
//                   ◄── results (of whole requests, by slot; in the order of their ends)
//   kick, done      eventfds that say so to a side that sleeps
//   socket          OPEN, with its descriptor ──►; ◄── how that went, notes, the last words
//
// Both are the same program, so neither checks the other's version; but the helper lives with a
// driver that may do anything, so the engine checks what it reads.
#pragma once

#include "base/base.h"

#include <stdatomic.h>

#define ENGINE_RING     1024 // commands, and results: one for each slot
#define ENGINE_SLOTS    1024 // requests that the helper has at a time
#define ENGINE_MEMORIES 256  // of one engine at a time
#define ENGINE_NO_SLOT  UINT32_MAX
#define ENGINE_TEXT     200

enum { // the helper's descriptors
    ENGINE_FD_SOCKET = 3,
    ENGINE_FD_SHARED,
    ENGINE_FD_ARENA,
    ENGINE_FD_KICK,
    ENGINE_FD_DONE,
    ENGINE_FD_LIFE, // only held
    ENGINE_FDS_END,
};

enum engine_command_kind {
    ENGINE_COPY = 1,
    ENGINE_CLOSE, // answered when all before it has ended and the memory was let go
};

struct engine_command {
    uint32_t kind;
    uint32_t memory; // number, given by OPEN
    uint64_t at;     // in the memory
    uint64_t from;   // in the arena
    uint32_t len;
    uint32_t slot; // ENGINE_NO_SLOT: more of the same request follows
};

struct engine_result {
    uint32_t slot;
    int32_t error;
};

// An index counts up for ever; the place is its remainder.
struct engine_shared {
    _Alignas(64) _Atomic uint32_t submitted; // by the engine
    _Alignas(64) _Atomic uint32_t taken;     // by the helper
    _Alignas(64) _Atomic uint32_t ended;     // by the helper
    _Alignas(64) _Atomic uint32_t helper_sleeps;
    _Alignas(64) _Atomic uint32_t engine_sleeps;
    struct engine_command commands[ENGINE_RING];
    struct engine_result results[ENGINE_RING];
};

// engine to helper, on the socket
struct engine_open_message {
    uint32_t memory;
    uint32_t has_fd;
    uint8_t uuid[16];
    uint8_t handle[64];
    uint64_t handle_offset, size;
};

enum engine_event_kind {
    ENGINE_OPENED = 1, // memory, error, text
    ENGINE_NOTE,       // text is for the log
    ENGINE_FAILED,     // text: why the helper ends
};

// helper to engine
struct engine_event {
    uint32_t kind;
    uint32_t memory;
    int32_t error;
    char text[ENGINE_TEXT];
};

// Runs program as a helper. fds: become ENGINE_FD_SOCKET and so on; the last may be -1: there is
// none. 0 or -errno.
int engine_spawn(const char *program, const int fds[static ENGINE_FDS_END - ENGINE_FD_SOCKET],
                 int *ret_pidfd);
