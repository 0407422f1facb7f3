// SPDX-License-Identifier: Apache-2.0
// What an upload's head says about the object: type, storage class, user metadata.
#pragma once

#include "s3d/request.h"

struct meta *upload_meta_of_request(const struct request *r);
