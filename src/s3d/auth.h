// SPDX-License-Identifier: Apache-2.0
// Who is asking, and whether they may: SigV4 in the Authorization header or the query.
#pragma once

#include "s3d/request.h"

// True when the request may go on; r->who and r->signature are set. Else it has been answered.
bool auth_check(struct request *r);
// Whether r's credential has the right for this bucket and key, beyond what auth_check saw.
bool auth_may(const struct request *r, unsigned right, const char *bucket, const char *key);
