# SPDX-License-Identifier: BSD-3-Clause
"""Private names that other libraries use, and lists of several arrays, beside torch."""

from datetime import timedelta

import pytest
from test_default_group import BOTH, agree, arrays, clean, init  # noqa: F401

torch = pytest.importorskip("torch", reason="torch, to compare with, is not installed")

pytestmark = pytest.mark.filterwarnings("ignore")

NAMES = """
PG_WRAPPER_STORE_PREFIX STORE_BASED_BARRIER_PREFIX _GLOO_AVAILABLE
_abort_process_group _as_iterable _canonicalize_group_rank _check_op
_check_p2p_op_list _check_single_tensor _check_tensor_list _check_valid_timeout
_device_capability _ensure_all_tensors_same_dtype _find_or_create_pg_by_ranks_and_tag
_find_pg_by_ranks_and_tag _get_all_pg_configs _get_backend_from_str
_get_default_timeout _get_group_size _get_group_size_by_name _get_group_tag
_get_object_coll_device _get_pg_config _get_pg_default_device _get_process_group_store
_get_process_group_uid _group_or_default_group _hash_ranks_to_str
_is_barrier_after_init _new_group_with_tag _new_process_group_helper
_object_to_tensor _pickler _process_group_name _register_process_group
_resolve_group_name_by_ranks_and_tag _resolve_process_group _set_pg_timeout
_tensor_to_object _unpickler _unregister_process_group _update_default_pg
_warn_not_in_group _world
_check_not_self_rank _get_global_rank _get_split_source _group_count _is_safe_to_split
_pg_backend_config _pg_group_ranks _pg_map _pg_names _pg_to_tag _tags_to_pg
_time_estimator _unregister_all_process_groups _validate_output_list_for_rank
"""


@pytest.mark.parametrize("name", NAMES.split())
def test_names_that_both_have(name):
    for dist in BOTH:
        assert hasattr(dist.distributed_c10d, name), dist


CALLS = {
    "config": lambda c10d, pg: c10d._get_pg_config(pg),
    "tag": lambda c10d, pg: c10d._get_group_tag(pg),
    "size": lambda c10d, pg: c10d._get_group_size_by_name("0"),
    "device of objects": lambda c10d, pg: c10d._get_object_coll_device(pg),
    "default device": lambda c10d, pg: str(c10d._get_pg_default_device(pg)),
    "uid": lambda c10d, pg: c10d._get_process_group_uid(pg),
    "found": lambda c10d, pg: c10d._find_pg_by_ranks_and_tag("", [0]) is pg,
    "not found": lambda c10d, pg: c10d._find_pg_by_ranks_and_tag("mine", [0]),
    "made": lambda c10d, pg: c10d._get_group_tag(
        c10d._find_or_create_pg_by_ranks_and_tag("mine", [0], 1)
    ),
    "no tag": lambda c10d, pg: c10d._find_or_create_pg_by_ranks_and_tag("", [0, 1], 2),
    "stride": lambda c10d, pg: c10d._find_or_create_pg_by_ranks_and_tag("a", [0], 2),
    "resolved": lambda c10d, pg: c10d._resolve_process_group("0") is pg,
    "unresolved": lambda c10d, pg: c10d._resolve_process_group("none"),
    "names": lambda c10d, pg: list(c10d._world.pg_names.values()),
    "ranks": lambda c10d, pg: list(c10d._world.pg_group_ranks.values()),
    "count": lambda c10d, pg: c10d._world.group_count,
    "next name": lambda c10d, pg: c10d._process_group_name([0], False),
    "hashed name": lambda c10d, pg: c10d._hash_ranks_to_str([0]),
    "rank": lambda c10d, pg: c10d._canonicalize_group_rank(pg, 0),
    "global rank": lambda c10d, pg: c10d._canonicalize_group_rank(pg, None, 0, True),
    "two ranks": lambda c10d, pg: c10d._canonicalize_group_rank(pg, 0, 0),
    "no rank": lambda c10d, pg: c10d._canonicalize_group_rank(pg),
    "timeout": lambda c10d, pg: c10d._get_default_timeout("gloo"),
    "no timeout": lambda c10d, pg: c10d._check_valid_timeout(3),
    "backend": lambda c10d, pg: str(c10d._get_backend_from_str()),
    "configurations": lambda c10d, pg: [
        {**each, "backend_config": ""} for each in c10d._world.pg_config_info
    ],
    "names of the module": lambda c10d, pg: c10d._pg_names[pg],
    "groups of the module": lambda c10d, pg: (len(c10d._pg_map), pg in c10d._pg_map),
    "ranks of the module": lambda c10d, pg: list(c10d._pg_group_ranks[pg]),
    "backends of the module": lambda c10d, pg: c10d._pg_backend_config[pg],
    "tags of the module": lambda c10d, pg: (
        c10d._pg_to_tag[pg],
        sorted(c10d._tags_to_pg),
    ),
    "old global rank": lambda c10d, pg: c10d._get_global_rank(pg, 0),
    "no global rank": lambda c10d, pg: c10d._get_global_rank(pg, 1),
    "safe to split": lambda c10d, pg: c10d._is_safe_to_split(),
    "oneself": lambda c10d, pg: c10d._check_not_self_rank(pg, 0, "source"),
    "another": lambda c10d, pg: c10d._check_not_self_rank(pg, 1, "source"),
    "no list": lambda c10d, pg: c10d._validate_output_list_for_rank(0, 0, []),
    "a list": lambda c10d, pg: c10d._validate_output_list_for_rank(0, 0, [pg]),
    "needless list": lambda c10d, pg: c10d._validate_output_list_for_rank(0, 1, [pg]),
    "no needless list": lambda c10d, pg: c10d._validate_output_list_for_rank(0, 1, []),
}


@pytest.mark.parametrize("name", CALLS)
def test_they_answer_alike(name):
    def call(dist):
        init(dist)
        return CALLS[name](dist.distributed_c10d, dist.group.WORLD)

    agree(call)


def test_a_group_without_a_default_one_is_made_alike():
    def call(dist):
        c10d, store = dist.distributed_c10d, dist.HashStore()
        made, _ = c10d._new_process_group_helper(
            1, 0, [], "gloo", store, "joined", timeout=timedelta(seconds=60)
        )
        c10d._world.pg_group_ranks[made] = {0: 0}
        init(dist)
        values = arrays(dist)
        dist.broadcast(values, src=0, group=made)
        return made.rank(), made.size(), made.group_name, values.tolist()

    agree(call)


def lists(dist, *values):
    return [arrays(dist) * value for value in values]


def of_array_1(dist):
    options = dist.BroadcastOptions()
    options.rootTensor = 1
    return options


SEVERAL = {
    "sum": lambda dist, pg, x: pg.allreduce(x),
    "max": lambda dist, pg, x: pg.allreduce(x, dist.ReduceOp.MAX),
    "product": lambda dist, pg, x: pg.allreduce(x, dist.ReduceOp.PRODUCT),
    "broadcast": lambda dist, pg, x: pg.broadcast(x, of_array_1(dist)),
    "gather": lambda dist, pg, x: pg.allgather(
        [lists(dist, 0, 0, 0), lists(dist, 0, 0, 0), x], lists(dist, 5, 6, 7)
    ),
}


@pytest.mark.parametrize("name", SEVERAL)
def test_several_arrays_of_a_rank(name):
    def call(dist):
        init(dist)
        arrays = lists(dist, 1, 2, 3)
        SEVERAL[name](dist, dist.group.WORLD, arrays).wait()
        return [array.tolist() for array in arrays]

    agree(call)
