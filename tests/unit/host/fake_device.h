// SPDX-License-Identifier: Apache-2.0
// A vhost-user-fs device for tests of libos2g: listens on a socket, one thread for each host, a
// file system of a few made-up files, and ways to misbehave.
//
//   a.bin (100,000)  big.bin (40 MiB + 5)  empty  dir/ {x (10), y (20), deep/ {z (30)}}
#pragma once

#include "base/base.h"

#include <stdatomic.h>

struct fake_device;

enum fake_fault {
    FAKE_FINE,
    FAKE_HOLD,        // READ and FETCH are not answered while it lasts
    FAKE_TWICE,       // the next answer comes twice
    FAKE_BAD_ID,      // the next answer is to a request that nobody made
    FAKE_BAD_UNIQUE,  // the next answer has another number
    FAKE_BAD_LENGTH,  // the next answer says that it is longer than its room
    FAKE_CLOSE,       // the connection is closed instead of the next answer to READ or FETCH
    FAKE_VERSION,     // HELLO is answered -EPROTO
    FAKE_NO_HELLO,    // HELLO is answered -ENOSYS
    FAKE_REFUSE,      // memory beyond the first region is refused
    FAKE_SILENT,      // messages are not answered
    FAKE_GPU,         // GPU memory is opened: two windows of each host
    FAKE_ERROR,       // READ and FETCH are answered -EIO
    FAKE_OTHER_ETAG,  // files have other versions
    FAKE_DOUBT,       // listings have names only; "empty" is not there when it is looked up
    FAKE_DOUBT_FAILS, // and nothing can be looked up
};

struct fake_counts {
    _Atomic unsigned connections, hellos, reads, fetches, interrupts, forgotten, released, opens,
        regions, windows, kicks, held;
};

// Listens at path until it is ended.
struct fake_device *fake_device_new(const char *path);
void fake_device_free(struct fake_device *f); // closes all connections, removes the socket
void fake_device_set(struct fake_device *f, enum fake_fault fault);
// What HELLO tells that it serves, as wire/ops.h has it, from the next connection on; at first
// nothing. Not copied.
void fake_device_serve(struct fake_device *f, const char *source, size_t len);
struct fake_counts *fake_device_counts(struct fake_device *f);
void fake_device_disconnect(struct fake_device *f); // all hosts there are

// What the byte at offset of a file is.
uint8_t fake_byte(const char *name, uint64_t offset);
