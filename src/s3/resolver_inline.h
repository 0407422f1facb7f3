// SPDX-License-Identifier: Apache-2.0
// The local half in this process, on a thread of libuv's pool. Used within s3/ only.
#pragma once

#include "s3/credentials.h"

// config is the caller's and must stay until done was called.
struct resolver_inline {
    struct credentials_resolver resolver;
    const struct credentials_config *config;
};

void resolver_inline_init(struct resolver_inline *r, const struct credentials_config *config);
