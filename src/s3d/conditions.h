// SPDX-License-Identifier: Apache-2.0
// Conditional requests (RFC 9110 §13) and ranges (§14).
#pragma once

#include "s3d/request.h"

// 0 when the request may go on with this version of the object, else the status: 304 or 412.
// prefix: "" for If-Match and so on, "x-amz-copy-source-" for a copy's source.
int conditions_check(const struct request *r, const char *prefix, const struct object *o);

// Parses a Range header. 0 and a part of size; 1 when it is to be ignored; -ERANGE when nothing of
// it is there.
int range_parse(const char *range, uint64_t size, uint64_t *ret_off, uint64_t *ret_len);
