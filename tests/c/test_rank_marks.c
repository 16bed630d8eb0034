/* SPDX-License-Identifier: BSD-3-Clause */
#include "check.h"
#include "pg/nccl/rank_marks.h"
#include "store/hash_store.h"

static dl_deadline
soon(void)
{
    return dl_deadline_after(10 * DL_SECOND);
}

/* All come but one, who is then named, and is the last one. */
static void
check_marks(int count, int late)
{
    dl_store *store;
    bool is_last = true;

    CHECK_OK(dl_hash_store_new(&store));
    dl_rank_marks marks = {.store = store, .step = "step", .count = count};
    for (int i = count - 1; i >= 0; i--) {
        if (i != late) {
            CHECK_OK(dl_rank_marks_add(&marks, i, soon(), &is_last));
            CHECK(!is_last);
        }
    }
    CHECK_EQUAL(dl_rank_marks_find_absent(&marks, 0, soon()), late);
    CHECK_EQUAL(dl_rank_marks_find_absent(&marks, late, soon()), late);
    CHECK_EQUAL(dl_rank_marks_find_absent(&marks, late + 1, soon()), DL_NO_MARK);
    CHECK_OK(dl_rank_marks_add(&marks, late, soon(), &is_last));
    CHECK(is_last);
    CHECK_EQUAL(dl_rank_marks_find_absent(&marks, 0, soon()), DL_NO_MARK);
    dl_store_unref(store);
}

CHECK_CASE(the_last_one_and_the_absent_are_known)
{
    static const int counts[] = {1, 2, 61, 62, 63, 124, 125, 1000};

    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        check_marks(counts[i], 0);
        check_marks(counts[i], counts[i] - 1);
        check_marks(counts[i], counts[i] / 2);
    }
}
