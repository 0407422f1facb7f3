// SPDX-License-Identifier: Apache-2.0
// cmocka with the headers it wants before itself, and what tests know of the build.
#pragma once

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

// How many times longer things may take in this build: sanitizers need their time.
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
#define TEST_SLOWED_DOWN 5
#else
#define TEST_SLOWED_DOWN 1
#endif
