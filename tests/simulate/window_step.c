/* SPDX-License-Identifier: BSD-3-Clause
 *
 * A step with a window: each rank writes to all others, and counts in the root's memory,
 * once by an atomic update and once under the lock. */
#include "steps.h"

/* The elements of each rank's memory: two counters, and a block from every rank. */
enum {
    COUNTED,
    LOCKED,
    HEAD,
};

static dl_tensor
tensor_of(int64_t *elements, size_t count)
{
    return (dl_tensor){
        .data = elements,
        .count = count,
        .item_size = sizeof *elements,
        .dtype = DL_INT64,
        .ndim = 1,
        .is_contiguous = true,
        .is_writable = true,
    };
}

/* Each call has the whole limit: otherwise a rank that was late to the first would use up
 * the time of the last one, which may wait for another rank. */
static dl_deadline
renew(dl_deadline *deadline)
{
    deadline->at = sim.now + deadline->limit;
    return *deadline;
}

static dl_status
write_blocks(dl_window *window, const sim_step *step, dl_deadline *deadline)
{
    int rank = dl_group_rank(dl_window_group(window));
    int64_t *block = sim_allocate((step->count + 1) * sizeof *block);
    dl_tensor input = tensor_of(block, step->count);
    dl_status status = DL_OK;

    for (int to = 0; status == DL_OK && to < dl_group_size(dl_window_group(window));
         to++) {
        dl_window_access put = {
            .rank = to,
            .offset = HEAD + rank * (int64_t)step->count,
            .input = &input,
        };
        for (size_t i = 0; i < step->count; i++) {
            block[i] = sim_step_value(step, rank, to, i);
        }
        status = dl_window_put(window, &put, renew(deadline));
    }
    sim_release(block);
    return status;
}

static dl_status
count(dl_window *window, int root, dl_deadline *deadline)
{
    int64_t number = 1;
    dl_tensor array = tensor_of(&number, 1);
    dl_window_access access = {.rank = root, .offset = COUNTED, .input = &array};

    DL_TRY(dl_window_update(window, &access, renew(deadline)));
    DL_TRY(dl_window_lock(window, root, false, renew(deadline)));
    access = (dl_window_access){.rank = root, .offset = LOCKED, .output = &array};
    DL_TRY(dl_window_get(window, &access, renew(deadline)));
    number++;
    access = (dl_window_access){.rank = root, .offset = LOCKED, .input = &array};
    DL_TRY(dl_window_put(window, &access, renew(deadline)));
    return dl_window_unlock(window, root, renew(deadline));
}

static void
check_element(const dl_window *window, const sim_step *step, size_t i, int64_t expected)
{
    int64_t found = ((const int64_t *)dl_window_own(window))[i];

    if (found != expected) {
        sim_fail("rank %d has %lld in place of %lld at %zu of the window of step %d",
                 dl_group_rank(dl_window_group(window)), (long long)found,
                 (long long)expected, i, step->number);
    }
}

static void
check_memory(const dl_window *window, const sim_step *step)
{
    int rank = dl_group_rank(dl_window_group(window));
    int size = dl_group_size(dl_window_group(window));

    check_element(window, step, COUNTED, rank == step->root ? size : 0);
    check_element(window, step, LOCKED, rank == step->root ? size : 0);
    for (int from = 0; from < size; from++) {
        for (size_t i = 0; i < step->count; i++) {
            check_element(window, step, HEAD + (size_t)from * step->count + i,
                          sim_step_value(step, from, rank, i));
        }
    }
}

static dl_status
use_window(dl_window *window, const sim_step *step, dl_deadline *deadline)
{
    DL_TRY(write_blocks(window, step, deadline));
    DL_TRY(count(window, step->root, deadline));
    DL_TRY(dl_window_fence(window, renew(deadline)));
    check_memory(window, step);
    return dl_window_close(window, renew(deadline));
}

dl_status
sim_window_run(dl_group *group, const sim_step *step, dl_deadline *deadline,
               dl_window **window)
{
    const dl_tensor model = tensor_of(NULL, 0);
    uint64_t size = HEAD + (uint64_t)dl_group_size(group) * step->count;

    DL_TRY(dl_window_new(group, &model, size, *deadline, window));
    return use_window(*window, step, deadline);
}
