/* SPDX-License-Identifier: BSD-3-Clause */
#include <stdlib.h>
#include <string.h>

#include "check.h"
#include "pg/call.h"

#define RANKS 4

static int
count_arrays(const dl_call *call)
{
    dl_arrays arrays = dl_call_arrays(call, RANKS);
    int count = 0;

    while (dl_arrays_at(&arrays, count) != NULL) {
        count++;
    }
    return count;
}

CHECK_CASE(every_array_of_a_call_is_found)
{
    const dl_tensor list[RANKS] = {0};

    CHECK(count_arrays(&(dl_call){.op = DL_ALL_REDUCE}) == 1);
    CHECK(count_arrays(&(dl_call){.op = DL_ALL_GATHER, .outputs = list}) == RANKS + 1);
    CHECK(count_arrays(&(dl_call){.op = DL_GATHER}) == 1);
    CHECK(count_arrays(&(dl_call){.op = DL_RECV_ANY}) == 1);
    CHECK(count_arrays(&(dl_call){.op = DL_ALL_TO_ALL, .inputs = list, .outputs = list})
          == 2 * RANKS);
    CHECK(count_arrays(&(dl_call){.op = DL_BARRIER}) == 0);
}

/* What a rank announces of a window is any bytes, also such as a description of an array
 * on a GPU has. */
CHECK_CASE(parts_of_windows_are_not_taken_for_arrays)
{
    dl_tensor parts[RANKS];

    for (int rank = 0; rank < RANKS; rank++) {
        parts[rank] = (dl_tensor){.device = DL_CUDA, .device_index = rank};
    }
    dl_call call = {
        .op = DL_WINDOW,
        .tensor = {.data = parts, .count = sizeof parts, .item_size = 1},
        .outputs = parts,
    };
    CHECK(count_arrays(&call) == 0);
    CHECK(dl_call_bytes(&call) == 0);
}

/* The caller may reshape an array later, and lists may be on its stack. */
CHECK_CASE(a_copy_has_lists_shapes_and_strides_of_its_own)
{
    int64_t shape[] = {2, 3}, strides[] = {24, 8};
    dl_tensor list[RANKS];
    _Alignas(max_align_t) char near[2048];
    const dl_room rooms[] = {{near, sizeof near}, {near, 16}, {NULL, 0}};

    for (int i = 0; i < RANKS; i++) {
        list[i] = (dl_tensor){.ndim = 2, .shape = shape, .count = (size_t)i};
    }
    for (size_t i = 0; i < sizeof rooms / sizeof *rooms; i++) {
        dl_call call = {.op = DL_SCATTER,
                        .root = 3,
                        .tensor = {.ndim = 2, .shape = shape, .strides = strides},
                        .inputs = list};
        dl_call *copy;
        CHECK_OK(dl_call_copy(&call, RANKS, rooms[i], &copy));
        shape[0] = 7;
        list[2].count = 9;
        CHECK(copy->op == DL_SCATTER && copy->root == 3 && copy->outputs == NULL);
        CHECK(copy->tensor.shape[0] == 2 && copy->tensor.shape[1] == 3);
        CHECK(copy->tensor.strides[0] == 24);
        CHECK(copy->inputs[2].count == 2 && copy->inputs[3].shape[0] == 2);
        CHECK((copy == (void *)near) == (i == 0));
        shape[0] = 2;
        list[2].count = 2;
        if (copy != (void *)near) {
            free(copy);
        }
    }
}
