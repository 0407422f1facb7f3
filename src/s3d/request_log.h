// SPDX-License-Identifier: Apache-2.0
// --log-requests: one line for each answered request.
#pragma once

#include "s3d/conn.h"

void request_log_write(struct conn *c);
