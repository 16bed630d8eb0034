/* SPDX-License-Identifier: BSD-3-Clause */
#include "python/state.h"

#include "python/call_site.h"
#include "python/convert.h"
#include "python/mpi_functions.h"
#include "python/object_cards.h"
#include "python/object_memory.h"
#include "python/pack.h"
#include "python/debug_functions.h"
#include "python/failure_report.h"
#include "python/log_reader.h"
#include "python/recorder_functions.h"
#include "python/safe_codec.h"
#include "python/shared_type.h"
#include "python/signals.h"

static int
module_exec(PyObject *module)
{
    /* First, as the other parts may log. */
    if (dlpy_add_log_reader(module) < 0 || dlpy_convert_init() < 0
        || dlpy_call_site_init(module) < 0 || dlpy_add_errors(module) < 0
        || dlpy_add_store_types(module) < 0 || dlpy_add_group_types(module) < 0
        || dlpy_add_work_type(module) < 0 || dlpy_add_shared_type(module) < 0) {
        return -1;
    }
    if (dlpy_add_recorder_functions(module) < 0 || dlpy_add_object_cards(module) < 0
        || dlpy_add_object_memory(module) < 0 || dlpy_add_debug_functions(module) < 0
        || dlpy_add_failure_report(module) < 0 || dlpy_add_mpi_functions(module) < 0
        || dlpy_add_safe_codec(module) < 0 || dlpy_add_packs(module) < 0) {
        return -1;
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
    {0, NULL},
};

PyModuleDef dlpy_module = {
    PyModuleDef_HEAD_INIT,
    .m_name = "distlite._C",
    .m_doc = "The compiled core of distlite; its public names are those of distlite.",
    .m_size = sizeof(dlpy_state),
    .m_slots = module_slots,
    .m_traverse = dlpy_state_traverse,
    .m_clear = dlpy_state_clear,
    .m_free = dlpy_state_free,
};

PyMODINIT_FUNC
PyInit__C(void)
{
    return PyModuleDef_Init(&dlpy_module);
}
