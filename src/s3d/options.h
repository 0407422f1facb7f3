// SPDX-License-Identifier: Apache-2.0
// The command line of os2g-s3d serve.
#pragma once

#include "s3d/credentials.h"
#include "s3d/latency.h"
#include "s3d/store.h"

struct options {
    char *listen_host;
    uint16_t port;
    const char *port_file, *data_path, *faults_path, *log_path;
    const char *domain, *region;
    const char *tls_cert, *tls_key;
    unsigned threads;
    bool anonymous;
    int64_t clock_offset_s;
    struct latency latency;
    uint64_t bandwidth, bandwidth_total; // bytes a second; 0: no limit
    uint64_t idle_timeout_ns;            // 0: kept-alive connections stay
    uint64_t max_requests;               // per connection; 0: no limit
    // temporary credentials
    const char *web_identity_token, *imds_role, *container_token;
    uint64_t session_lifetime_s;
    // buckets and keys of the command line, for the server to take over
    struct option_bucket {
        char *name;
        struct family_set families;
        bool is_synthetic;
    } * buckets;
    size_t n_buckets;
    const char **requester_pays;
    size_t n_requester_pays;
    struct option_key {
        const char *access, *secret;
    } * keys;
    size_t n_keys;
    const char *auth_file;
};

// argv[0] is the first option. 0; 1 when --help was printed; -EINVAL after a message on stderr.
// Strings point into argv where they can.
int options_parse(struct options *o, int argc, char **argv);
void options_fini(struct options *o);
