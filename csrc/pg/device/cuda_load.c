/* SPDX-License-Identifier: BSD-3-Clause */
#include "pg/device/cuda_table.h"

/* The newest comes first.  A library that the process uses already takes precedence
 * over all of them, because it is known to work with the driver. */
static const char *const sonames[] = {"libcudart.so.13", "libcudart.so.12", NULL};
static const char *const folders[] = {"nvidia/cu13/lib", "nvidia/cuda_runtime/lib",
                                      NULL};
static const char *const homes[] = {"CUDA_HOME", "CUDA_PATH", NULL};

static const dl_library library = {
    .title = "The CUDA runtime",
    .variable = "DISTLITE_CUDART_LIBRARY",
    .sonames = sonames,
    .folders = folders,
    .homes = homes,
    .advice = "install it with pip install nvidia-cuda-runtime-cu12, or, for CUDA 13, "
              "nvidia-cuda-runtime",
};

static const dl_symbol symbols[] = {
#define X(field, symbol, result, arguments) \
    {#symbol, offsetof(dl_cuda_table, field), false},
    DL_CUDA_SYMBOLS(X)
#undef X
#define X(field, symbol, result, arguments) \
    {#symbol, offsetof(dl_cuda_table, field), true},
        DL_CUDA_OPTIONAL_SYMBOLS(X)
#undef X
};

static dl_cuda_table table;

/* The CUDA version since which the driver has had the function in its present form. */
#define CONTEXT_STATE_SINCE 7000

/* Finds a function of the driver, because the runtime cannot tell whether a device has
 * a context without making one. */
static dl_status
find_driver(void *handle)
{
    const char *name = "cuDevicePrimaryCtxGetState";
    void *found = NULL;
    int state = 0, result = DL_CUDA_NOT_READY;

    (void)handle;
    if (table.driver_entry_of_version != NULL) {
        result =
            table.driver_entry_of_version(name, &found, CONTEXT_STATE_SINCE, 0, &state);
    } else if (table.driver_entry != NULL) {
        result = table.driver_entry(name, &found, 0, &state);
    }
    if (result == DL_CUDA_SUCCESS && state == 0 && found != NULL) {
        *(void **)&table.context_state = found;
    } else {
        (void)table.last_error();
    }
    return DL_OK;
}

static dl_library_use use = {
    .library = &library,
    .symbols = {symbols, sizeof symbols / sizeof *symbols},
    .table = &table,
    .check = find_driver,
    .lock = PTHREAD_MUTEX_INITIALIZER,
};

/* The driver is checked first, since NCCL without a driver leaves
 * the thread unusable. */
static dl_status
check_device(void)
{
    int version = 0;
    int count = 0;

    if (table.driver_version(&version) != DL_CUDA_SUCCESS || version == 0) {
        return dl_fail(
            DL_NOT_FOUND,
            "this machine has no NVIDIA driver, or this process may not use it");
    }
    DL_TRY(dl_cuda_check(&table, table.device_count(&count), "cudaGetDeviceCount"));
    return count > 0
               ? DL_OK
               : dl_fail(DL_NOT_FOUND, "the NVIDIA driver shows no device to this "
                                       "process; check CUDA_VISIBLE_DEVICES");
}

dl_status
dl_cuda_load(const dl_cuda_table **loaded)
{
    dl_status status = dl_library_load(&use);
    if (status == DL_OK) {
        status = check_device();
    }
    *loaded = status == DL_OK ? &table : NULL;
    return status;
}

dl_status
dl_cuda_check(const dl_cuda_table *cuda, int result, const char *call)
{
    if (result == DL_CUDA_SUCCESS) {
        return DL_OK;
    }
    /* Clears the error, which the next library to ask would take for its own. */
    cuda->last_error();
    return dl_fail(DL_BACKEND, "%s: %s (error %d)", call, cuda->error_text(result),
                   result);
}

dl_status
dl_cuda_enter(const dl_cuda_table *cuda, int device, int *previous)
{
    DL_TRY(dl_cuda_check(cuda, cuda->get_device(previous), "cudaGetDevice"));
    return *previous == device
               ? DL_OK
               : dl_cuda_check(cuda, cuda->set_device(device), "cudaSetDevice");
}

static bool
has_context(const dl_cuda_table *cuda, int device)
{
    unsigned flags = 0;
    int is_active = 1;

    return cuda->context_state == NULL
           || cuda->context_state(device, &flags, &is_active) != DL_CUDA_SUCCESS
           || is_active != 0;
}

/* A failure is not reported: whatever caused it was reported by the calls before. */
void
dl_cuda_leave(const dl_cuda_table *cuda, int device, int previous)
{
    if (device != previous && has_context(cuda, previous)) {
        cuda->set_device(previous);
    }
}
