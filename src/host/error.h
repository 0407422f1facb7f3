// SPDX-License-Identifier: Apache-2.0
// The sentence that os2g_last_error gives, one per thread.
#pragma once

#include "base/base.h"

// Remembers the sentence and returns error. What a public call returns as an error has passed
// through here.
int client_fail(int error, const char *fmt, ...) PRINTF_LIKE(2, 3);
// The same for an errno alone, of the system's or a session's: "what: its text", or "its text" when
// what is NULL.
int client_fail_errno(int error, const char *what);
// The sentence so far, for putting more before it.
const char *client_error(void);
// A sentence for what the device has answered about name (a path or key).
int client_fail_name(int error, const char *name, size_t len);
