/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Two engines that move nothing.  "fake" does every operation at once and leaves all
 * arrays as they are, whatever the rank and the size: one process can be any rank of any
 * world, to try a program's bookkeeping.  "custom" has no operation at all: it stands in
 * where the operations are written elsewhere. */
#ifndef DISTLITE_PG_FAKE_FAKE_BACKEND_H
#define DISTLITE_PG_FAKE_FAKE_BACKEND_H

#include "pg/backend.h"

dl_status dl_fake_backend_new(const dl_backend_options *options, dl_deadline deadline,
                              dl_backend **backend);
dl_status dl_custom_backend_new(const dl_backend_options *options, dl_deadline deadline,
                                dl_backend **backend);

#endif
