// SPDX-License-Identifier: Apache-2.0
#include "gdd/region.h"

#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <ucontext.h>

static _Thread_local struct region_guard *armed;
static struct sigaction before;

void region_guard_arm(struct region_guard *g)
{
    armed = g;
    // the handler runs in this thread: only the compiler could move an access out of the guard
    atomic_signal_fence(memory_order_seq_cst);
}

void region_unguard(struct region_guard *g)
{
    atomic_signal_fence(memory_order_seq_cst);
    armed = NULL;
}

static void on_sigbus(int sig, siginfo_t *info, void *context)
{
    struct region_guard *g = armed;
    bool fault = info->si_code > 0 && info->si_code != BUS_MCEERR_AO;

    if (g && fault) {
        const ucontext_t *interrupted = context;

        armed = NULL;
        // a jump does not restore what is blocked in a handler
        pthread_sigmask(SIG_SETMASK, &interrupted->uc_sigmask, NULL);
        siglongjmp(g->env, 1);
    }
    // As if there were no guard: the instruction that faulted does so again, and what was sent is
    // sent again.
    sigaction(SIGBUS, &before, NULL);
    if (!fault)
        raise(SIGBUS);
}

void region_guard_install(void)
{
    static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
    // SA_NODEFER: what was sent kills when it is sent again
    struct sigaction action = {.sa_sigaction = on_sigbus, .sa_flags = SA_SIGINFO | SA_NODEFER};
    struct sigaction now;

    sigemptyset(&action.sa_mask);
    pthread_mutex_lock(&mutex);
    sigaction(SIGBUS, NULL, &now);
    if (!(now.sa_flags & SA_SIGINFO) || now.sa_sigaction != on_sigbus) {
        before = now;
        sigaction(SIGBUS, &action, NULL);
    }
    pthread_mutex_unlock(&mutex);
}

#if defined(__SANITIZE_THREAD__)
// Unseen: what a host does with its memory at the same time, or has us do to the same bytes twice,
// is no race of ours. As bytes, lest the compiler makes a memcpy of it, which is watched.
__attribute__((no_sanitize_thread, noinline)) static void
copy(volatile char *to, const volatile char *from, size_t len)
{
    while (len--)
        *to++ = *from++;
}
#else
static void copy(void *to, const void *from, size_t len)
{
    memcpy(to, from, len);
}
#endif

int region_copy_in(void *to, const void *host, size_t len)
{
    struct region_guard g;

    if (region_guard(&g)) {
        region_unguard(&g);
        return -EFAULT;
    }
    copy(to, host, len);
    region_unguard(&g);
    return 0;
}

int region_copy_out(void *host, const void *from, size_t len)
{
    struct region_guard g;

    if (region_guard(&g)) {
        region_unguard(&g);
        return -EFAULT;
    }
    copy(host, from, len);
    region_unguard(&g);
    return 0;
}
