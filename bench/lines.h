// SPDX-License-Identifier: Apache-2.0
// The lines of a file of names, for the programs of the benchmarks.
#pragma once

#include <stddef.h>

// Ends the process with a message when path can't be read. The process keeps the lines.
char **lines_read(const char *path, size_t *ret_n);
