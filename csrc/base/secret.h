/* SPDX-License-Identifier: BSD-3-Clause
 *
 * A job's secret (its token), and what is computed with it: HMAC-SHA256, comparison in
 * constant time and random bytes.  The cryptography is that of OpenSSL (base/openssl.h),
 * which is loaded when the first secret is made; without one, nothing is loaded.
 *
 * The token appears in no text, neither an error's nor a log's.  It is wiped before its
 * memory is freed.  Proofs of it are in base/proof.h. */
#ifndef DISTLITE_BASE_SECRET_H
#define DISTLITE_BASE_SECRET_H

#include <stdbool.h>
#include <stdint.h>

#include "base/bytes.h"
#include "base/status.h"

#define DL_MAC_SIZE 32

/* Largest size of a token: more than any generator of passwords or keys makes.  A
 * longer file is probably the wrong one, and is refused. */
#define DL_TOKEN_LIMIT 4096u

/* A secret is immutable and shared by reference; all functions may be called from any
 * thread. */
typedef struct dl_secret dl_secret;

/* Makes a secret of `token`, which is copied.  DL_INVALID: it is empty or too long.
 * DL_NOT_FOUND, DL_UNSUPPORTED: there is no OpenSSL of version 1.1.1 or newer. */
dl_status dl_secret_new(dl_bytes token, dl_secret **secret);

/* Makes the secret that the environment names: DISTLITE_TOKEN, or DISTLITE_TOKEN_FILE
 * with the path of a file whose contents it is, without the newline at their end.
 * `*secret` is NULL if neither is set.  DL_INVALID: both are set, one is empty, or the
 * file cannot be read or is open to other users. */
dl_status dl_secret_find(dl_secret **secret);

/* Returns whether the environment names a secret, be the setting valid or not. */
bool dl_secret_is_named(void);

dl_secret *dl_secret_ref(dl_secret *secret); /* NULL is returned as it is */
void dl_secret_unref(dl_secret *secret);     /* NULL does nothing */

/* Returns the token if the program passed it to dl_secret_new(), so that a pickle of an
 * object with this secret can include it; empty if the environment has it, because the
 * job's other processes find it there themselves.  Valid as long as the secret. */
dl_bytes dl_secret_own_token(const dl_secret *secret);

/* Computes HMAC-SHA256 of `message` with the token as its key. */
dl_status dl_secret_mac(const dl_secret *secret, dl_bytes message,
                        uint8_t mac[DL_MAC_SIZE]);

/* Compares two MACs in constant time. */
bool dl_secret_mac_equal(const uint8_t left[DL_MAC_SIZE],
                         const uint8_t right[DL_MAC_SIZE]);

/* Fills `bytes` (at most 256) with unpredictable bytes from the kernel.  DL_INTERNAL:
 * getrandom(2) failed. */
dl_status dl_random(uint8_t *bytes, size_t size);

#endif
