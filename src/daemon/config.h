// SPDX-License-Identifier: Apache-2.0
// os2gd's configuration: an INI file.
//
//   [daemon]
//   metrics = 127.0.0.1:9464        or unix:/run/os2g/metrics.sock
//   log-level = info
//
//   [export train]
//   source = s3://datasets/train
//   mount = /data/train                    or socket = /run/os2g/train, or both
//   endpoint-url = http://10.0.0.5:9000    and every other option of os2g mount
#pragma once

#include "daemon/export_options.h"

struct config_export {
    char *name;
    struct export_options *options;
};

struct config {
    char *metrics; // NULL: none
    char *log_level;
    char *log_directory;
    struct config_export *exports;
    size_t n;
};

// text ends with zero. Exports' options start out as owner's and are complete. -EINVAL with
// "line 7: sentence" in *ret_error; ret is empty then.
int config_parse(struct config *ret, const char *text, uid_t uid, gid_t gid, char **ret_error);
// The same of a file; -errno also when it cannot be read.
int config_read(struct config *ret, const char *path, uid_t uid, gid_t gid, char **ret_error);
void config_fini(struct config *c);
