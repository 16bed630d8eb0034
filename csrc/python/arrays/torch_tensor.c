/* SPDX-License-Identifier: BSD-3-Clause */
#include "python/arrays/torch_tensor.h"

#include <dlfcn.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "python/module/free_threading.h"

/* A reference to a tensor is the address of a pointer to its TensorImpl: at::Tensor in
 * C++, AtenTensorHandle in C. */
typedef const void *const *reference;

/* The first three are part of torch's stable C interface; the others are C++ functions
 * with plain signatures. */
typedef struct torch_functions {
    int32_t (*data_of)(reference tensor, void **data);
    int32_t (*storage_size_of)(reference tensor, int64_t *size);
    bool (*is_grad_enabled)(void);
    bool (*requires_grad)(const void *impl);
    /* Returns the address of a pointer, which is NULL for inference tensors. */
    void *const *(*version_counter_of)(reference tensor);
    /* Throws for inference tensors. */
    void (*bump_version)(reference tensor);
} torch_functions;

#define SYMBOL(field, symbol) \
    {.name = (symbol), .offset = offsetof(torch_functions, field)}

static const dl_symbol symbols[] = {
    SYMBOL(data_of, "aoti_torch_get_data_ptr"),
    SYMBOL(storage_size_of, "aoti_torch_get_storage_size"),
    SYMBOL(is_grad_enabled, "aoti_torch_grad_mode_is_enabled"),
    SYMBOL(requires_grad, "_ZNK3c1010TensorImpl13requires_gradEv"),
    SYMBOL(version_counter_of,
           "_ZN5torch8autograd4impl15version_counterERKN2at6TensorE"),
    SYMBOL(bump_version, "_ZN5torch8autograd4impl12bump_versionERKN2at6TensorE"),
};

/* How this process's torch is asked. */
typedef struct torch_access {
    torch_functions functions;
    size_t offset; /* of the reference in a tensor's Python object */
} torch_access;

enum { UNKNOWN, USABLE, UNUSABLE };

static atomic_int torch_state;
static dlpy_mutex torch_lock; /* held to make `torch` usable */
static torch_access torch;    /* fixed once torch_state is USABLE */
static atomic_bool has_warned;

static reference
reference_by(const torch_access *access, PyObject *tensor)
{
    return (reference)(const void *)((const char *)tensor + access->offset);
}

static reference
reference_to(PyObject *tensor)
{
    return reference_by(&torch, tensor);
}

bool
dlpy_torch_bind(dl_symbol_list list, void *functions)
{
    static const dl_library library = {.title = "torch", .advice = "update torch"};
    /* The extension module's file, which depends on all of torch's libraries. */
    PyObject *module = dlpy_imported_module("torch._C");
    PyObject *file = module == NULL ? NULL : PyObject_GetAttrString(module, "__file__");
    const char *path =
        file != NULL && PyUnicode_Check(file) ? PyUnicode_AsUTF8(file) : NULL;
    void *handle = path == NULL ? NULL : dlopen(path, RTLD_LAZY | RTLD_NOLOAD);

    Py_XDECREF(file);
    Py_XDECREF(module);
    PyErr_Clear();
    return handle != NULL
           && dl_library_bind(&library, handle, list, functions) == DL_OK;
}

/* Returns torch's answer in Python, an attribute or a method's result; -1 if there is
 * none. */
static int64_t
ask(PyObject *tensor, const char *name, bool is_method)
{
    PyObject *answer = is_method ? PyObject_CallMethod(tensor, name, NULL)
                                 : PyObject_GetAttrString(tensor, name);
    int64_t number = answer == NULL ? -1 : PyLong_AsLongLong(answer);

    Py_XDECREF(answer);
    PyErr_Clear();
    return number;
}

/* Searches the words of the object, up to the size of its type. */
static bool
find_reference(torch_access *access, PyObject *tensor)
{
    size_t size = (size_t)Py_TYPE(tensor)->tp_basicsize;
    int64_t wanted = ask(tensor, "_cdata", false);

    for (size_t at = sizeof(PyObject); at + sizeof wanted <= size && wanted > 0;
         at += sizeof wanted) {
        int64_t word;
        memcpy(&word, (const char *)tensor + at, sizeof word);
        if (word == wanted) {
            access->offset = at;
            return true;
        }
    }
    return false;
}

static bool
agrees_on_versions(const torch_access *access, PyObject *tensor)
{
    reference own = reference_by(access, tensor);

    if (*access->functions.version_counter_of(own) == NULL) {
        return ask(tensor, "is_inference", true) == 1;
    }
    int64_t before = ask(tensor, "_version", false);
    /* An additional increment is harmless. */
    access->functions.bump_version(own);
    return before >= 0 && ask(tensor, "_version", false) == before + 1;
}

static bool
find_memory(const torch_access *access, PyObject *tensor, dlpy_torch_memory *memory)
{
    reference own = reference_by(access, tensor);
    void *data = NULL;
    int64_t size = 0;

    if (access->functions.data_of(own, &data) != 0
        || access->functions.storage_size_of(own, &size) != 0) {
        return false;
    }
    *memory = (dlpy_torch_memory){data, size};
    return true;
}

static bool
agrees(const torch_access *access, PyObject *tensor)
{
    dlpy_torch_memory memory;

    return find_memory(access, tensor, &memory)
           && (int64_t)(intptr_t)memory.data == ask(tensor, "data_ptr", true)
           && access->functions.requires_grad(*reference_by(access, tensor))
                  == (ask(tensor, "requires_grad", false) == 1)
           && agrees_on_versions(access, tensor);
}

static void
make_usable(const torch_access *access)
{
    dlpy_mutex_lock(&torch_lock);
    if (atomic_load_explicit(&torch_state, memory_order_relaxed) != USABLE) {
        torch = *access;
        atomic_store_explicit(&torch_state, USABLE, DLPY_RELEASE);
    }
    dlpy_mutex_unlock(&torch_lock);
}

/* A subclass may answer differently from torch; the next tensor then decides. */
static void
look_for_functions(PyObject *tensor)
{
    torch_access found = {0};
    int unknown = UNKNOWN;
    bool is_plain = strcmp(Py_TYPE(tensor)->tp_name, "Tensor") == 0;
    const dl_symbol_list list = {symbols, sizeof symbols / sizeof *symbols};

    if (dlpy_torch_bind(list, &found.functions) && find_reference(&found, tensor)
        && agrees(&found, tensor)) {
        make_usable(&found);
    } else if (is_plain) {
        atomic_compare_exchange_strong(&torch_state, &unknown, UNUSABLE);
    }
}

bool
dlpy_torch_can_look(PyObject *tensor)
{
    int state = atomic_load_explicit(&torch_state, DLPY_ACQUIRE);

    if (state == UNKNOWN) {
        look_for_functions(tensor);
        state = atomic_load_explicit(&torch_state, DLPY_ACQUIRE);
    }
    return state == USABLE;
}

bool
dlpy_torch_memory_of(PyObject *tensor, dlpy_torch_memory *memory)
{
    return find_memory(&torch, tensor, memory);
}

/* Returns 1 or 0, or -1 with an exception set. */
static int
is_grad_enabled(void)
{
    PyObject *module = PyImport_ImportModule("torch");
    PyObject *answer =
        module == NULL ? NULL : PyObject_CallMethod(module, "is_grad_enabled", NULL);
    int is_enabled = answer == NULL ? -1 : PyObject_IsTrue(answer);

    Py_XDECREF(module);
    Py_XDECREF(answer);
    return is_enabled;
}

static int
note_in_python(PyObject *tensor, bool *is_tracked)
{
    PyObject *module = PyImport_ImportModule("torch.autograd.graph");
    PyObject *result = module == NULL ? NULL
                                      : PyObject_CallMethod(module, "increment_version",
                                                            "(O)", tensor);

    Py_XDECREF(module);
    if (result == NULL) {
        return -1;
    }
    Py_DECREF(result);
    int is_enabled = ask(tensor, "requires_grad", false) == 1 ? is_grad_enabled() : 0;
    *is_tracked = is_enabled > 0;
    return is_enabled < 0 ? -1 : 0;
}

static void
note_directly(PyObject *tensor, bool *is_tracked)
{
    reference own = reference_to(tensor);

    if (*torch.functions.version_counter_of(own) != NULL) {
        torch.functions.bump_version(own);
    }
    *is_tracked =
        torch.functions.requires_grad(*own) && torch.functions.is_grad_enabled();
}

static int
warn(void)
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
    bool is_tracked = false;

    if (dlpy_torch_can_look(tensor)) {
        note_directly(tensor, &is_tracked);
    } else if (note_in_python(tensor, &is_tracked) < 0) {
        return -1;
    }
    return is_tracked ? warn() : 0;
}
