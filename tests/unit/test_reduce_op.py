# SPDX-License-Identifier: BSD-3-Clause
import copy
import ctypes
import pickle

import pytest

import distlite
from distlite import ReduceOp

NAMES = ["SUM", "AVG", "PRODUCT", "MIN", "MAX", "BAND", "BOR", "BXOR", "PREMUL_SUM"]
NAMES += ["MINLOC", "MAXLOC"]


def test_members_have_torchs_values():
    members = ReduceOp.RedOpType.__members__
    assert {name: int(member) for name, member in members.items()} == {
        name: value for value, name in enumerate(NAMES)
    }


def test_member_prints_its_name():
    assert repr(ReduceOp.SUM) == "<RedOpType.SUM: 0>"
    assert str(ReduceOp.SUM) == f"{ReduceOp.SUM}" == "RedOpType.SUM"
    assert (ReduceOp.MAX.name, ReduceOp.MAX.value) == ("MAX", 4)


def test_members_and_wrappers_are_instances():
    assert isinstance(ReduceOp.SUM, ReduceOp)
    assert isinstance(ReduceOp(ReduceOp.SUM), ReduceOp)
    assert not isinstance(0, ReduceOp)
    assert not isinstance("SUM", ReduceOp)


def test_wrapper_equals_its_member_and_nothing_else():
    wrapper = ReduceOp(ReduceOp.SUM)
    assert wrapper.op is ReduceOp.SUM
    assert wrapper == ReduceOp.SUM
    assert (ReduceOp.SUM == wrapper) is True  # noqa: SIM300 - the other way round
    assert wrapper == ReduceOp(ReduceOp.SUM)
    assert hash(wrapper) == hash(ReduceOp.SUM)
    assert wrapper != ReduceOp.MAX
    assert wrapper != ReduceOp(ReduceOp.MAX)
    assert wrapper != 0
    assert wrapper != "SUM"


@pytest.mark.parametrize("arguments", [(), (0,), ("SUM",), (None,)])
def test_wrapper_takes_a_member(arguments):
    with pytest.raises(TypeError):
        ReduceOp(*arguments)


def test_premul_sum_has_a_factor():
    scaled = ReduceOp.PREMUL_SUM(2.5)
    assert scaled.factor == 2.5
    assert scaled.op is ReduceOp.PREMUL_SUM
    assert scaled == ReduceOp.PREMUL_SUM
    with pytest.raises(TypeError):
        ReduceOp.PREMUL_SUM("2.5")
    with pytest.raises(RuntimeError, match="has no factor"):
        _ = ReduceOp(ReduceOp.PREMUL_SUM).factor


def test_only_premul_sum_has_a_factor():
    with pytest.raises(
        RuntimeError,
        match=r"Only PREMUL_SUM supports calling with a factor, got RedOpType\.SUM",
    ):
        ReduceOp.SUM(3.0)
    with pytest.raises(RuntimeError, match="Only PREMUL_SUM supports accessing factor"):
        _ = ReduceOp(ReduceOp.SUM).factor


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
@pytest.mark.parametrize("op", [ReduceOp.MAX, ReduceOp(ReduceOp.MAX)], ids=type)
def test_pickles(op, protocol):
    again = pickle.loads(pickle.dumps(op, protocol))
    assert again == op
    assert type(again) is type(op)


def test_copies_keep_the_factor():
    scaled = ReduceOp.PREMUL_SUM(3.0)
    for again in (
        copy.copy(scaled),
        copy.deepcopy(scaled),
        pickle.loads(pickle.dumps(scaled)),
    ):
        assert (again.op, again.factor) == (ReduceOp.PREMUL_SUM, 3.0)


def test_old_mirror_warns():
    with pytest.warns(FutureWarning, match="please use `distlite.ReduceOp`"):
        assert distlite.reduce_op.SUM is ReduceOp.SUM
    with pytest.raises(AttributeError):
        _ = distlite.reduce_op.nothing


def test_addresses_of_c_functions():
    """In what may hold one: a number, ctypes, a capsule, an object of numba's kind."""
    kind = ctypes.CFUNCTYPE(None)
    function = kind(lambda: None)
    address = ctypes.cast(function, ctypes.c_void_p).value
    new = ctypes.pythonapi.PyCapsule_New
    new.restype = ctypes.py_object
    new.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
    capsule = new(address, b"void ()", None)

    class Compiled:
        pass

    compiled = Compiled()
    compiled.address = address
    pointer = ctypes.c_void_p(address)
    for holder in (address, function, capsule, compiled, pointer):
        assert ReduceOp.from_c(holder).address == address
    data = ctypes.c_double(1)
    made = ReduceOp.from_c(function, "mine", ctypes.pointer(data))
    assert made.context == ReduceOp.from_c(function, None, data).context
    assert repr(made) == f"ReduceOp.from_c(mine() at {address:#x})"


def test_torch_s_private_name_of_a_scaled_sum():
    made = distlite._make_nccl_premul_sum(2.0)
    assert made == ReduceOp.PREMUL_SUM(2.0) and made.factor == 2.0
    assert isinstance(made, ReduceOp)
    for again in (copy.copy(made), copy.deepcopy(made)):
        assert (again, again.factor) == (made, 2.0)
    again = pickle.loads(pickle.dumps(made))
    assert (again, again.factor) == (made, 2.0)
