/* SPDX-License-Identifier: BSD-3-Clause
 *
 * How Ctrl-C reaches a call that is blocked in the core: between the slices of its waits
 * the core asks here, and Python's signal handlers run. */
#ifndef DISTLITE_PYTHON_SIGNALS_H
#define DISTLITE_PYTHON_SIGNALS_H

void dlpy_signals_install(void);

/* In between, calls of this thread are not interrupted: for those that cannot tell of an
 * exception, as when an object is freed.  The signal waits for the interpreter.  May be
 * nested. */
void dlpy_signals_hold(void);
void dlpy_signals_release(void);

#endif
