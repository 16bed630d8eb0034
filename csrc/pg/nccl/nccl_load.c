/* SPDX-License-Identifier: BSD-3-Clause */
#include <stdio.h>

#include "pg/nccl/nccl_table.h"

static const char *const sonames[] = {"libnccl.so.2", NULL};
static const char *const folders[] = {"nvidia/nccl/lib", NULL};
static const char *const homes[] = {"NCCL_HOME", "NCCL_ROOT", "CUDA_HOME", NULL};

static const dl_library library = {
    .title = "NCCL",
    .variable = "DISTLITE_NCCL_LIBRARY",
    .sonames = sonames,
    .folders = folders,
    .homes = homes,
    .advice =
        "install NCCL 2.18 or newer with pip install nvidia-nccl-cu12 (or -cu13); "
        "for arrays in the CPU's memory use gloo",
};

static const dl_symbol symbols[] = {
#define X(field, symbol, result, arguments) \
    {#symbol, offsetof(dl_nccl_table, field), false},
    DL_NCCL_SYMBOLS(X)
#undef X
#define X(field, symbol, result, arguments) \
    {#symbol, offsetof(dl_nccl_table, field), true},
        DL_NCCL_NEWER_SYMBOLS(X)
#undef X
};

static dl_nccl_table table;

/* The symbols alone do not suffice: structs change without them. */
static dl_status
check_version(void *handle)
{
    char found[32];

    if (table.get_version(&table.version) != DL_NCCL_SUCCESS) {
        return dl_fail(DL_UNSUPPORTED, "NCCL in %s does not report its version",
                       dl_library_path(handle));
    }
    if (table.version < DL_NCCL_OLDEST) {
        dl_nccl_version_text(table.version, found, sizeof found);
        return dl_fail(DL_UNSUPPORTED, "NCCL in %s is %s, older than 2.18; %s",
                       dl_library_path(handle), found, library.advice);
    }
    return DL_OK;
}

static dl_library_use use = {
    .library = &library,
    .symbols = {symbols, sizeof symbols / sizeof *symbols},
    .table = &table,
    .check = check_version,
    .lock = PTHREAD_MUTEX_INITIALIZER,
};

dl_status
dl_nccl_load(const dl_nccl_table **loaded)
{
    dl_status status = dl_library_load(&use);

    *loaded = status == DL_OK ? &table : NULL;
    return status;
}

void
dl_nccl_version_text(int version, char *text, size_t size)
{
    snprintf(text, size, "%d.%d.%d", version / 10000, version / 100 % 100,
             version % 100);
}

dl_status
dl_nccl_check(const dl_nccl_table *nccl, int result, const char *call)
{
    if (result == DL_NCCL_SUCCESS) {
        return DL_OK;
    }
    const char *detail = nccl->last_error(NULL);
    bool has_detail = detail != NULL && detail[0] != '\0';
    return dl_fail(DL_BACKEND, "%s: %s (result %d)%s%s; NCCL_DEBUG=WARN shows more",
                   call, nccl->error_text(result), result, has_detail ? ": " : "",
                   has_detail ? detail : "");
}
