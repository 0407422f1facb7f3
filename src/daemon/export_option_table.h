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
    SOCKET,     // char *, made absolute, or "none"
    USERS,      // uint32_t * and size_t behind it: a list, which grows each time
    GPU_FILES,  // struct region_file * and size_t behind it: the same
    READ_ONLY,  // nothing: a mount is read-only
};

#define EXPORT_OPTIONS_MAX 64 // names in the table, at most

// Into its field. trusted: by a process with more rights, which has looked at the files. -EINVAL,
// or -errno of a file or of a name that is not known.
int export_option_apply(struct export_options *o, const struct export_option *opt,
                        const char *value, bool trusted);
// What would do.
const char *export_option_hint(enum export_option_kind kind);
// A user's or group's name or number. -ENOENT, -ERANGE.
int export_option_parse_id(const char *value, bool group, uint32_t *ret);
