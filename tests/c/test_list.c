/* SPDX-License-Identifier: BSD-3-Clause */
#include "base/list.h"
#include "check.h"

typedef struct item {
    int number;
    dl_list node;
} item;

/* The numbers in the list as decimal digits. */
static int
digits(const dl_list *head)
{
    int forwards = 0;
    int backwards = 0;
    int power = 1;

    for (dl_list *node = head->next; node != head; node = node->next) {
        forwards = forwards * 10 + DL_LIST_ENTRY(node, item, node)->number;
    }
    for (dl_list *node = head->previous; node != head; node = node->previous) {
        backwards += power * DL_LIST_ENTRY(node, item, node)->number;
        power *= 10;
    }
    CHECK_EQUAL(forwards, backwards);
    return forwards;
}

CHECK_CASE(appended_items_keep_their_order)
{
    item items[3] = {{.number = 1}, {.number = 2}, {.number = 3}};
    dl_list head;

    dl_list_init(&head);
    CHECK(dl_list_is_empty(&head));
    for (int i = 0; i < 3; i++) {
        dl_list_append(&head, &items[i].node);
        CHECK(!dl_list_is_empty(&head));
    }
    CHECK_EQUAL(digits(&head), 123);
}

CHECK_CASE(items_are_removed_from_anywhere_and_may_return)
{
    item items[3] = {{.number = 1}, {.number = 2}, {.number = 3}};
    dl_list head;

    dl_list_init(&head);
    for (int i = 0; i < 3; i++) {
        dl_list_append(&head, &items[i].node);
    }
    dl_list_remove(&items[1].node);
    CHECK_EQUAL(digits(&head), 13);
    dl_list_remove(&items[1].node);
    CHECK_EQUAL(digits(&head), 13);
    dl_list_append(&head, &items[1].node);
    CHECK_EQUAL(digits(&head), 132);
    dl_list_remove(&items[0].node);
    dl_list_remove(&items[1].node);
    CHECK_EQUAL(digits(&head), 3);
    dl_list_remove(&items[2].node);
    CHECK(dl_list_is_empty(&head));
}

CHECK_CASE(zeroed_memory_is_in_no_list)
{
    item alone = {0};
    dl_list head = {0};

    dl_list_remove(&alone.node);
    CHECK(dl_list_is_empty(&head));
}
