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
void s3d_process_set_latency(struct s3d_process *p, const char *spec);
void s3d_process_reset_counters(struct s3d_process *p);
// A number of GET /_s3d/counters by its path of names: "operations.GetObject", "statuses.206"; 0 if
// absent.
uint64_t s3d_process_counter(struct s3d_process *p, const char *name);
