/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Two backends that move no data.  "fake" completes every operation at once and leaves
 * all arrays as they are, whatever the rank and the size: one process can act as any
 * rank of any world, to test a program without its peers.  "custom" has no operation at
 * all: it stands in for a group whose operations are implemented elsewhere. */
#ifndef DISTLITE_PG_FAKE_FAKE_BACKEND_H
#define DISTLITE_PG_FAKE_FAKE_BACKEND_H

#include "pg/backend.h"

dl_status dl_fake_backend_new(const dl_backend_options *options, dl_deadline deadline,
                              dl_backend **backend);
dl_status dl_custom_backend_new(const dl_backend_options *options, dl_deadline deadline,
                                dl_backend **backend);

#endif
