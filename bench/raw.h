// SPDX-License-Identifier: Apache-2.0
// The pieces of the bare client; see raw.c.
#pragma once

#include "base/base.h"

#include <netinet/in.h>

_Noreturn void raw_die(const char *what);
int raw_connect(const struct sockaddr_in *addr);

// Lists each prefix of file in bucket with delimiter '/', page by page, one request at a time, on
// one connection, through the product's own parser.
void raw_list(const struct sockaddr_in *addr, const char *host, const char *bucket,
              const char *file, uint64_t *requests, uint64_t *bytes);
