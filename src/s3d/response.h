// SPDX-License-Identifier: Apache-2.0
// Filling in a request's response.
#pragma once

#include "s3d/request.h"

void response_error(struct request *r, enum s3_error e);
// message: in place of the usual one, or NULL. extra: XML elements, or NULL.
void response_error_with(struct request *r, enum s3_error e, const char *message,
                         const char *extra);
// Any status with any code, for faults.
void response_error_raw(struct request *r, int status, const char *code, const char *message,
                        const char *extra);
// The error for a negative errno that a store gave.
void response_errno(struct request *r, int rc);

void response_xml(struct request *r, int status); // r->response.text is XML
void response_json(struct request *r, int status);
void response_empty(struct request *r, int status);
void response_header(struct request *r, const char *name, const char *value);
void response_header_etag(struct request *r, const char *etag);

// Drops the body and what was said so far, before another answer is given.
void response_reset(struct request *r);

// Writes status line and headers, with the length promised.
void response_write_head(struct request *r, uint64_t promised, struct buf *out);
uint64_t response_body_len(const struct request *r);
// The response to HEAD, and 204 and 304, have no body whatever their length says.
bool response_is_bodyless(const struct request *r);
