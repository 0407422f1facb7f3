// SPDX-License-Identifier: Apache-2.0
// Making struct credentials from what sources hand out. Used within s3/ only.
#pragma once

#include "s3/credentials.h"

#include <jansson.h>

// A reference to new credentials; token may be NULL. NULL with a sentence naming the source in
// *ret_error (caller frees) when these can't be keys: empty, or with characters that a header
// cannot carry.
struct credentials *credentials_make(const char *source, const char *access_key,
                                     const char *secret_key, const char *token, int64_t expires_s,
                                     char **ret_error);
struct credentials *credentials_make_anonymous(const char *source);
bool credentials_same_keys(const struct credentials *a, const struct credentials *b);

// "2026-11-29T18:29:03Z", also with an offset as some sources write it. 0 or -EINVAL.
int credentials_parse_expiration(const char *s, int64_t *ret_s);

// The JSON documents with keys in them that sources hand out:
enum credentials_document {
    CREDENTIALS_PROCESS,  // credential_process: Version 1, SessionToken, Expiration
    CREDENTIALS_METADATA, // container and instance: Token, Expiration, perhaps Code and Message
    CREDENTIALS_SSO,      // GetRoleCredentials: roleCredentials, expiration in milliseconds
};
struct credentials *credentials_from_document(enum credentials_document kind, const char *source,
                                              const char *text, size_t len, char **ret_error);
