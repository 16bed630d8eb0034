/* SPDX-License-Identifier: BSD-3-Clause
 *
 * An intrusive, circular doubly linked list.  The head is a node of its own.  A zeroed
 * node is in no list, and removing it does nothing. */
#ifndef DISTLITE_BASE_LIST_H
#define DISTLITE_BASE_LIST_H

#include <stdbool.h>
#include <stddef.h>

typedef struct dl_list {
    struct dl_list *next;
    struct dl_list *previous;
} dl_list;

#define DL_LIST_ENTRY(node, type, member) \
    ((type *)(void *)((char *)(node) - offsetof(type, member)))

static inline void
dl_list_init(dl_list *head)
{
    head->next = head;
    head->previous = head;
}

/* A zeroed head counts as empty, so that a structure which was never initialised can be
 * torn down like any other. */
static inline bool
dl_list_is_empty(const dl_list *head)
{
    return head->next == head || head->next == NULL;
}

static inline void
dl_list_append(dl_list *head, dl_list *node)
{
    node->previous = head->previous;
    node->next = head;
    head->previous->next = node;
    head->previous = node;
}

static inline void
dl_list_remove(dl_list *node)
{
    /* NULL marks a node that is in no list. */
    if (node->next != NULL) {
        node->next->previous = node->previous;
        node->previous->next = node->next;
        node->next = NULL;
        node->previous = NULL;
    }
}

/* Puts `to`, which is in no list, in the place of `from`. */
static inline void
dl_list_replace(dl_list *from, dl_list *to)
{
    dl_list_append(from, to);
    dl_list_remove(from);
}

/* Moves all nodes of one list to the end of another; both heads must be initialised. */
static inline void
dl_list_move(dl_list *from, dl_list *to)
{
    while (!dl_list_is_empty(from)) {
        dl_list *node = from->next;
        dl_list_remove(node);
        dl_list_append(to, node);
    }
}

#endif
