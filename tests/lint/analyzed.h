/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Included first in each file that `make tidy` reads, to tell the analyzer what it cannot
 * see from one file: functions that fail never return DL_OK. */
#ifndef DISTLITE_TESTS_ANALYZED_H
#define DISTLITE_TESTS_ANALYZED_H

#include "base/status.h"

#define dl_fail(status, ...) (dl_fail(status, __VA_ARGS__), status)
#define dl_fail_while(...) (dl_fail_while(__VA_ARGS__), DL_BACKEND)
#define dl_fail_no_memory() (dl_fail_no_memory(), DL_NO_MEMORY)
#define dl_rethrow(error) (dl_rethrow(error), DL_BACKEND)

#endif
