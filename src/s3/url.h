// SPDX-License-Identifier: Apache-2.0
// The http and https URLs that people and metadata services write: endpoints, STS, container
// credentials. Used within s3/ only.
#pragma once

#include "base/buf.h"

struct url {
    bool tls;
    char host[256]; // without brackets
    bool host_is_address;
    uint16_t port;
    char target[1024]; // path and query as written, "/" if none; no fragment
};

// -EINVAL with a sentence for people in *ret_error (caller frees).
int url_parse(const char *text, struct url *ret, char **ret_error);

// What goes into Host: brackets around an IPv6 address, the port unless it is the scheme's.
void url_host_header(const struct url *u, struct buf *out);

// The domain of Amazon's services in a region's partition: "amazonaws.com", "amazonaws.com.cn", ...
const char *aws_domain(const char *region);

// A region becomes part of a host name and of the signature's scope: letters, digits, '-' and
// '_' (some stores have "RegionOne"), at most 63.
bool aws_region_is_valid(const char *region);
