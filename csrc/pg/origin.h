/* SPDX-License-Identifier: BSD-3-Clause
 *
 * What a backend knows of its ranks that is as true of every group made out of its own:
 * counted, so that it lives as long as one of these.  A backend embeds it first in a
 * struct of its own, and finds it again in the options of the next group. */
#ifndef DISTLITE_PG_ORIGIN_H
#define DISTLITE_PG_ORIGIN_H

#include <stdatomic.h>

typedef struct dl_backend_origin dl_backend_origin;

struct dl_backend_origin {
    atomic_uint references;
    void (*free)(dl_backend_origin *);
};

void dl_backend_origin_init(dl_backend_origin *origin,
                            void (*free)(dl_backend_origin *));
dl_backend_origin *dl_backend_origin_ref(dl_backend_origin *origin);
void dl_backend_origin_unref(dl_backend_origin *origin);

#endif
