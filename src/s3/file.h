// SPDX-License-Identifier: Apache-2.0
// Small files with settings or secrets in them. Used within s3/ only.
#pragma once

#include "base/buf.h"

// Adds the whole file to out. -errno (-EFBIG beyond max bytes) with a sentence for people in
// *ret_error (caller frees).
int file_read_small(const char *path, size_t max, struct buf *out, char **ret_error);
// Overwrites and frees.
void file_forget(struct buf *b);
