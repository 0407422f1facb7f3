// SPDX-License-Identifier: Apache-2.0
// A stand-in for s3/'s GET, linked in its place: a test sees each GET that the cache starts and
// says what becomes of it, or lets all succeed at once. Bytes are a function of key and offset; a
// key ends with its object's size, "a:1000".
#pragma once

#include "s3/s3.h"

uint8_t fake_byte(const char *key, uint64_t offset);

void fake_reset(void);
void fake_set_connections(unsigned n);
// Every GET from now on succeeds, in pieces of up to this many bytes. 0: the test says.
void fake_set_automatic(size_t piece);

// GETs are numbered as they come, from 0.
unsigned fake_count(void);
void fake_wait(unsigned n); // until there were n GETs; fails the test if they do not come
uint64_t fake_offset(unsigned get);
uint64_t fake_len(unsigned get);
bool fake_is_demand(unsigned get); // started as demand, or raised
bool fake_cancelled(unsigned get);
uint64_t fake_bytes_asked(void);

void fake_head(unsigned get, uint64_t size); // a good head comes that tells this size
void fake_land(unsigned get, uint64_t n);    // after the head
void fake_finish(unsigned get, int error);
void fake_succeed(unsigned get, uint64_t size); // head, all bytes, finish
