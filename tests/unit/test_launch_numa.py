# SPDX-License-Identifier: BSD-3-Clause
"""Which cores ranks get by --numa-binding, on hosts that are made up."""

import os

import pytest
from numa_tree import CORES, NODES, TOTAL, make_tree, write

from distlite.launch.numa import (
    MODES,
    Machine,
    cores_of_rank,
    gpu_nodes,
    numbers,
    spread,
)

EVERY = set(range(2 * TOTAL))


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    return str(make_tree(tmp_path_factory.mktemp("sys")))


def of_node(node):
    first = node * CORES
    return {*range(first, first + CORES), *range(first + TOTAL, first + TOTAL + CORES)}


def test_without_gpus_ranks_are_spread_over_nodes():
    assert spread(4, [0, 1]) == [0, 0, 1, 1]
    assert spread(3, [0, 1]) == [0, 0, 1]
    assert spread(1, [0, 1, 2]) == [0]
    assert spread(2, [0, 1, 2, 3]) == [0, 2]


def test_node_is_all_cores_of_the_node(root):
    machine = Machine(EVERY, root)
    assert machine.nodes() == list(range(NODES))
    assert machine.cores("node", 1, [0, 3]) == of_node(3)


def test_socket_is_all_nodes_of_the_socket(root):
    assert Machine(EVERY, root).cores("socket", 0, [2]) == of_node(2) | of_node(3)


def test_exclusive_shares_whole_cores_evenly(root):
    machine = Machine(EVERY, root)
    shares = [machine.cores("exclusive", rank, [1, 1, 1]) for rank in range(3)]
    assert [len(share) for share in shares] == [6, 6, 4]
    assert set().union(*shares) == of_node(1)
    for share in shares:
        assert {cpu % TOTAL for cpu in share} == {cpu for cpu in share if cpu < TOTAL}


def test_core_complex_is_those_of_one_cache(root):
    machine = Machine(EVERY, root)
    first, second, third = (
        machine.cores("core-complex", rank, [1, 1, 1]) for rank in range(3)
    )
    assert first == {8, 9, 10, 11, 40, 41, 42, 43}
    assert second == {12, 13, 14, 15, 44, 45, 46, 47}
    assert third == first


def test_the_largest_complex_that_may_be_used_comes_first(root):
    machine = Machine({8, 12, 13}, root)
    assert machine.cores("core-complex", 0, [1]) == {12, 13}


@pytest.mark.parametrize("mode", MODES)
def test_only_cores_that_may_be_used_are_given(root, mode):
    machine = Machine({3, 9, 40}, root)
    assert machine.nodes() == [0, 1]
    assert machine.cores(mode, 0, [1]) <= {3, 9, 40}


def test_too_few_cores_are_refused(root):
    nodes = [0] * 9
    with pytest.raises(OSError, match=r"node 0 has 8 core\(s\) for 9 ranks"):
        Machine(EVERY, root).cores("exclusive", 0, nodes)


def test_a_node_without_usable_cores_is_refused(root):
    with pytest.raises(OSError, match="node 2 has no core that this process may use"):
        Machine({0}, root).cores("node", 0, [2])


@pytest.mark.parametrize("mode", MODES)
def test_a_kernel_that_tells_nothing_has_one_node(tmp_path, mode):
    machine = Machine({0, 1, 2, 3}, str(tmp_path))
    assert machine.nodes() == [0]
    shares = [machine.cores(mode, rank, [0, 0]) for rank in range(2)]
    whole = {0, 1, 2, 3}
    assert shares == ([{0, 1}, {2, 3}] if mode == "exclusive" else [whole, whole])


def test_gpus_tell_their_nodes(tmp_path, monkeypatch):
    for address, node in [("0000:07:00.0", 1), ("0000:0a:00.0", -1)]:
        (tmp_path / "gpus" / address).mkdir(parents=True)
        write(tmp_path / f"sys/bus/pci/devices/{address}/numa_node", str(node))
    where = str(tmp_path / "gpus"), str(tmp_path / "sys")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    assert gpu_nodes(*where) == [1, 0]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1,0")
    assert gpu_nodes(*where) == [0, 1]
    for unclear in "", "2", "GPU-5ebe9f43":
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", unclear)
        assert gpu_nodes(*where) == []


@pytest.mark.parametrize("mode", ["node", "socket", "core-complex"])
def test_this_host_has_cores_for_every_rank(mode):
    for rank in range(3):
        cores = cores_of_rank(mode, rank, 3)
        assert cores and cores <= os.sched_getaffinity(0)


def test_lists_are_the_kernels():
    assert numbers("0-2,4,6-7\n") == {0, 1, 2, 4, 6, 7}
    assert numbers("\n") == set()
