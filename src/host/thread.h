// SPDX-License-Identifier: Apache-2.0
// The library's few threads: in a guest, and for reads in the order of a CUDA stream. They take no
// signals, which are for the program's.
#pragma once

#include "base/base.h"

#include <pthread.h>
#include <signal.h>

static inline int thread_start(pthread_t *ret, void *(*run)(void *), void *arg)
{
    sigset_t all, before;
    int rc;

    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    rc = pthread_create(ret, NULL, run, arg);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return -rc;
}
