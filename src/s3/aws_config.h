// SPDX-License-Identifier: Apache-2.0
// The shared configuration and credentials files of the AWS tools (~/.aws/config and
// ~/.aws/credentials). Used within s3/ only.
//
// Source: "AWS SDKs and Tools Reference Guide", "Shared config and credentials files".
// Not on inih: Debian's build of it cuts lines at 200 bytes without a word, and session tokens
// are longer than that.
#pragma once

#include "base/base.h"

enum aws_section { AWS_PROFILE, AWS_SSO_SESSION, AWS_SERVICES };
enum aws_file { AWS_CONFIG_FILE, AWS_CREDENTIALS_FILE };

#define AWS_CONFIG_MAX_BYTES ((size_t)1 << 20)

struct aws_config;

// Parses a whole file. The two kinds differ in how they name a profile: [profile train] (but
// [default]) and [train]. Sections of other kinds are passed over. -EBADMSG with a sentence that
// names path and line in *ret_error (caller frees).
int aws_config_parse(struct aws_config **ret, enum aws_file kind, const char *path,
                     const char *text, size_t len, char **ret_error);
// Reads and parses; a missing file gives an empty configuration. Else -errno with a sentence.
int aws_config_load(struct aws_config **ret, enum aws_file kind, const char *path,
                    char **ret_error);
void aws_config_free(struct aws_config *c); // NULL is allowed

const char *aws_config_path(const struct aws_config *c);
bool aws_config_has(const struct aws_config *c, enum aws_section section, const char *name);
// The value of a key (lower case; "s3.addressing_style" for a nested one), or NULL.
const char *aws_config_get(const struct aws_config *c, enum aws_section section, const char *name,
                           const char *key);
