/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The part of a backend that every group made out of its group shares, such as who its
 * ranks are and how they are reached.  It is reference-counted and lives as long as the
 * last of these groups.  A backend embeds it first in a struct of its own, and gets it
 * back in the options of the next group. */
#ifndef DISTLITE_PG_ORIGIN_H
#define DISTLITE_PG_ORIGIN_H

#include <stdatomic.h>

typedef struct dl_backend_origin dl_backend_origin;

struct dl_backend_origin {
    atomic_uint references;
    void (*free)(dl_backend_origin *);
};

/* Initialises an origin with one reference; `free` is called when the last
 * one is dropped. */
void dl_backend_origin_init(dl_backend_origin *origin,
                            void (*free)(dl_backend_origin *));
dl_backend_origin *dl_backend_origin_ref(dl_backend_origin *origin);
void dl_backend_origin_unref(dl_backend_origin *origin);

#endif
