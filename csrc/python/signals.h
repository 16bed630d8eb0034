/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Lets Ctrl-C interrupt a call that is blocked in the core: between the slices of its
 * waits the core calls a check here, which runs Python's signal handlers. */
#ifndef DISTLITE_PYTHON_SIGNALS_H
#define DISTLITE_PYTHON_SIGNALS_H

void dlpy_signals_install(void);

/* Between hold and release, calls of this thread are not interrupted.  For calls that
 * cannot report an exception, such as deallocation; the signal is handled later by the
 * interpreter.  May be nested. */
void dlpy_signals_hold(void);
void dlpy_signals_release(void);

#endif
