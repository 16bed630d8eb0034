/* SPDX-License-Identifier: BSD-3-Clause */
#include "pg/cuda_table.h"

/* The newest first; one that is in use already comes before all of them, and that is the
 * one which fits the driver. */
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
};

static dl_cuda_table table;

static dl_library_use use = {
    .library = &library,
    .symbols = {symbols, sizeof symbols / sizeof *symbols},
    .table = &table,
    .lock = PTHREAD_MUTEX_INITIALIZER,
};

/* The driver is asked first: what NCCL does without one leaves the thread unusable. */
static dl_status
check_device(void)
{
    int version = 0;
    int count = 0;

    if (table.driver_version(&version) != DL_CUDA_SUCCESS || version == 0) {
        return dl_fail(DL_NOT_FOUND,
                       "there is no NVIDIA driver on this machine, or none that this "
                       "process may use");
    }
    DL_TRY(dl_cuda_check(&table, table.device_count(&count), "cudaGetDeviceCount"));
    return count > 0 ? DL_OK
                     : dl_fail(DL_NOT_FOUND,
                               "the NVIDIA driver shows this process no device; is "
                               "CUDA_VISIBLE_DEVICES right?");
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
    /* Taken back: the next library to ask would take it for its own. */
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

/* What this fails with has been said by whatever came before. */
void
dl_cuda_leave(const dl_cuda_table *cuda, int device, int previous)
{
    if (device != previous) {
        cuda->set_device(previous);
    }
}
