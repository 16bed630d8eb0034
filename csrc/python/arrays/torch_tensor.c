/* SPDX-License-Identifier: BSD-3-Clause */
#include "python/arrays/torch_tensor.h"

#include <dlfcn.h>
#include <stddef.h>

#include "base/library.h"
#include "python/module/free_threading.h"

typedef struct torch_functions {
    int32_t (*copy)(dlpy_torch_handle *handle, dlpy_torch_handle **copy);
    int32_t (*drop)(dlpy_torch_handle *handle);
    int32_t (*data_of)(dlpy_torch_handle *handle, void **data);
    int32_t (*storage_size_of)(dlpy_torch_handle *handle, int64_t *size);
} torch_functions;

#define SYMBOL(field, symbol) \
    {.name = (symbol), .offset = offsetof(torch_functions, field)}

static const dl_symbol symbols[] = {
    SYMBOL(copy, "aoti_torch_new_tensor_handle"),
    SYMBOL(drop, "aoti_torch_delete_tensor_object"),
    SYMBOL(data_of, "aoti_torch_get_data_ptr"),
    SYMBOL(storage_size_of, "aoti_torch_get_storage_size"),
};

enum { UNKNOWN, USABLE, UNUSABLE };

static atomic_int torch_state;
static dlpy_mutex torch_lock; /* held to make `torch` usable */
static torch_functions torch; /* fixed once torch_state is USABLE */
static atomic_bool has_warned;

/* References to functions and interned names, made when first needed. */
static struct {
    PyObject *increment_version;
    PyObject *is_grad_enabled;
    PyObject *cdata;
    PyObject *requires_grad;
} kept;

/* Returns torch's extension module as a library, which depends on all of its others. */
static void *
open_torch(void)
{
    PyObject *module = dlpy_imported_module("torch._C");
    PyObject *file = module == NULL ? NULL : PyObject_GetAttrString(module, "__file__");
    const char *path =
        file != NULL && PyUnicode_Check(file) ? PyUnicode_AsUTF8(file) : NULL;
    void *handle = path == NULL ? NULL : dlopen(path, RTLD_LAZY | RTLD_NOLOAD);

    Py_XDECREF(file);
    Py_XDECREF(module);
    PyErr_Clear();
    return handle;
}

static int
find_functions(void)
{
    static const dl_library library = {.title = "torch", .advice = "update torch"};
    const dl_symbol_list list = {symbols, sizeof symbols / sizeof *symbols};
    void *handle = open_torch();

    dlpy_mutex_lock(&torch_lock);
    int state = atomic_load_explicit(&torch_state, memory_order_relaxed);
    if (state == UNKNOWN) {
        bool is_bound =
            handle != NULL && dl_library_bind(&library, handle, list, &torch) == DL_OK;
        state = is_bound ? USABLE : UNUSABLE;
        atomic_store_explicit(&torch_state, state, DLPY_RELEASE);
    }
    dlpy_mutex_unlock(&torch_lock);
    return state;
}

static bool
is_usable(void)
{
    int state = atomic_load_explicit(&torch_state, DLPY_ACQUIRE);

    return (state == UNKNOWN ? find_functions() : state) == USABLE;
}

/* Returns an attribute of a tensor.  `found` keeps its name, as making one for each
 * call would take longer than looking it up. */
static PyObject *
attribute_of(PyObject *tensor, PyObject **found, const char *name)
{
    if (DLPY_LOAD(*found) == NULL) {
        DLPY_STORE(*found, PyUnicode_InternFromString(name));
    }
    PyObject *key = DLPY_LOAD(*found);

    return key == NULL ? NULL : PyObject_GetAttr(tensor, key);
}

dlpy_torch_handle *
dlpy_torch_hold(PyObject *tensor)
{
    PyObject *address =
        is_usable() ? attribute_of(tensor, &kept.cdata, "_cdata") : NULL;
    void *body = address == NULL ? NULL : PyLong_AsVoidPtr(address);
    dlpy_torch_handle *handle = NULL;

    Py_XDECREF(address);
    PyErr_Clear();
    /* A handle is the address of a pointer to the tensor's body. */
    bool is_held =
        body != NULL && torch.copy((dlpy_torch_handle *)(void *)&body, &handle) == 0;
    return is_held ? handle : NULL;
}

void
dlpy_torch_drop(dlpy_torch_handle *handle)
{
    if (handle != NULL) {
        (void)torch.drop(handle);
    }
}

bool
dlpy_torch_memory_of(dlpy_torch_handle *handle, dlpy_torch_memory *memory)
{
    void *data = NULL;
    int64_t size = 0;

    if (torch.data_of(handle, &data) != 0
        || torch.storage_size_of(handle, &size) != 0) {
        return false;
    }
    *memory = (dlpy_torch_memory){data, size};
    return true;
}

/* Returns a function of torch, which `found` keeps for the life of the process; NULL
 * with an exception set if there is none. */
static PyObject *
find_attribute(PyObject **found, const char *module_name, const char *name)
{
    PyObject *function = DLPY_LOAD(*found);

    if (function == NULL) {
        PyObject *module = PyImport_ImportModule(module_name);
        function = module == NULL ? NULL : PyObject_GetAttrString(module, name);
        Py_XDECREF(module);
        DLPY_STORE(*found, function);
    }
    return function;
}

/* Returns 1 or 0, or -1 with an exception set. */
static int
is_grad_enabled(void)
{
    PyObject *function =
        find_attribute(&kept.is_grad_enabled, "torch", "is_grad_enabled");
    PyObject *answer = function == NULL ? NULL : PyObject_CallNoArgs(function);
    int is_enabled = answer == NULL ? -1 : PyObject_IsTrue(answer);

    Py_XDECREF(answer);
    return is_enabled;
}

/* Returns whether autograd would use the tensor's new contents as if it had recorded
 * how they were made: 1, 0, or -1 with an exception set. */
static int
is_tracked(PyObject *tensor)
{
    PyObject *answer = attribute_of(tensor, &kept.requires_grad, "requires_grad");
    int requires_grad = answer == NULL ? -1 : PyObject_IsTrue(answer);

    Py_XDECREF(answer);
    return requires_grad > 0 ? is_grad_enabled() : requires_grad;
}

static int
increment_version(PyObject *tensor)
{
    PyObject *function = find_attribute(&kept.increment_version, "torch.autograd.graph",
                                        "increment_version");
    PyObject *result = function == NULL ? NULL : PyObject_CallOneArg(function, tensor);

    Py_XDECREF(result);
    return result == NULL ? -1 : 0;
}

static int
warn_once(void)
{
    if (atomic_exchange(&has_warned, true)) {
        return 0;
    }
    int result = PyErr_WarnEx(
        PyExc_UserWarning,
        "a collective writes to a tensor that requires grad, and autograd does not "
        "record it: gradients will be computed as if the collective were not there.  "
        "If that is intended, as when parameters are copied from another rank, pass "
        "tensor.detach() or call it under torch.no_grad(); otherwise use an autograd "
        "Function.  This warning is shown once per process",
        1);
    if (result < 0) {
        atomic_store(&has_warned, false); /* it was made an error */
    }
    return result;
}

int
dlpy_torch_note_write(PyObject *tensor)
{
    int needs_warning = increment_version(tensor);

    if (needs_warning == 0 && !atomic_load(&has_warned)) {
        needs_warning = is_tracked(tensor);
    }
    return needs_warning > 0 ? warn_once() : needs_warning;
}
