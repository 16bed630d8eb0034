/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Whether the links of this process are encrypted, and by what means ranks authenticate
 * each other, according to the environment: torch's GLOO_DEVICE_TRANSPORT names the
 * transport, and DISTLITE_TLS the mode for all of a job's connections. */
#ifndef DISTLITE_PG_CPU_TCP_LINK_TLS_H
#define DISTLITE_PG_CPU_TCP_LINK_TLS_H

#include "net/tls.h"

/* torch's variable that names a transport: TCP, or TCP_TLS for TLS over it, by
 * certificates if any of their variables is set and by the job's token otherwise. */
#define DL_TRANSPORT_VARIABLE "GLOO_DEVICE_TRANSPORT"

/* Checks the variables by themselves.  DL_NETWORK: one has an invalid value, or the two
 * contradict each other. */
dl_status dl_link_tls_check(void);

/* Prepares TLS for links; `*tls` is NULL if they are plain.  `secret` is the job's
 * token, or NULL.  Fails as the above, and as dl_tls_new(). */
dl_status dl_link_tls_new(const dl_secret *secret, dl_tls **tls);

#endif
