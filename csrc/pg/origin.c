/* SPDX-License-Identifier: BSD-3-Clause */
#include "pg/origin.h"

#include <stddef.h>

void
dl_backend_origin_init(dl_backend_origin *origin, void (*free)(dl_backend_origin *))
{
    atomic_init(&origin->references, 1);
    origin->free = free;
}

dl_backend_origin *
dl_backend_origin_ref(dl_backend_origin *origin)
{
    atomic_fetch_add_explicit(&origin->references, 1, memory_order_relaxed);
    return origin;
}

void
dl_backend_origin_unref(dl_backend_origin *origin)
{
    if (origin != NULL
        && atomic_fetch_sub_explicit(&origin->references, 1, memory_order_acq_rel)
               == 1) {
        origin->free(origin);
    }
}
