// SPDX-License-Identifier: Apache-2.0
// The keys of a synthetic bucket, computed and not stored.
//
// A bucket is "NAME: FAMILY; FAMILY; ...", a family "PATTERN SIZE [x COUNT]...": each %0Nd or %d of
// the pattern counts from 0 to its COUNT - 1, padded with zeros to N digits, or to as many as the
// largest number has; %% is a percent sign. So all keys of a family have one length, and the order
// of their numbers is the order of their bytes.
// SIZE is a size, uniform:MIN-MAX, or lognormal:MEDIAN,SIGMA; a drawn size depends on bucket and
// key alone.
#pragma once

#include "base/base.h"

enum size_kind { SIZE_FIXED, SIZE_UNIFORM, SIZE_LOGNORMAL };

struct family_size {
    enum size_kind kind;
    uint64_t a, b; // fixed: a; uniform: a..b; lognormal: median a
    double sigma;
};

#define FAMILY_MAX_NUMBERS 8

struct family {
    // literal 0, number 0, literal 1, number 1, ... literal n_numbers
    char *literals[FAMILY_MAX_NUMBERS + 1];
    uint64_t counts[FAMILY_MAX_NUMBERS];
    unsigned widths[FAMILY_MAX_NUMBERS];
    unsigned n_numbers;
    uint64_t n_keys;
    size_t key_len;
    struct family_size size;
};

struct family_set {
    struct family *items;
    size_t len;
};

#define FAMILY_MAX_KEY 1024

// Parses the families of one bucket (what follows "NAME:"). 0, or -EINVAL and a message in *ret_why
// (the caller frees it).
int family_set_parse(struct family_set *s, const char *spec, char **ret_why);
void family_set_fini(struct family_set *s);

// The size of the named object, or -ENOENT. Where two families make the same key, the first counts.
int family_set_find(const struct family_set *s, const char *bucket, const char *key,
                    uint64_t *ret_size);

// Writes the first key >= key (strictly greater if after) into out; its size too. -ENOENT at the
// end.
int family_set_next(const struct family_set *s, const char *bucket, const char *key, bool after,
                    char out[static FAMILY_MAX_KEY + 1], uint64_t *ret_size);
