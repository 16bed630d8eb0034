/* SPDX-License-Identifier: BSD-3-Clause */
#include "pg/backend.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "pg/cpu/cpu_backend.h"
#include "pg/extension/extension_backend.h"
#include "pg/fake/fake_backend.h"
#include "pg/mpi/mpi_backend.h"
#include "pg/nccl/nccl_backend.h"
#include "pg/ucc/ucc_backend.h"

static const dl_backend_kind backends[] = {
    {.name = "cpu", .make = dl_cpu_backend_new, .refuse = dl_cpu_backend_refuse},
    {.name = "gloo", .make = dl_cpu_backend_new, .refuse = dl_cpu_backend_refuse},
    {.name = "fake", .make = dl_fake_backend_new},
    {.name = "custom", .make = dl_custom_backend_new},
    {.name = "mpi", .make = dl_mpi_backend_new, .refuse = dl_mpi_backend_refuse},
    {.name = "nccl", .make_on_device = dl_nccl_backend_new, .is_ordered = true},
    {.name = "ucc",
     .make = dl_ucc_backend_new,
     .refuse = dl_ucc_backend_refuse,
     .make_on_device = dl_ucc_backend_new_on_device},
};

/* The one row for all backends that other packages have registered. */
static const dl_backend_kind extension = {.name = "", .make = dl_extension_backend_new};

const dl_backend_kind *
dl_backend_find(const char *name)
{
    for (size_t i = 0; i < sizeof backends / sizeof *backends; i++) {
        if (strcmp(backends[i].name, name) == 0) {
            return &backends[i];
        }
    }
    return dl_extension_is_registered(name) ? &extension : NULL;
}

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
