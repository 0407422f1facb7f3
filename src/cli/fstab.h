// SPDX-License-Identifier: Apache-2.0
// Options as they stand in /etc/fstab: comma-separated, in our own names ('-' and '_' alike), in
// mount(8)'s and in s3fs's.
#pragma once

#include "daemon/export_options.h"

// text: "url=http://10.0.0.5:9000,use_path_request_style,ro"; a backslash takes the next character
// literally. sloppy: what is unknown is passed over. -EINVAL with a sentence in *ret_error.
int fstab_options_apply(struct export_options *o, const char *text, bool sloppy, char **ret_error);
