// SPDX-License-Identifier: Apache-2.0
// Intrusive doubly linked lists: the link is a member of the listed struct, so that putting an
// operation on a list never allocates and it can leave any list without knowing which.
#pragma once

#include "base/base.h"

struct list {
    struct list *next, *prev;
};

#define LIST_INIT(l) ((struct list){&(l), &(l)})

static inline void list_init(struct list *l)
{
    l->next = l->prev = l;
}

static inline bool list_empty(const struct list *l)
{
    return l->next == l;
}

static inline void list_insert_between(struct list *item, struct list *prev, struct list *next)
{
    item->prev = prev;
    item->next = next;
    prev->next = item;
    next->prev = item;
}

static inline void list_push_back(struct list *head, struct list *item)
{
    list_insert_between(item, head->prev, head);
}

static inline void list_push_front(struct list *head, struct list *item)
{
    list_insert_between(item, head, head->next);
}

// Leaves item a valid list of its own: removing it twice is harmless.
static inline void list_remove(struct list *item)
{
    item->prev->next = item->next;
    item->next->prev = item->prev;
    list_init(item);
}

// Moves all of from to the end of to; from is empty afterwards.
static inline void list_splice_back(struct list *to, struct list *from)
{
    if (list_empty(from))
        return;
    from->next->prev = to->prev;
    to->prev->next = from->next;
    from->prev->next = to;
    to->prev = from->prev;
    list_init(from);
}

#define list_entry(link, type, member) container_of(link, type, member)
#define list_first(head, type, member)                                                             \
    (list_empty(head) ? NULL : list_entry((head)->next, type, member))
#define list_for_each(it, head) for (struct list *it = (head)->next; it != (head); it = it->next)
// it may be removed (or freed) in the body
#define list_for_each_safe(it, head)                                                               \
    for (struct list *it = (head)->next, *it##_next = it->next; it != (head);                      \
         it = it##_next, it##_next = it->next)
