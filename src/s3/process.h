// SPDX-License-Identifier: Apache-2.0
// Runs a credential_process. Used within s3/ only.
#pragma once

#include "base/buf.h"

#define PROCESS_OUTPUT_MAX ((size_t)1 << 20)

// Splits a command line into words as a POSIX shell would, with quotes and backslashes but
// without expanding anything. The words end with NULL; free with process_words_free. -EINVAL when
// a quote is not closed or there is no word.
int process_words(const char *command, char ***ret);
void process_words_free(char **words);

// Runs command (no shell), its standard input empty, and adds what it writes to out. The process
// and its group are killed when it takes longer than timeout_ns or writes too much. join_group: it
// is put into our own group, which is somebody else's to kill; then it alone is killed here.
// -errno, with a sentence for people in *ret_error (caller frees), unless it exits with 0. Blocks.
int process_run(const char *command, uint64_t timeout_ns, bool join_group, struct buf *out,
                char **ret_error);
