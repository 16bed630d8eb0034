/* SPDX-License-Identifier: BSD-3-Clause */
#include "check.h"
#include "pg/arguments.h"

#define RANKS 4

static int
count_arrays(dl_op_type op, const void *args)
{
    dl_arrays arrays = dl_arguments_arrays(op, args, RANKS);
    int count = 0;

    while (dl_arrays_at(&arrays, count) != NULL) {
        count++;
    }
    return count;
}

CHECK_CASE(every_array_of_an_operation_is_found)
{
    const dl_tensor list[RANKS] = {0};

    CHECK(count_arrays(DL_ALL_REDUCE, &(dl_all_reduce_args){0}) == 1);
    CHECK(count_arrays(DL_ALL_GATHER, &(dl_all_gather_args){.outputs = list})
          == RANKS + 1);
    CHECK(count_arrays(DL_GATHER, &(dl_gather_args){0}) == 1);
    CHECK(count_arrays(DL_ALL_TO_ALL,
                       &(dl_all_to_all_args){.inputs = list, .outputs = list})
          == 2 * RANKS);
    CHECK(count_arrays(DL_BARRIER, NULL) == 0);
}

/* A card is any bytes, also such as a description of an array on a GPU has. */
CHECK_CASE(cards_of_objects_are_not_taken_for_arrays)
{
    const dl_op_type operations[] = {DL_BROADCAST_OBJECTS, DL_ALL_GATHER_OBJECTS,
                                     DL_GATHER_OBJECTS, DL_SCATTER_OBJECTS};
    dl_tensor cards[RANKS];

    for (int rank = 0; rank < RANKS; rank++) {
        cards[rank] = (dl_tensor){.device = DL_CUDA, .device_index = rank};
    }
    for (size_t i = 0; i < sizeof operations / sizeof *operations; i++) {
        dl_objects_args args = {
            .cards = {.input = {.data = cards, .count = sizeof cards, .item_size = 1},
                      .outputs = cards}};
        CHECK(count_arrays(operations[i], &args) == 0);
        CHECK(dl_arguments_bytes(operations[i], &args) == 0);
    }
}
