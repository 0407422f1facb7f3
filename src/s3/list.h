// SPDX-License-Identifier: Apache-2.0
// Inside s3/: a page of a listing with a patience of its own, for probe.c.
#pragma once

#include "s3/s3.h"

void s3_list_start_for(struct s3_client *c, struct s3_list *l, uint64_t retry_timeout_ns);
