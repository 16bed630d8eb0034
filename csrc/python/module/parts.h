/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The parts of the module: what each file adds to it.  module.c has the list. */
#ifndef DISTLITE_PYTHON_MODULE_PARTS_H
#define DISTLITE_PYTHON_MODULE_PARTS_H

#include <stddef.h>

#include "python/module/state.h"

typedef struct dlpy_number {
    const char *name;
    long value;
} dlpy_number;

/* All members are optional. */
typedef struct dlpy_part {
    /* Called first.  Returns 0, or -1 with an exception set. */
    int (*begin)(dlpy_state *state, PyObject *module);
    PyMethodDef *functions;
    const dlpy_number *numbers; /* the last one without a name */
    /* Added under the last part of its name.  The offsets in the state are those of its
     * base type, which another part has added before, and of a reference to it. */
    PyType_Spec *type;
    size_t base;
    size_t slot;
} dlpy_part;

extern const dlpy_part dlpy_call_sites;
extern const dlpy_part dlpy_errors;
extern const dlpy_part dlpy_store_type;
extern const dlpy_part dlpy_hash_store_type;
extern const dlpy_part dlpy_file_store_type;
extern const dlpy_part dlpy_prefix_store_type;
extern const dlpy_part dlpy_tcp_store_type;
extern const dlpy_part dlpy_relay_functions;
extern const dlpy_part dlpy_group_type;
extern const dlpy_part dlpy_group_joining;
extern const dlpy_part dlpy_default_groups;
extern const dlpy_part dlpy_collective_functions;
extern const dlpy_part dlpy_reducers;
extern const dlpy_part dlpy_p2p_op_type;
extern const dlpy_part dlpy_p2p_functions;
extern const dlpy_part dlpy_p2p_batches;
extern const dlpy_part dlpy_device_functions;
extern const dlpy_part dlpy_completed_works;
extern const dlpy_part dlpy_work_type;
extern const dlpy_part dlpy_spare_memory;
extern const dlpy_part dlpy_shared_memory;
extern const dlpy_part dlpy_recorder_functions;
extern const dlpy_part dlpy_object_calls;
extern const dlpy_part dlpy_kept_calls;
extern const dlpy_part dlpy_object_functions;
extern const dlpy_part dlpy_debug_functions;
extern const dlpy_part dlpy_failure_report;
extern const dlpy_part dlpy_library_functions;
extern const dlpy_part dlpy_safe_codec;
extern const dlpy_part dlpy_packs;
extern const dlpy_part dlpy_pack_plans;
extern const dlpy_part dlpy_window_type;

#endif
