/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Shared libraries that are looked for at run time and may be absent.  A description
 * says which names a library goes by, where packages install it and how to get it.
 * Opening it gives a handle, and binding fills a struct of function pointers.  A
 * library stays open for the life of the process, because such libraries leave threads
 * and handlers behind. */
#ifndef DISTLITE_BASE_LIBRARY_H
#define DISTLITE_BASE_LIBRARY_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>

#include "base/status.h"

typedef struct dl_library {
    const char *title;          /* in error texts: "NCCL" */
    const char *variable;       /* environment variable with the only file to use */
    const char *const *sonames; /* best first; ends with NULL, as the lists below */
    const char *const *folders; /* below each root: "nvidia/nccl/lib"; may be NULL */
    const char *const *homes;   /* variables: folders with lib64 or lib; may be NULL */
    const char *advice;         /* how to install it, a sentence without a full stop */
} dl_library;

/* One entry of the struct of function pointers. */
typedef struct dl_symbol {
    const char *name;
    size_t offset;
    bool is_optional; /* the pointer is NULL if the library lacks it */
} dl_symbol;

typedef struct dl_symbol_list {
    const dl_symbol *symbols;
    size_t count;
} dl_symbol_list;

/* Sets the folders where packages are installed (the entries of sys.path) for all later
 * searches.  Copies the paths; may be called from any thread. */
dl_status dl_library_set_roots(const char *const *roots, size_t count);

/* Opens the file that the environment variable names; or else the first of: a library
 * that the process has loaded already, one below a root or a home, one on the system's
 * search path.  DL_NOT_FOUND: the text lists the places that were searched. */
dl_status dl_library_open(const dl_library *library, void **handle);

/* Fills `table` with the addresses of the symbols.  DL_UNSUPPORTED: the text names the
 * first missing symbol, and `table` is filled in part. */
dl_status dl_library_bind(const dl_library *library, void *handle, dl_symbol_list list,
                          void *table);

/* A library that is opened and bound by the first successful dl_library_load(). */
typedef struct dl_library_use {
    const dl_library *library;
    dl_symbol_list symbols;
    void *table;
    dl_status (*check)(void *handle); /* called after binding; may be NULL */
    pthread_mutex_t lock;
    bool is_loaded; /* guarded by lock */
} dl_library_use;

/* Loads the library unless that is done.  Any thread.  A failure is not remembered: the
 * next call searches again, since the library may have been installed meanwhile. */
dl_status dl_library_load(dl_library_use *use);

/* Returns the path of the library behind `handle`, for error texts. */
const char *dl_library_path(void *handle);

#endif
