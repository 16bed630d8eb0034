/* SPDX-License-Identifier: BSD-3-Clause */
#include "pg/backend_table.h"

#include <string.h>

#include "pg/cpu/cpu_backend.h"
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
    {.name = "nccl", .make_on_device = dl_nccl_backend_new},
    {.name = "ucc", .make = dl_ucc_backend_new, .refuse = dl_ucc_backend_refuse},
};

const dl_backend_kind *
dl_backend_find(const char *name)
{
    for (size_t i = 0; i < sizeof backends / sizeof *backends; i++) {
        if (strcmp(backends[i].name, name) == 0) {
            return &backends[i];
        }
    }
    return NULL;
}
