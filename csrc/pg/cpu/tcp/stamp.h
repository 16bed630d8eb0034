/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The head of each part of a collective's message, which identifies the call that the
 * part belongs to, and its comparison with the receiver's call: the fingerprint, as it
 * is compared within a host, and the size, which only the two ranks know where blocks
 * are uneven. */
#ifndef DISTLITE_PG_CPU_TCP_STAMP_H
#define DISTLITE_PG_CPU_TCP_STAMP_H

#include "pg/cpu/tcp/route.h"

/* Returns the head of a part; the caller sets `size` and `length`. */
dl_head dl_stamp_head(const dl_op_context *op, uint32_t stage);

/* Returns DL_OK if the head belongs to the message that `cargo` expects, else
 * DL_MISMATCH or DL_PROTOCOL. */
dl_status dl_stamp_compare(const dl_link_options *link, const dl_op_context *op,
                           const dl_cargo *cargo, const dl_head *head);

/* Fails with DL_PROTOCOL because the peer has sent something unintelligible. */
dl_status dl_stamp_fail_protocol(const dl_link_options *link);

#endif
