// SPDX-License-Identifier: Apache-2.0
// Issuing temporary key pairs.
#pragma once

#include "s3d/request.h"

// A key pair of --session-lifetime; NULL when the request has been answered with an error.
const struct credential *issue_credential(struct request *r, char expiration[static 25]);
