/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The second half of opening an endpoint: finds out from the records of all ranks which
 * of them share a host, and checks that ranks of different hosts can reach each
 * other. */
#ifndef DISTLITE_PG_CPU_ENDPOINT_HOSTS_H
#define DISTLITE_PG_CPU_ENDPOINT_HOSTS_H

#include "pg/cpu/endpoint.h"

/* Fills in `ways` and `layout`, after the trial of reach.h.  Returns DL_NETWORK, on all
 * ranks, if some have no address that other hosts can reach, or settings that name
 * something that does not exist. */
dl_status dl_endpoint_group(dl_endpoint *endpoint, const dl_backend_options *options,
                            dl_deadline deadline);

#endif
