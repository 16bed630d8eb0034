/* SPDX-License-Identifier: BSD-3-Clause */
#include <distlite/backend.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/buffer.h"
#include "base/interrupt.h"
#include "pg/extension/extension_state.h"
#include "tensor/reduce.h"

static const dl_extension_call *
call_of(const distlite_call *base)
{
    return (const dl_extension_call *)base;
}

static dl_store *
store_from(distlite_store *store)
{
    return (dl_store *)store;
}

static int
host_fail(int status, const char *format, ...)
{
    char text[DL_ERROR_TEXT_SIZE];
    va_list args;

    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    return dl_fail((dl_status)status, "%s", text);
}

dl_status
dl_extension_check_abort(dl_extension *self)
{
    pthread_mutex_lock(&self->lock);
    dl_status status =
        self->cause.status == DL_OK ? DL_OK : dl_fail_again(&self->cause);
    pthread_mutex_unlock(&self->lock);
    return status;
}

static int
host_check(const distlite_call *base)
{
    const dl_extension_call *self = call_of(base);

    DL_TRY(dl_extension_check_abort(self->self));
    DL_TRY(dl_guard_check(self->guard));
    DL_TRY(dl_interrupt_check());
    if (dl_deadline_passed(self->limit)) {
        return dl_fail(DL_TIMEOUT, "the operation timed out after %lldms in backend %s",
                       (long long)(self->limit.limit / DL_MILLISECOND),
                       self->self->name);
    }
    return DL_OK;
}

static int
host_set(distlite_store *store, const distlite_call *base, const char *key,
         const void *value, size_t size)
{
    return dl_store_set(store_from(store), dl_bytes_of(key), (dl_bytes){value, size},
                        call_of(base)->limit);
}

static bool
is_aborted(void *context)
{
    dl_extension *self = context;

    pthread_mutex_lock(&self->lock);
    bool answer = self->cause.status != DL_OK;
    pthread_mutex_unlock(&self->lock);
    return answer;
}

/* An abort of the group also ends the wait for the key; the store itself does not
 * notice it. */
static dl_status
get_value(const dl_extension_call *self, dl_store *store, const char *key,
          dl_buffer *found)
{
    dl_interrupt_set_own(is_aborted, self->self);
    dl_status status = dl_store_get(store, dl_bytes_of(key), found, self->limit);
    dl_interrupt_set_own(NULL, NULL);
    if (status != DL_OK && is_aborted(self->self)) {
        return dl_extension_check_abort(self->self);
    }
    return status;
}

static int
host_get(distlite_store *store, const distlite_call *base, const char *key, void *value,
         size_t capacity, size_t *size)
{
    dl_buffer found = {0};
    dl_status status = get_value(call_of(base), store_from(store), key, &found);

    if (status == DL_OK) {
        *size = found.size;
        if (found.size > 0 && capacity > 0) {
            memcpy(value, found.data, found.size < capacity ? found.size : capacity);
        }
    }
    dl_buffer_fini(&found);
    return status;
}

static int
host_add(distlite_store *store, const distlite_call *base, const char *key,
         int64_t amount, int64_t *sum)
{
    return dl_store_add(store_from(store), dl_bytes_of(key), amount, sum,
                        call_of(base)->limit);
}

static int
host_delete_key(distlite_store *store, const distlite_call *base, const char *key)
{
    bool existed;

    return dl_store_delete_key(store_from(store), dl_bytes_of(key), &existed,
                               call_of(base)->limit);
}

/* Elements that are reduced as float32 at a time. */
#define WIDE 256

/* For dtypes shorter than float32, which have no kernels of their own. */
static void
reduce_wide(dl_reduce_fn kernel, dl_dtype dtype, char *target, const char *left,
            const char *right, size_t count)
{
    float first[WIDE], second[WIDE];
    size_t size = dl_dtype_size(dtype);

    for (size_t done = 0; done < count; done += WIDE) {
        size_t part = count - done < WIDE ? count - done : WIDE;
        dl_reduce_widen(first, dtype, left + done * size, part);
        dl_reduce_widen(second, dtype, right + done * size, part);
        kernel(first, first, second, part);
        dl_reduce_narrow(target + done * size, dtype, first, part);
    }
}

static int
host_reduce(int32_t reduction, int32_t dtype, void *target, const void *left,
            const void *right, size_t count)
{
    bool is_known = dtype > DL_OPAQUE && dtype < DL_DTYPE_COUNT && reduction >= 0
                    && reduction < DL_REDUCE_OP_COUNT;
    dl_dtype wide = is_known ? dl_reduce_dtype((dl_dtype)dtype) : DL_OPAQUE;
    dl_reduce_fn kernel =
        is_known ? dl_reduce_kernel((dl_reduce_op)reduction, wide) : NULL;

    if (kernel == NULL) {
        return dl_fail(DL_INVALID, "reduction %d of dtype %d is not supported",
                       (int)reduction, (int)dtype);
    }
    if (wide == (dl_dtype)dtype) {
        kernel(target, left, right, count);
    } else {
        reduce_wide(kernel, (dl_dtype)dtype, target, left, right, count);
    }
    return DL_OK;
}

static dl_status
check_number(int32_t dtype)
{
    return dtype > DL_OPAQUE && dtype < DL_DTYPE_COUNT
               ? DL_OK
               : dl_fail(DL_INVALID, "dtype %d is not one of numbers", (int)dtype);
}

static int
host_scale(int32_t dtype, void *array, size_t count, double factor)
{
    float part[WIDE];
    char *data = array;
    size_t size;

    DL_TRY(check_number(dtype));
    if (dl_reduce_dtype((dl_dtype)dtype) == (dl_dtype)dtype) {
        dl_reduce_scale(array, (dl_dtype)dtype, array, count, factor);
        return DL_OK;
    }
    size = dl_dtype_size((dl_dtype)dtype);
    for (size_t done = 0; done < count; done += WIDE) {
        size_t some = count - done < WIDE ? count - done : WIDE;
        dl_reduce_widen(part, (dl_dtype)dtype, data + done * size, some);
        dl_reduce_scale(part, DL_FLOAT32, part, some, factor);
        dl_reduce_narrow(data + done * size, (dl_dtype)dtype, part, some);
    }
    return DL_OK;
}

static int
host_divide(int32_t dtype, void *array, size_t count, int32_t divisor)
{
    float part[WIDE];
    char *data = array;
    size_t size;

    DL_TRY(check_number(dtype));
    if (dl_reduce_dtype((dl_dtype)dtype) == (dl_dtype)dtype) {
        dl_reduce_divide(array, (dl_dtype)dtype, count, divisor);
        return DL_OK;
    }
    size = dl_dtype_size((dl_dtype)dtype);
    for (size_t done = 0; done < count; done += WIDE) {
        size_t some = count - done < WIDE ? count - done : WIDE;
        dl_reduce_widen(part, (dl_dtype)dtype, data + done * size, some);
        dl_reduce_divide(part, DL_FLOAT32, some, divisor);
        dl_reduce_narrow(data + done * size, (dl_dtype)dtype, part, some);
    }
    return DL_OK;
}

const distlite_host dl_extension_host = {
    .version = DISTLITE_BACKEND_VERSION,
    .size = sizeof(distlite_host),
    .fail = host_fail,
    .check = host_check,
    .set = host_set,
    .get = host_get,
    .add = host_add,
    .delete_key = host_delete_key,
    .reduce = host_reduce,
    .scale = host_scale,
    .divide = host_divide,
};
