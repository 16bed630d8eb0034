/* SPDX-License-Identifier: BSD-3-Clause
 *
 * What each part of a collective's message says of the call it belongs to, and whether
 * that is the receiver's: the fingerprint, as it is compared within a host, and the
 * size, which only the two ranks know where blocks are uneven. */
#ifndef DISTLITE_PG_CPU_TCP_STAMP_H
#define DISTLITE_PG_CPU_TCP_STAMP_H

#include "pg/cpu/tcp/route.h"

/* But for `size` and `length`. */
dl_head dl_stamp_head(const dl_op_context *op, uint32_t stage);

/* Whether the head is of what `cargo` waits for. */
dl_status dl_stamp_compare(const dl_link_options *link, const dl_op_context *op,
                           const dl_cargo *cargo, const dl_head *head);

dl_status dl_stamp_fail_protocol(const dl_link_options *link);

#endif
