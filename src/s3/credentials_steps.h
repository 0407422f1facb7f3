// SPDX-License-Identifier: Apache-2.0
// What the two halves of credentials.h say to each other, and the steps from that to keys. Used
// within s3/ only.
//
// The local half writes
//
//   {"settings": {"region", "endpoint_url", "ca_bundle", "addressing_style"},   each if known
//    "steps": [{"kind": …, "source": who to name in messages, …}, …]}
//
// The first step gives keys; each further one is an assume_role with the keys so far:
//
//   keys          access_key, secret_key, session_token?, expires_s?
//   anonymous
//   web_identity  sts_url, sts_region, role_arn, session_name, token
//   sso           url, account_id, role_name, token
//   container     url, authorization?
//   imds          url?, last_resort?: nothing else was found, so silence means "no source"
//   assume_role   sts_url, sts_region, role_arn, session_name, external_id?, duration_s?
#pragma once

#include "s3/credentials.h"

#include <jansson.h>

// --- the local half ---

struct local {
    const struct credentials_config *config;
    const char *profile; // the name that is meant
    bool profile_named;  // by the user, not just "default"
    char *home;
    struct aws_config *credentials_file, *config_file;
    json_t *steps;
    char *error;
    bool not_text; // some value was not UTF-8, which JSON needs
};

// A step of that kind is appended; values that are NULL are left out.
json_t *local_step_add(struct local *l, const char *kind, const char *source);
void local_step_set(struct local *l, json_t *step, const char *name, const char *value);
void local_sts_set(struct local *l, json_t *step);
// Where service ("STS") is asked: AWS_ENDPOINT_URL_STS, AWS_ENDPOINT_URL, the profile's
// endpoint_url for it ("sts") or at all; NULL: at Amazon's. The caller frees.
char *local_endpoint(const struct local *l, const char *env_suffix, const char *service);

// Each: 1 when it added steps, 0 when its source has nothing, -errno with l->error.
int local_profile(struct local *l);   // credentials_profile.c
int local_container(struct local *l); // credentials_local.c
int local_imds(struct local *l, bool last_resort);
int local_environment_keys(struct local *l);
int local_web_identity(struct local *l, const char *role, const char *file, const char *session);
int local_passwd_file(struct local *l); // credentials_passwd.c
// As a step of kind keys; takes the reference.
void local_keys_add(struct local *l, struct credentials *c);
