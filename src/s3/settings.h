// SPDX-License-Identifier: Apache-2.0
// Which server, region and addressing style a bucket is asked at, from options, the environment
// (AWS_ENDPOINT_URL_S3, AWS_ENDPOINT_URL, AWS_REGION, AWS_DEFAULT_REGION, AWS_CA_BUNDLE,
// AWS_IGNORE_CONFIGURED_ENDPOINT_URLS) and the profile, in that order.
#pragma once

#include "base/base.h"

enum s3_addressing { S3_ADDRESSING_AUTO, S3_ADDRESSING_PATH, S3_ADDRESSING_VIRTUAL };

#define S3_CONNECTIONS_DEFAULT 64

struct s3_settings {
    char *bucket;
    char *endpoint_url; // NULL: Amazon's for the region
    char *region;       // NULL: us-east-1 until the store says otherwise
    char *profile;      // NULL: AWS_PROFILE, else "default"
    char *ca_file;
    char *proxy; // NULL: the environment's
    enum s3_addressing
        addressing; // AUTO: path with an endpoint_url or a bucket with dots, else virtual
    bool no_sign_request;
    bool requester_pays;
    bool dualstack, fips, accelerate; // Amazon's variants of the host name
    char *access_key, *secret_key, *session_token, *passwd_file; // explicit credentials, or NULL

    uint64_t retry_timeout_ns;   // without progress; 0: 60 s
    uint64_t first_timeout_ns;   // of a client that nobody has answered yet; 0: the same
    unsigned max_connections;    // over all loops; 0: S3_CONNECTIONS_DEFAULT
    uint64_t max_bytes_per_s;    // 0: no limit
    unsigned max_requests_per_s; // 0: no limit
    bool no_hedging;
};

void s3_settings_fini(struct s3_settings *s);
struct s3_settings *s3_settings_dup(const struct s3_settings *s); // deep
void s3_settings_free(struct s3_settings *s);

// "s3://bucket/some/prefix/" -> bucket, prefix ("" if none; a '/' is added to its end if it lacks
// one). Also takes "bucket" and "bucket/prefix" and s3fs's "bucket:/prefix". -EINVAL with a
// sentence in *ret_error.
int s3_url_parse(const char *url, char **ret_bucket, char **ret_prefix, char **ret_error);

// Fills what is NULL from the environment and the profile's json (from
// credentials_local_resolve; NULL: none) and checks it all. -EINVAL with a sentence in *ret_error.
int s3_settings_complete(struct s3_settings *s, const char *profile_json, char **ret_error);

// Scheme, host, port and path prefix to ask at.
struct s3_endpoint {
    bool tls;
    char host[256]; // as connected to, and as in Host (with the bucket in front for virtual style)
    uint16_t port;
    char host_header[264]; // with :port when it is not the scheme's
    char base_path[1100]; // "" or "/bucket" (percent-encoded) or the endpoint URL's own path before
                          // it
    bool path_style;
};

// region NULL: s->region or us-east-1.
int s3_endpoint_build(const struct s3_settings *s, const char *region, struct s3_endpoint *ret,
                      char **ret_error);
