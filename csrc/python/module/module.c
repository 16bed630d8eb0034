/* SPDX-License-Identifier: BSD-3-Clause */
#include "python/module/state.h"

#include <stddef.h>

#include "python/module/convert.h"
#include "python/module/gil.h"
#include "python/module/parts.h"
#include "python/record/call_site.h"

static const dlpy_part *const parts[] = {
    &dlpy_call_sites,         &dlpy_errors,           &dlpy_store_type,
    &dlpy_hash_store_type,    &dlpy_file_store_type,  &dlpy_prefix_store_type,
    &dlpy_tcp_store_type,     &dlpy_relay_functions,  &dlpy_group_type,
    &dlpy_group_joining,      &dlpy_default_groups,   &dlpy_collective_functions,
    &dlpy_reducers,           &dlpy_p2p_op_type,      &dlpy_p2p_functions,
    &dlpy_p2p_batches,        &dlpy_device_functions, &dlpy_completed_works,
    &dlpy_work_type,          &dlpy_spare_memory,     &dlpy_shared_memory,
    &dlpy_recorder_functions, &dlpy_object_calls,     &dlpy_kept_calls,
    &dlpy_object_functions,   &dlpy_debug_functions,  &dlpy_failure_report,
    &dlpy_library_functions,  &dlpy_safe_codec,       &dlpy_packs,
    &dlpy_pack_plans,         &dlpy_window_type,
};

#define REFERENCE(state, offset) ((PyObject **)(void *)((char *)(state) + (offset)))

/* An offset of 0 stands for no type: there the state has an exception. */
static int
add_type(dlpy_state *state, PyObject *module, const dlpy_part *part)
{
    PyObject *base = part->base == 0 ? NULL : *REFERENCE(state, part->base);
    PyObject *type = PyType_FromModuleAndSpec(module, part->type, base);

    if (type == NULL) {
        return -1;
    }
    int result = PyModule_AddType(module, (PyTypeObject *)type);
    /* The state owns the reference, even if adding the type to the module failed. */
    if (part->slot != 0) {
        *REFERENCE(state, part->slot) = type;
    } else {
        Py_DECREF(type);
    }
    return result;
}

/* Their `__module__` is the package, where users find them and where inspect looks up
 * the `ReduceOp` of their signatures. */
static int
add_functions(PyObject *module, PyMethodDef *functions)
{
    PyObject *package = PyUnicode_InternFromString("distlite");
    int result = package == NULL ? -1 : 0;

    for (PyMethodDef *def = functions; result == 0 && def->ml_name != NULL; def++) {
        PyObject *function = PyCFunction_NewEx(def, module, package);
        result = function == NULL
                     ? -1
                     : PyModule_AddObjectRef(module, def->ml_name, function);
        Py_XDECREF(function);
    }
    Py_XDECREF(package);
    return result;
}

static int
add_part(dlpy_state *state, PyObject *module, const dlpy_part *part)
{
    if ((part->begin != NULL && part->begin(state, module) < 0)
        || (part->functions != NULL && add_functions(module, part->functions) < 0)
        || (part->type != NULL && add_type(state, module, part) < 0)) {
        return -1;
    }
    int result = 0;
    const dlpy_number *each = part->numbers;
    for (; each != NULL && each->name != NULL && result == 0; each++) {
        result = PyModule_AddIntConstant(module, each->name, each->value);
    }
    return result;
}

static int
module_exec(PyObject *module)
{
    if (dlpy_convert_init() < 0) {
        return -1;
    }
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        if (add_part(dlpy_state_of_module(module), module, parts[i]) < 0) {
            return -1;
        }
    }
    /* Last: until the module is complete no thread can block in the core. */
    dlpy_signals_install();
    return 0;
}

static PyModuleDef_Slot module_slots[] = {
    {Py_mod_exec, module_exec},
#if PY_VERSION_HEX >= 0x030c0000
    /* The core checks the signals of one interpreter, and NumPy's C interface is per
     * process. */
    {Py_mod_multiple_interpreters, Py_MOD_MULTIPLE_INTERPRETERS_NOT_SUPPORTED},
#endif
#if PY_VERSION_HEX >= 0x030e0000
    {Py_mod_gil, Py_MOD_GIL_NOT_USED},
#endif
    {0, NULL},
};

/* The fields that are references come first, one after the other. */
#define REFERENCES_SIZE offsetof(dlpy_state, site_cache)

static int
traverse_state(PyObject *module, visitproc visit, void *arg)
{
    dlpy_state *state = dlpy_state_of_module(module);

    for (size_t at = 0; at < REFERENCES_SIZE; at += sizeof(PyObject *)) {
        Py_VISIT(*REFERENCE(state, at));
    }
    return dlpy_recorded_sites_traverse(state, visit, arg);
}

/* Also runs when initialisation failed halfway: every field may still be NULL. */
static int
clear_state(PyObject *module)
{
    dlpy_state *state = dlpy_state_of_module(module);

    for (size_t at = 0; at < REFERENCES_SIZE; at += sizeof(PyObject *)) {
        Py_CLEAR(*REFERENCE(state, at));
    }
    dlpy_recorded_sites_clear(state);
    return 0;
}

static void
free_state(void *module)
{
    clear_state(module);
}

PyModuleDef dlpy_module = {
    PyModuleDef_HEAD_INIT,
    .m_name = "distlite._C",
    .m_doc = "The compiled core of distlite; its public names are those of distlite.",
    .m_size = sizeof(dlpy_state),
    .m_slots = module_slots,
    .m_traverse = traverse_state,
    .m_clear = clear_state,
    .m_free = free_state,
};

PyMODINIT_FUNC
PyInit__C(void)
{
    return PyModuleDef_Init(&dlpy_module);
}
