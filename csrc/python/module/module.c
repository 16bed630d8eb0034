/* SPDX-License-Identifier: BSD-3-Clause */
#include "python/module/state.h"

#include <stddef.h>

#include "python/module/convert.h"
#include "python/module/gil.h"
#include "python/module/parts.h"
#include "python/record/call_site.h"

static int (*const parts[])(PyObject *module) = {
    dlpy_add_call_sites,       dlpy_add_errors,
    dlpy_add_store_types,      dlpy_add_tcp_store_type, /* after its base type */
    dlpy_add_group_type,       dlpy_add_group_join,
    dlpy_add_default_group,    dlpy_add_collective_functions,
    dlpy_add_p2p_functions,    dlpy_add_p2p_batches,
    dlpy_add_device_functions, dlpy_add_work_type,
    dlpy_add_region_types,     dlpy_add_recorder_functions,
    dlpy_add_object_calls,     dlpy_add_debug_functions,
    dlpy_add_failure_report,   dlpy_add_library_functions,
    dlpy_add_safe_codec,       dlpy_add_packs,
    dlpy_add_pack_plan,        dlpy_add_reducers,
    dlpy_add_window_type,      dlpy_add_p2p_op,
    dlpy_add_relay_functions,
};

static int
module_exec(PyObject *module)
{
    if (dlpy_convert_init() < 0) {
        return -1;
    }
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        if (parts[i](module) < 0) {
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

/* The fields that are strong references to objects. */
static const size_t references[] = {
    offsetof(dlpy_state, dist_error),        offsetof(dlpy_state, backend_error),
    offsetof(dlpy_state, network_error),     offsetof(dlpy_state, store_error),
    offsetof(dlpy_state, queue_empty_error), offsetof(dlpy_state, store_type),
    offsetof(dlpy_state, hash_store_type),   offsetof(dlpy_state, file_store_type),
    offsetof(dlpy_state, prefix_store_type), offsetof(dlpy_state, tcp_store_type),
    offsetof(dlpy_state, group_type),        offsetof(dlpy_state, default_group),
    offsetof(dlpy_state, custom_handler),    offsetof(dlpy_state, red_op_type),
    offsetof(dlpy_state, reduce_op_type),    offsetof(dlpy_state, make_reducer),
    offsetof(dlpy_state, reducers),          offsetof(dlpy_state, reducer_type),
    offsetof(dlpy_state, p2p_op_type),       offsetof(dlpy_state, pack_type),
    offsetof(dlpy_state, work_type),         offsetof(dlpy_state, future_of_work),
    offsetof(dlpy_state, pickle_dumps),      offsetof(dlpy_state, pickle_loads),
    offsetof(dlpy_state, pickle_words),
};

#define REFERENCE_COUNT (sizeof references / sizeof *references)
#define REFERENCE(state, i) (*(PyObject **)(void *)((char *)(state) + references[i]))

static int
traverse_state(PyObject *module, visitproc visit, void *arg)
{
    dlpy_state *state = dlpy_state_of_module(module);

    for (size_t i = 0; i < REFERENCE_COUNT; i++) {
        Py_VISIT(REFERENCE(state, i));
    }
    return dlpy_recorded_sites_traverse(state, visit, arg);
}

/* Also runs when initialisation failed halfway: every field may still be NULL. */
static int
clear_state(PyObject *module)
{
    dlpy_state *state = dlpy_state_of_module(module);

    for (size_t i = 0; i < REFERENCE_COUNT; i++) {
        Py_CLEAR(REFERENCE(state, i));
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
