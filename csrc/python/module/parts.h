/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The parts of the module: each function adds the types and functions of one file, and
 * returns 0, or -1 with an exception set.  module.c calls them. */
#ifndef DISTLITE_PYTHON_MODULE_PARTS_H
#define DISTLITE_PYTHON_MODULE_PARTS_H

#include "python/module/state.h"

int dlpy_add_call_sites(PyObject *module);
int dlpy_add_errors(PyObject *module);
int dlpy_add_store_types(PyObject *module);
int dlpy_add_tcp_store_type(PyObject *module);
int dlpy_add_relay_functions(PyObject *module);
int dlpy_add_group_type(PyObject *module);
int dlpy_add_group_join(PyObject *module);
int dlpy_add_default_group(PyObject *module);
int dlpy_add_collective_functions(PyObject *module);
int dlpy_add_reducers(PyObject *module);
int dlpy_add_p2p_op(PyObject *module);
int dlpy_add_p2p_functions(PyObject *module);
int dlpy_add_p2p_batches(PyObject *module);
int dlpy_add_device_functions(PyObject *module);
int dlpy_add_work_type(PyObject *module);
int dlpy_add_region_types(PyObject *module);
int dlpy_add_recorder_functions(PyObject *module);
int dlpy_add_object_calls(PyObject *module);
int dlpy_add_debug_functions(PyObject *module);
int dlpy_add_failure_report(PyObject *module);
int dlpy_add_library_functions(PyObject *module);
int dlpy_add_safe_codec(PyObject *module);
int dlpy_add_packs(PyObject *module);
int dlpy_add_pack_plan(PyObject *module);
int dlpy_add_window_type(PyObject *module);

#endif
