// SPDX-License-Identifier: Apache-2.0
// Inside daemon/: what kinds of value the options of an export take.
#pragma once

#include "daemon/export_options.h"

enum export_option_kind {
    SWITCH,     // bool
    TEXT,       // char *
    FILE_PATH,  // char *, made absolute; must be readable
    DIRECTORY,  // char *, made absolute; must be a directory
    SIZE,       // uint64_t, bytes
    DURATION,   // uint64_t, ns, more than 0
    TTL,        // uint64_t, ns, or minimal, or indefinite
    COUNT,      // unsigned
    MODE,       // uint32_t, octal
    USER,       // uint32_t
    GROUP,      // uint32_t
    GBPS,       // uint64_t, bytes per second
    PATH_STYLE, // enum s3_addressing
    PREFIX,     // char *, ends with '/'
    LOG_SPEC,   // char *
    READ_ONLY,  // nothing: a mount is read-only
};

#define EXPORT_OPTIONS_MAX 64 // names in the table, at most
