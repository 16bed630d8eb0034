/* SPDX-License-Identifier: BSD-3-Clause */
#include "pg/mpi/mpi_history.h"

#include <string.h>

/* An odd number without a pattern of bits: 2^64 divided by the golden ratio. */
#define MULTIPLIER UINT64_C(0x9e3779b97f4a7c15)

static uint64_t
mix(uint64_t digest, uint64_t word)
{
    digest = (digest ^ word) * MULTIPLIER;
    return digest ^ digest >> 29;
}

void
dl_mpi_history_note(dl_mpi_history *history, const dl_op_context *op)
{
    dl_fingerprint *newest = &history->called[history->newest % DL_MPI_REMEMBERED];
    uint64_t words[2];

    if (op->sequence == history->newest) {
        return;
    }
    _Static_assert(sizeof words == sizeof *newest, "no gaps in a fingerprint");
    memcpy(words, newest, sizeof words);
    history->digest = mix(mix(history->digest, words[0]), words[1]);
    history->newest = op->sequence;
    history->called[op->sequence % DL_MPI_REMEMBERED] = op->fingerprint;
}

const dl_fingerprint *
dl_mpi_history_at(const dl_mpi_history *history, uint64_t sequence)
{
    bool is_known = sequence > 0 && sequence <= history->newest
                    && history->newest - sequence < DL_MPI_REMEMBERED;

    return is_known ? &history->called[sequence % DL_MPI_REMEMBERED] : NULL;
}
