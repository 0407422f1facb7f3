// SPDX-License-Identifier: Apache-2.0
// Runs os2g-s3d for a component test: on a free port of 127.0.0.1, ended by its process id.
#pragma once

#include "base/base.h"

#include <sys/types.h>

struct s3d_process {
    pid_t pid;
    uint16_t port;
    char url[40]; // http://127.0.0.1:PORT
};

// Starts "$OS2G_S3D serve" with these further arguments (NULL at the end) and waits until it
// listens. Ends the test program when it cannot.
void s3d_process_start(struct s3d_process *p, const char *const *args);
void s3d_process_stop(struct s3d_process *p);

// One request to the admin (or anything else that needs no signature); the body of the answer,
// which the caller frees. Ends the test program unless the status is 2xx.
char *s3d_process_ask(struct s3d_process *p, const char *method, const char *path,
                      const char *body);
void s3d_process_set_faults(struct s3d_process *p, const char *rules); // "" for none
// Rules for a bit of everything that goes wrong with GETs.
#define S3D_FAULTS                                                                                 \
    "seed 7\n"                                                                                     \
    "GET * 2% status 500\n"                                                                        \
    "GET * 2% status 503 SlowDown\n"                                                               \
    "GET * 2% reset head\n"                                                                        \
    "GET * 2% reset 50%\n"                                                                         \
    "GET * 2% close 30%\n"                                                                         \
    "GET * 2% short 1\n"                                                                           \
    "GET * 2% long 1\n"                                                                            \
    "GET * 2% content-range 1\n"                                                                   \
    "GET * 2% xml200\n"                                                                            \
    "GET * 2% delay 50ms\n"
void s3d_process_set_latency(struct s3d_process *p, const char *spec);
void s3d_process_reset_counters(struct s3d_process *p);
// A number of GET /_s3d/counters by its path of names: "operations.GetObject", "statuses.206"; 0 if
// absent.
uint64_t s3d_process_counter(struct s3d_process *p, const char *name);
