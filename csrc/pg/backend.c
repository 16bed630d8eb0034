/* SPDX-License-Identifier: BSD-3-Clause */
#include "pg/backend.h"

#include <stdio.h>
#include <unistd.h>

#include "base/references.h"

void
dl_backend_origin_init(dl_backend_origin *origin, void (*free)(dl_backend_origin *))
{
    atomic_init(&origin->references, 1);
    origin->free = free;
}

dl_backend_origin *
dl_backend_origin_ref(dl_backend_origin *origin)
{
    dl_reference_take(&origin->references);
    return origin;
}

void
dl_backend_origin_unref(dl_backend_origin *origin)
{
    if (origin != NULL && dl_reference_drop(&origin->references)) {
        origin->free(origin);
    }
}

static _Thread_local bool keeps_memory;

void
dl_backend_keep_memory(void)
{
    keeps_memory = true;
}

bool
dl_backend_take_kept_memory(void)
{
    bool taken = keeps_memory;

    keeps_memory = false;
    return taken;
}

char *
dl_label_new(const char *group_name, int rank, int size)
{
    char host[65] = "?";
    char *label = NULL;

    gethostname(host, sizeof host - 1);
    int length =
        asprintf(&label, "group %s, rank %d of %d on %s", group_name, rank, size, host);
    return length < 0 ? NULL : label;
}
