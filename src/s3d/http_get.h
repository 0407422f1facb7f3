// SPDX-License-Identifier: Apache-2.0
// One small blocking GET of a plain HTTP server, for os2g-s3d's own commands.
#pragma once

#include "base/buf.h"

// url: http://HOST:PORT. 0 and the body of a 200, or -errno.
int http_get(const char *url, const char *path, struct buf *body);
