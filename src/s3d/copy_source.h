// SPDX-License-Identifier: Apache-2.0
// The source of CopyObject and UploadPartCopy.
#pragma once

#include "s3d/request.h"

// Finds what x-amz-copy-source names, with its bytes, and checks rights and conditions. False when
// the request has been answered.
bool copy_source_open(struct request *r, struct object *ret);
// Makes len bytes of o from off on a blob of its own (or the same, where it can be shared), with
// an MD5 as ETag where o's is not one. 0 or -errno.
int copy_source_materialize(struct request *r, struct object *o, uint64_t off, uint64_t len);
