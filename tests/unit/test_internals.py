# SPDX-License-Identifier: BSD-3-Clause
"""Private names of torch.distributed that other libraries use."""

from datetime import timedelta
from types import SimpleNamespace

import numpy as np
import pytest

import distlite as dist
from distlite import distributed_c10d as c10d
from distlite.rendezvous import _create_store_from_options

LIMIT = timedelta(seconds=30)


@pytest.fixture
def group():
    dist.init_process_group(store=dist.HashStore(), rank=0, world_size=1)
    yield dist.group.WORLD
    dist.destroy_process_group()


def test_what_is_known_of_a_group(group):
    assert c10d._get_pg_config() == {
        "pg_name": "0",
        "pg_desc": "default_pg",
        "backend_config": "cpu:gloo",
        "pg_size": 1,
        "ranks": [0],
    }
    further = dist.new_group(group_desc="further")
    assert [each["pg_desc"] for each in c10d._get_all_pg_configs()] == [
        "default_pg",
        "further",
    ]
    assert c10d._world.default_pg is group
    assert set(c10d._world.pg_map) == {group, further}
    assert c10d._world.pg_map[group][0] == "undefined"
    assert c10d._world.pg_names[further] == further.group_name
    assert c10d._world.pg_backend_config[group] == "cpu:gloo"
    assert c10d._world.pg_group_ranks[further] == {0: 0}
    assert c10d._world.group_count == 2
    assert c10d._get_group_size(None) == c10d._get_group_size_by_name("0") == 1
    assert c10d._get_process_group_store(group).num_keys() >= 0
    assert c10d._device_capability() == ["cpu"]
    assert c10d._get_object_coll_device() == "cpu"
    assert str(c10d._get_pg_default_device()) == "cpu"
    assert c10d._GLOO_AVAILABLE is True


def test_what_the_module_knows_of_groups(group):
    further = dist.new_group()
    assert set(c10d._pg_map) == set(c10d._pg_names) == {group, further}
    assert c10d._pg_backend_config[further] == "cpu:gloo"
    assert c10d._pg_to_tag[further] in c10d._tags_to_pg
    assert c10d._group_count == 2
    with pytest.raises(TypeError, match="does not support item assignment"):
        c10d._tags_to_pg["mine"] = [further]
    c10d._pg_names[further] = "another"
    assert further.group_name == c10d._pg_names[further] == "another"
    c10d._pg_group_ranks[further] = {3: 0}
    assert c10d._get_global_rank(further, 0) == 3
    c10d._unregister_all_process_groups()
    assert not c10d._pg_map
    c10d._register_process_group(group.group_name, group)
    further.shutdown()


def test_a_library_registers_a_group_of_its_own(group):
    """As one whose ranks come and go does: it makes the group by hand."""
    made = dist.ProcessGroup(dist.HashStore(), 0, 1, LIMIT, "alone")
    c10d._world.pg_map[made] = (None, None)
    assert dist.get_backend(made) == "cpu"
    c10d._world.pg_map[made] = ("gloo", None)
    c10d._world.pg_names[made] = "mine"
    c10d._world.pg_to_tag[made] = "user:of mine"
    c10d._world.tags_to_pg.setdefault("user:of mine", []).append(made)
    c10d._world.pg_group_ranks[made] = {0: 0}
    c10d._world.pg_backend_config[made] = "cpu:gloo"
    assert c10d._resolve_process_group("mine") is made
    assert c10d._find_pg_by_ranks_and_tag("of mine", [0]) is made
    assert (dist.get_rank(made), dist.get_backend(made)) == (0, "gloo")
    assert repr(c10d._world.pg_names) == str({group: "0", made: "mine"})
    assert c10d._world.pg_config_info[1] == {
        "pg_name": "mine",
        "pg_desc": made.group_desc,
        "backend_config": "cpu:gloo",
        "ranks": [],
        "group_size": 1,
        "group_count": 1,
    }
    with pytest.raises(TypeError, match="a ProcessGroup is needed, not -100"):
        c10d._world.pg_map[dist.GroupMember.NON_GROUP_MEMBER] = ("gloo", None)
    del c10d._world.pg_map[made]
    del c10d._world.pg_names[made]
    assert c10d._world.pg_group_ranks.pop(made, None) is None
    assert list(c10d._world.pg_map) == [group]
    made.shutdown()


def test_communicators_are_split_from_groups_with_devices(group):
    assert c10d._get_split_source(group) is None
    assert c10d._is_safe_to_split() is False
    with pytest.raises(NotImplementedError, match="estimator is not supported"):
        c10d._time_estimator(group).__enter__()


def test_names_of_the_package_itself():
    for name in ("_CoalescingManager", "_broadcast_coalesced", "_time_estimator"):
        assert getattr(dist, name) is getattr(c10d, name)
    assert dist._create_store_from_options is _create_store_from_options
    assert issubclass(c10d._ProcessGroupWrapper, dist.ProcessGroup)


def test_groups_are_found(group):
    assert c10d._resolve_process_group("0") is group
    assert c10d._resolve_process_group(group) is group
    with pytest.raises(RuntimeError, match="^Could not resolve .* the name none$"):
        c10d._resolve_process_group("none")
    assert c10d._find_pg_by_ranks_and_tag("", [0]) is group
    assert c10d._find_pg_by_ranks_and_tag("mine", [0]) is None
    made = c10d._find_or_create_pg_by_ranks_and_tag("mine", [0], 1)
    assert made is not group
    assert c10d._find_or_create_pg_by_ranks_and_tag("mine", [0], 1) is made
    assert c10d._get_group_tag(made) == "mine"
    assert c10d._get_group_tag(group) == "ptd:0"
    assert c10d._resolve_group_name_by_ranks_and_tag([0], "mine") == made.group_name
    with pytest.raises(ValueError, match="'other' has the ranks"):
        c10d._resolve_group_name_by_ranks_and_tag([0], "other")
    with pytest.raises(ValueError, match="with empty tag"):
        c10d._find_or_create_pg_by_ranks_and_tag("", [0, 1], 2)
    with pytest.raises(ValueError, match="divisible by stride"):
        c10d._find_or_create_pg_by_ranks_and_tag("mine", [0, 1, 2], 2)


def test_a_group_beside_the_default_one(group):
    store = dist.HashStore()
    made, keys = c10d._new_process_group_helper(
        1, 0, [], "gloo", store, "joined", timeout=LIMIT, group_desc="two jobs"
    )
    assert isinstance(keys, dist.PrefixStore)
    assert (made.group_name, made.group_desc, made.timeout) == (
        "joined",
        "two jobs",
        LIMIT,
    )
    c10d._world.pg_group_ranks[made] = {7: 0}
    assert dist.get_process_group_ranks(made) == [7]
    values = np.ones(2)
    dist.broadcast(values, src=7, group=made)
    with pytest.raises(ValueError, match="^The specified group name has already been"):
        c10d._new_process_group_helper(1, 0, [], "gloo", store, "joined")
    with pytest.raises(ValueError, match="does not number the 1 ranks"):
        c10d._world.pg_group_ranks[made] = {0: 0, 1: 1}
    assert c10d._new_process_group_helper(1, 0, [3], "gloo", store, "others") == (
        dist.GroupMember.NON_GROUP_MEMBER,
        None,
    )
    c10d._unregister_process_group("joined")
    assert made not in c10d._world.pg_map
    c10d._register_process_group("joined", made)
    assert dist.get_process_group_ranks(made) == [0]
    c10d._set_pg_timeout(timedelta(seconds=7), made)
    assert made.timeout == timedelta(seconds=7)
    c10d._abort_process_group(made)
    with pytest.raises(ValueError, match="has been destroyed"):
        c10d._abort_process_group(made)
    assert dist.is_initialized()
    c10d._abort_process_group()
    assert not dist.is_initialized()
    dist.init_process_group(store=dist.HashStore(), rank=0, world_size=1)


def test_ranks_of_two_kinds(group):
    further = dist.new_group()
    assert c10d._canonicalize_group_rank(further, global_rank=0) == 0
    assert c10d._canonicalize_group_rank(further, group_rank=0, return_global=True) == 0
    with pytest.raises(ValueError, match="^Can't specify both"):
        c10d._canonicalize_group_rank(further, 0, 0)
    with pytest.raises(ValueError, match="^Must specify"):
        c10d._canonicalize_group_rank(further)


def test_objects_as_arrays(group):
    data, size = c10d._object_to_tensor({"a": [1, 2]}, "cpu", group)
    assert int(size[0]) == len(data)
    padded = np.concatenate([np.asarray(data), np.zeros(9, np.uint8)])
    assert c10d._tensor_to_object(padded, size, group) == {"a": [1, 2]}


@pytest.mark.parametrize(
    ("call", "kind", "text"),
    [
        (lambda: c10d._check_valid_timeout(3), TypeError, "of type datetime.timedelta"),
        (lambda: c10d._check_single_tensor(3, "t"), TypeError, "parameter `t`"),
        (lambda: c10d._check_tensor_list(3, "t"), TypeError, "a list of arrays but"),
        (lambda: c10d._check_tensor_list([3], "t"), TypeError, "elements of type"),
        (lambda: c10d._check_op(print), ValueError, "Invalid ``op``"),
        (lambda: c10d._check_p2p_op_list([3]), ValueError, "of type ``P2POp``"),
        (
            lambda: c10d._ensure_all_tensors_same_dtype(
                [np.zeros(1)], np.zeros(1, np.float32)
            ),
            ValueError,
            "tensors with different dtypes",
        ),
        (
            lambda: c10d._validate_output_list_for_rank(0, 0, None),
            ValueError,
            "must be specified on destination",
        ),
        (
            lambda: c10d._validate_output_list_for_rank(0, 1, [3]),
            ValueError,
            "must NOT be specified",
        ),
        (lambda: c10d._nothing, AttributeError, "'_nothing'"),
        (lambda: c10d.np, AttributeError, "'np'"),
    ],
)
def test_what_is_refused(call, kind, text):
    with pytest.raises(kind, match=text):
        call()


def test_what_is_not_refused(group):
    c10d._check_single_tensor(np.zeros(1), "t")
    c10d._check_tensor_list([np.zeros(1)], "t")
    c10d._check_op(dist.isend)
    c10d._check_p2p_op_list([dist.P2POp(dist.irecv, np.zeros(1), 0)] * 2)
    c10d._ensure_all_tensors_same_dtype([np.zeros(1)], np.zeros(2))


def test_a_store_by_options(tmp_path):
    options = SimpleNamespace(init_method=f"file://{tmp_path}/meet", world_size=1)
    store = _create_store_from_options(options, 0)
    store.set("key", "value")
    assert store.get("key") == b"value"


def test_names_of_groups(group):
    one, other = (c10d._process_group_name([0], hashed) for hashed in (True, False))
    assert len(one) == 40 and other == "1"
    with pytest.warns(UserWarning, match="^Running here on global rank 0 which does"):
        c10d._warn_not_in_group("here")
