/* SPDX-License-Identifier: BSD-3-Clause
 *
 * A job's secret (its token), and what is computed with it: HMAC-SHA256, comparison in
 * constant time and random bytes.  The cryptography is OpenSSL's libcrypto, which is
 * loaded when the first secret is made; without one, nothing is loaded.
 *
 * The token appears in no text, neither an error's nor a log's.  It is wiped before its
 * memory is freed.  Knows nothing of who proves what to whom. */
#ifndef DISTLITE_BASE_SECRET_H
#define DISTLITE_BASE_SECRET_H

#include <stdbool.h>
#include <stdint.h>

#include "base/bytes.h"
#include "base/status.h"

#define DL_MAC_SIZE 32

/* Largest size of a token: more than any generator of passwords or keys makes, so that
 * the name of a wrong file is noticed. */
#define DL_TOKEN_LIMIT 4096u

/* A secret is immutable and shared by reference; all functions may be called from any
 * thread. */
typedef struct dl_secret dl_secret;

/* Makes a secret of `token`, which is copied.  DL_INVALID: it is empty or too long.
 * DL_NOT_FOUND, DL_UNSUPPORTED: there is no usable libcrypto. */
dl_status dl_secret_new(dl_bytes token, dl_secret **secret);

/* Makes the secret that the environment names: DISTLITE_TOKEN, or DISTLITE_TOKEN_FILE
 * with the path of a file whose contents it is, without the newline at their end.
 * `*secret` is NULL if neither is set.  DL_INVALID: both are set, one is empty, or the
 * file cannot be read or is open to other users. */
dl_status dl_secret_find(dl_secret **secret);

/* Whether the environment names a secret, rightly or not. */
bool dl_secret_is_named(void);

dl_secret *dl_secret_ref(dl_secret *secret); /* NULL is returned as it is */
void dl_secret_unref(dl_secret *secret);     /* NULL does nothing */

/* The token, if the program has passed it to dl_secret_new(), for a pickle of what has
 * the secret; nothing if the environment has it, since another process of the job finds
 * it there itself.  Valid as long as the secret. */
dl_bytes dl_secret_own_token(const dl_secret *secret);

/* Computes HMAC-SHA256 of `message` with the token as its key. */
dl_status dl_secret_mac(const dl_secret *secret, dl_bytes message,
                        uint8_t mac[DL_MAC_SIZE]);

/* Compares two of them in constant time. */
bool dl_secret_mac_equal(const uint8_t left[DL_MAC_SIZE],
                         const uint8_t right[DL_MAC_SIZE]);

/* Fills `bytes` (at most 256) with random bytes of the kernel, which nobody can
 * predict.  DL_INTERNAL: it has none to give. */
dl_status dl_random(uint8_t *bytes, size_t size);

#endif
