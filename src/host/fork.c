// SPDX-License-Identifier: Apache-2.0
#include "host/fork.h"

#include <stdatomic.h>

static pthread_mutex_t registry = PTHREAD_MUTEX_INITIALIZER;
static struct list levels[FORK_LEVELS]; // under registry
static pthread_once_t once = PTHREAD_ONCE_INIT;
static _Atomic unsigned forks;

static void before(void)
{
    pthread_mutex_lock(&registry);
    for (unsigned i = 0; i < FORK_LEVELS; i++)
        list_for_each (it, &levels[i])
            pthread_mutex_lock(&list_entry(it, struct fork_lock, link)->mutex);
}

static void after(void)
{
    for (unsigned i = FORK_LEVELS; i-- > 0;)
        list_for_each (it, &levels[i])
            pthread_mutex_unlock(&list_entry(it, struct fork_lock, link)->mutex);
    pthread_mutex_unlock(&registry);
}

static void after_in_child(void)
{
    atomic_fetch_add(&forks, 1);
    after();
}

static void init(void)
{
    for (unsigned i = 0; i < FORK_LEVELS; i++)
        list_init(&levels[i]);
    pthread_atfork(before, after, after_in_child);
}

void fork_lock_init(struct fork_lock *l, enum fork_level level)
{
    pthread_once(&once, init);
    pthread_mutex_init(&l->mutex, NULL);
    pthread_mutex_lock(&registry);
    list_push_back(&levels[level], &l->link);
    pthread_mutex_unlock(&registry);
}

void fork_lock_fini(struct fork_lock *l)
{
    pthread_mutex_lock(&registry);
    list_remove(&l->link);
    pthread_mutex_unlock(&registry);
    pthread_mutex_destroy(&l->mutex);
}

unsigned fork_count(void)
{
    return atomic_load_explicit(&forks, memory_order_relaxed);
}
