// SPDX-License-Identifier: Apache-2.0
// The program that runs in the guests of the system tests: their init, and whatever they do there.
// Static, on libc alone.
//
// The host talks to it over the second serial line (tests/system/vm.py is the other side):
//
//   WORKER \t NUMBER \t COMMAND \t WORD …        one line
//   {"n": NUMBER, …}                             any number of lines of results
//   {"n": NUMBER, "end": RC, …}                  the last one; RC 0 or -errno
//
// Each worker is a process that is made when it is first named and carries out its lines one after
// the other, so that open files, identities and blocked calls are a worker's own. Commands of init
// itself go to the worker "init".
#pragma once

#include <errno.h>
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/types.h>

#define WORDS_MAX 1024

struct command {
    unsigned long number;
    int argc;
    char *argv[WORDS_MAX + 1]; // argv[0]: the command; NULL ends them
};

extern volatile sig_atomic_t guest_stop; // init was told to stop what this worker does

// Begins a line of results; fields follow, then say_end. One write() for a line.
void say_begin(const struct command *c);
void say_text(const char *name, const char *value); // any bytes
void say_number(const char *name, int64_t value);
void say_end(void);
// The last line. Further fields come before: say_begin, …, say_result.
void say_result(int rc);

uint64_t word_number(const struct command *c, int i); // 0 when there is no such word
const char *word(const struct command *c, int i);     // "" when there is none
uint64_t now_ns(void);

struct command_kind {
    const char *name;
    int (*run)(const struct command *c); // 0 or -errno; its results have been said
};
extern const struct command_kind file_commands[], pci_commands[], gdd_commands[];

// --- digest.c ---

struct sha256 {
    uint32_t h[8];
    uint64_t len;
    uint8_t block[64];
};
void sha256_init(struct sha256 *s);
void sha256_add(struct sha256 *s, const void *data, size_t len);
void sha256_hex(struct sha256 *s, char out[65]);
void say_sha256(const char *name, const void *data, size_t len);

// --- synthetic.c ---

// The bytes of a synthetic object (src/s3d/synthetic.h): whether these len bytes are those from
// start + offset on. The index of the first that is not, or -1.
int64_t synthetic_check(uint64_t start, uint64_t offset, const void *data, size_t len);

// --- pci.c ---

// The BAR of the index-th ivshmem device, mapped (once). 0 or -errno.
int bar_map(unsigned index, void **ret, uint64_t *ret_size);
