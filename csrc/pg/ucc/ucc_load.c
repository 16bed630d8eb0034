/* SPDX-License-Identifier: BSD-3-Clause */
#include "pg/ucc/ucc_backend.h"
#include "pg/ucc/ucc_table.h"

static const char *const sonames[] = {"libucc.so.1", NULL};
static const char *const folders[] = {"libucc/lib", "nvidia/ucc/lib", NULL};
static const char *const homes[] = {"UCC_HOME", "UCC_ROOT", "UCC_DIR", NULL};

static const dl_library library = {
    .title = "UCC",
    .variable = "DISTLITE_UCC_LIBRARY",
    .sonames = sonames,
    .folders = folders,
    .homes = homes,
    .advice = "install UCC with apt install libucc1 (newer Debian and Ubuntu), conda "
              "install -c conda-forge ucc, or from github.com/openucx/ucc",
};

static const dl_symbol symbols[] = {
#define X(field, symbol, result, arguments) \
    {#symbol, offsetof(dl_ucc_table, field), false},
    DL_UCC_SYMBOLS(X)
#undef X
#define X(field, symbol, result, arguments) \
    {#symbol, offsetof(dl_ucc_table, field), true},
        DL_UCC_NEWER_SYMBOLS(X)
#undef X
};

static dl_ucc_table table;

static dl_status
check_version(void *handle)
{
    table.major = 1;
    if (table.version != NULL) {
        table.version(&table.major, &table.minor, &table.patch);
    }
    return table.major == 1 ? DL_OK
                            : dl_fail(DL_UNSUPPORTED,
                                      "UCC in %s is %u.%u, but only 1.x is known; %s",
                                      dl_library_path(handle), table.major, table.minor,
                                      library.advice);
}

static dl_library_use use = {
    .library = &library,
    .symbols = {symbols, sizeof symbols / sizeof *symbols},
    .table = &table,
    .check = check_version,
    .lock = PTHREAD_MUTEX_INITIALIZER,
};

dl_status
dl_ucc_load(const dl_ucc_table **loaded)
{
    dl_status status = dl_library_load(&use);

    *loaded = status == DL_OK ? &table : NULL;
    return status;
}

dl_status
dl_ucc_version(int *version)
{
    const dl_ucc_table *ucc;

    DL_TRY(dl_ucc_load(&ucc));
    *version = (int)(ucc->major * 10000 + ucc->minor * 100 + ucc->patch);
    return DL_OK;
}
