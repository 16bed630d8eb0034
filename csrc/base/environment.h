/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Environment variables that switch something on or off, or are a time.  The switches
 * take the same words, those of torch: 1, true, t, yes, y; 0, false, f, no, n; in any
 * case. */
#ifndef DISTLITE_BASE_ENVIRONMENT_H
#define DISTLITE_BASE_ENVIRONMENT_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"

/* Reads the variable; `*value` is `fallback` if it is unset or empty.  Fails with
 * DL_INVALID and the variable's name if its text is none of the words. */
dl_status dl_environment_flag(const char *name, bool fallback, bool *value);

/* Returns whether the variable is set and switches on, for places that cannot fail:
 * a text that is none of the words counts as off. */
bool dl_environment_is_on(const char *name);

/* Reads a number of seconds from `least` to a million into `*value`, in nanoseconds;
 * `fallback` seconds if the variable is unset or empty.  Fails with DL_INVALID and the
 * variable's name. */
dl_status dl_environment_seconds(const char *name, double least, double fallback,
                                 int64_t *value);

#endif
