/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Foreign libraries that are found at run time or not at all.  A description says which
 * names a library goes by, where packages put it and how to get it; opening it gives a
 * handle, binding fills a struct of function pointers.  What was opened stays open for
 * the life of the process: such libraries leave threads and handlers behind. */
#ifndef DISTLITE_BASE_LIBRARY_H
#define DISTLITE_BASE_LIBRARY_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>

#include "base/status.h"

typedef struct dl_library {
    const char *title;          /* in error texts: "NCCL" */
    const char *variable;       /* environment: the file to use, and no other */
    const char *const *sonames; /* best first; NULL ends it, as below */
    const char *const *folders; /* below each root: "nvidia/nccl/lib"; may be NULL */
    const char *const *homes;   /* environment: folders with lib64 or lib; or NULL */
    const char *advice;         /* how to install it, a sentence without a full stop */
} dl_library;

/* One entry of the struct of function pointers. */
typedef struct dl_symbol {
    const char *name;
    size_t offset;
    bool is_optional; /* NULL where the library lacks it */
} dl_symbol;

typedef struct dl_symbol_list {
    const dl_symbol *symbols;
    size_t count;
} dl_symbol_list;

/* Where packages are installed: the entries of Python's path.  Copies them; from any
 * thread, for all later searches. */
dl_status dl_library_set_roots(const char *const *roots, size_t count);

/* The file of the environment variable; or one that this process uses already; or one
 * below a root, a home, or where the system looks.  DL_NOT_FOUND lists all that. */
dl_status dl_library_open(const dl_library *library, void **handle);

/* DL_UNSUPPORTED names the first symbol that is missing; `table` is then half filled. */
dl_status dl_library_bind(const dl_library *library, void *handle, dl_symbol_list list,
                          void *table);

/* How one library is used: opened and bound with the first call, and once only. */
typedef struct dl_library_use {
    const dl_library *library;
    dl_symbol_list symbols;
    void *table;
    dl_status (*check)(
        void *handle); /* of what is bound; NULL: there is no more to it */
    pthread_mutex_t lock;
    bool is_loaded; /* guarded by lock */
} dl_library_use;

/* A failure is not kept: the next call may find what has been installed meanwhile. */
dl_status dl_library_load(dl_library_use *use);

/* The file behind a handle, for texts. */
const char *dl_library_path(void *handle);

#endif
