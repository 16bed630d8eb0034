/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The second half of opening an endpoint: from all ranks' records, who shares a host, and
 * whether those who do not can reach each other. */
#ifndef DISTLITE_PG_CPU_ENDPOINT_HOSTS_H
#define DISTLITE_PG_CPU_ENDPOINT_HOSTS_H

#include "pg/cpu/endpoint.h"

/* Fills in ways and layout, after the trial of reach.h.  DL_NETWORK, on all ranks: some
 * could not be reached. */
dl_status dl_endpoint_group(dl_endpoint *endpoint, const dl_backend_options *options,
                            dl_deadline deadline);

#endif
