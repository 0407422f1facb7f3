// SPDX-License-Identifier: Apache-2.0
// Inside daemon/: how many files a process may have open.
#pragma once

#include "base/base.h"

// As many as this process may raise it to.
void open_files_raise(void);
// Whether this process can look after one more export, and a worker of the same limit serve it,
// with so many data loops and connections (0: the default). 0 (with a warning when there will not
// be as many connections), or -EMFILE with a sentence that says what to raise.
int open_files_check(unsigned data_loops, unsigned connections, char **ret_error);
