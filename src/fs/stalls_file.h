// SPDX-License-Identifier: Apache-2.0
// .os2g/stalls, opened (stalls.h).
#pragma once

#include "fs/impl.h"

void stalls_file_open(struct fs *fs, struct fs_request *req);
void stalls_file_read(struct fs *fs, struct fs_request *req, uint32_t handle, uint64_t offset,
                      uint32_t size);
void stalls_handle_free(struct fs *fs, uint32_t handle);
void stalls_handle_forget_private(struct fs *fs, uint32_t handle); // the table keeps the handle
