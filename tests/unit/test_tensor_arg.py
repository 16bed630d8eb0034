# SPDX-License-Identifier: BSD-3-Clause
"""What collectives take as arrays, and what they say of the rest."""

import array
import gc
import re
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime_CAPI, timedelta
from typing import ClassVar

import numpy as np
import pytest
from dlpack_producer import OfAUser, Producer, Writable

import distlite
from distlite import ReduceOp


@pytest.fixture(scope="module")
def group():
    made = distlite.ProcessGroup(
        distlite.HashStore(), 0, 1, timedelta(seconds=60), group_name="alone"
    )
    yield made
    made.shutdown()


@pytest.fixture(scope="module")
def pair():
    """Both ends of a group of two, the second on a thread of its own."""
    with ThreadPoolExecutor(1) as pool:
        store, limit = distlite.HashStore(), timedelta(seconds=60)
        other = pool.submit(distlite.ProcessGroup, store, 1, 2, limit, "pair")
        ours = distlite.ProcessGroup(store, 0, 2, limit, "pair")
        yield pool, ours, other.result(20)


@pytest.fixture
def doubled(pair):
    """Adds an array of the same values, and as many, from the other rank."""
    pool, ours, other = pair

    def call(thing, values):
        theirs = np.array(values, order="C")
        done = pool.submit(distlite.all_reduce, theirs, group=other)
        distlite.all_reduce(thing, group=ours)
        done.result(20)
        np.testing.assert_array_equal(theirs, values * 2)

    return call


@pytest.fixture
def all_reduce(group):
    def call(tensor, op=ReduceOp.SUM):
        return distlite.all_reduce(tensor, op, group)

    return call


NUMERIC = list("?bBhHiIlLqQefdFD")


def seen_dtype(group, tensor):
    """The core's name for a dtype, out of what it says of reductions that have no
    meaning: of bits of floating-point numbers, and the mean of integers."""
    for op in ReduceOp.BAND, ReduceOp.AVG:
        try:
            distlite.all_reduce(tensor, op, group)
        except ValueError as error:
            return re.split(" of |: the mean|, only", str(error))[1]
    raise AssertionError("both were done")


@pytest.mark.parametrize("code", NUMERIC)
def test_takes_every_numeric_dtype(group, code):
    tensor = np.arange(7).astype(code)
    assert seen_dtype(group, tensor) == tensor.dtype.name
    assert distlite.broadcast(tensor, 0, group) is None
    np.testing.assert_array_equal(tensor, np.arange(7).astype(code))


@pytest.mark.parametrize("shape", [(), (0,), (1,), (3, 4), (2, 0, 5), (1,) * 32])
def test_takes_any_shape(all_reduce, shape):
    tensor = np.full(shape, 3.5)
    all_reduce(tensor)
    assert tensor.shape == shape
    assert (tensor == 3.5).all()


NAMES = {
    "datetime64[D]": np.array(["2026-11-21"], "datetime64[D]"),
    "timedelta64[10s]": np.array([5], "timedelta64[10s]"),
    "datetime64": np.array(["NaT"], "datetime64"),
    "S300": np.array([b"abc"], "S300"),
    "U3": np.array(["abc"], "U3"),
    "V7": np.zeros(2, "V7"),
    "longdouble": np.array([1.5], np.longdouble),
    "clongdouble": np.array([1.5], np.clongdouble),
    "{a: int32 at 0, b: float64 at 4, 12 bytes}": np.zeros(
        2, [("a", "i4"), ("b", "f8")]
    ),
    "{x?y: {t: datetime64[ms] at 0, 8 bytes}[2, 3] at 0, 48 bytes}": np.zeros(
        2, [("x\ny", [("t", "M8[ms]")], (2, 3))]
    ),
}


@pytest.mark.parametrize("name", NAMES)
def test_moves_what_it_cannot_add(group, name):
    tensor = NAMES[name]
    before = tensor.copy()
    distlite.broadcast(tensor, 0, group)
    assert tensor.tobytes() == before.tobytes()
    for op in distlite.ReduceOp.SUM, distlite.ReduceOp.AVG:
        with pytest.raises(
            ValueError, match=re.escape(f" does not support {op.name} of {name}")
        ):
            distlite.all_reduce(tensor, op, group)


def test_types_of_other_packages_are_named(group):
    ml_dtypes = pytest.importorskip("ml_dtypes")
    tensor = np.zeros(3, ml_dtypes.float8_e5m2fnuz)
    with pytest.raises(ValueError, match="does not support SUM of float8_e5m2fnuz"):
        distlite.all_reduce(tensor, group=group)


def test_blocks_of_one_call_are_of_one_dtype(group):
    seconds, others = np.zeros(2, "M8[s]"), np.zeros(2, "M8[ms]")
    text = r"has dtype datetime64\[ms\], but the output has dtype datetime64\[s\]"
    with pytest.raises(ValueError, match=text):
        distlite.all_gather([seconds], others, group)


def test_a_dtype_may_be_deep(group):
    dtype = np.dtype("i4")
    for _ in range(100):
        dtype = np.dtype([("a", dtype)])
    distlite.broadcast(np.zeros(2, dtype), 0, group)
    for _ in range(20_000):
        dtype = np.dtype([("a", dtype)])
    # Since Python 3.14 the depth is measured in bytes of the thread's stack.
    former = threading.stack_size(2**19 if sys.version_info >= (3, 14) else 0)
    with ThreadPoolExecutor(1) as pool:
        told = pool.submit(distlite.broadcast, np.zeros(2, dtype), 0, group)
    threading.stack_size(former)
    with pytest.raises(RecursionError):
        told.result()


def test_names_of_fields_may_be_anything(group):
    for name in "\udc80", "a\0b", "é" * 300, "{}: ,":
        distlite.broadcast(np.zeros(2, [(name, "i4")]), 0, group)


def test_fields_may_be_renamed_in_place(group):
    dtype = np.dtype([("a", "i4")])
    renamed, others = np.zeros(2, dtype), np.zeros(2, [("a", "i4")])
    assert renamed.dtype is dtype
    for names in ("a",), ("z",), ("a",), dtype.names:
        dtype.names = names
        if names == ("a",):
            distlite.all_gather([renamed], others, group)
        else:
            with pytest.raises(
                ValueError, match=r"the output has dtype \{z: int32 at 0"
            ):
                distlite.all_gather([renamed], others, group)


def test_fields_of_fields_may_be_renamed_in_place(group):
    form = [("a", [("b", "i4")], (2,)), ("c", [("d", "f8"), ("e", "f4")])]
    renamed, others = np.zeros(2, form), np.zeros(2, form)
    distlite.all_gather([renamed], others, group)
    for dtype, name in (renamed.dtype["a"].base, "B"), (renamed.dtype["c"], "D"):
        before = dtype.names
        dtype.names = (name, *before[1:])
        with pytest.raises(ValueError, match=rf"the output has dtype .*\b{name}: "):
            distlite.all_gather([renamed], others, group)
        dtype.names = before
        distlite.all_gather([renamed], others, group)


def test_dtypes_that_are_gone_are_not_taken_for_others(group):
    """The next one lies where the last one lay."""
    for turn in range(100):
        text = re.escape(
            f"does not support SUM of {{f{turn % 40}: int32 at 0, 4 bytes}}"
        )
        with pytest.raises(ValueError, match=text):
            distlite.all_reduce(np.zeros(2, [(f"f{turn % 40}", "i4")]), group=group)


class Told:
    """Calls back when it goes."""

    def __init__(self, call):
        self.call = call

    def __del__(self):
        self.call()


def test_dtypes_are_not_held_for_ever(group):
    """One that goes may bring others along."""
    gone = []

    def describe_more():
        for name in "xyz":
            distlite.broadcast(np.zeros(2, [(name, "i4")]), 0, group)
        gone.append(True)

    dtype = np.dtype([("a", "i4")], metadata={"told": Told(describe_more)})
    distlite.broadcast(np.zeros(2, dtype), 0, group)
    del dtype
    for turn in range(100):
        distlite.broadcast(np.zeros(2, [(f"f{turn % 40}", "i4")]), 0, group)
    assert gone == [True]


@pytest.mark.parametrize("dtype", ["O", [("a", "i4"), ("b", "O")]])
def test_references_mean_nothing_to_others(all_reduce, dtype):
    with pytest.raises(TypeError, match="`tensor` has dtype .*references"):
        all_reduce(np.empty(3, dtype))


@pytest.mark.skipif(
    not hasattr(np, "dtypes") or not hasattr(np.dtypes, "StringDType"),
    reason="NumPy 2 has it",
)
def test_strings_of_any_length_are_references(all_reduce):
    with pytest.raises(TypeError, match="references"):
        all_reduce(np.array(["a", "b" * 100], np.dtypes.StringDType()))


@pytest.mark.parametrize("dtype", [">f4", ">i8", ">c16", ">U4", ">M8[s]"])
def test_foreign_byte_order(all_reduce, dtype):
    with pytest.raises(ValueError, match="`tensor` has dtype .*not native.*astype"):
        all_reduce(np.zeros(3, dtype))


def unaligned(count):
    tensor = np.zeros(count * 8 + 1, np.uint8)[1:].view("f8")
    assert not tensor.flags.aligned
    return tensor


@pytest.mark.parametrize(
    "tensor",
    [
        np.zeros(10)[::2],
        np.zeros((3, 4)).T,
        np.zeros((3, 4))[:, 1],
        np.zeros(5)[::-1],
        np.zeros((2, 3, 4), order="F"),
        np.zeros((4, 6))[1::2, ::-3],
        unaligned(7),
    ],
    ids=["gaps", "transposed", "column", "reversed", "Fortran", "both", "unaligned"],
)
@pytest.mark.parametrize("kind", ["numpy", "dlpack", "legacy"])
def test_takes_any_layout(doubled, group, tensor, kind):
    tensor[...] = values = np.arange(tensor.size).reshape(tensor.shape) + 0.5
    exported = {"numpy": np.asarray, "dlpack": Producer, "legacy": Writable}
    thing = exported[kind](tensor)
    doubled(thing, values)
    np.testing.assert_array_equal(tensor, values * 2)
    distlite.broadcast(thing, 0, group)
    np.testing.assert_array_equal(tensor, values * 2)


def test_elements_that_share_memory_are_refused(group):
    memory = np.zeros(10)
    tensor = np.lib.stride_tricks.as_strided(memory, (4, 4), (8, 8))
    sent = group._get_sequence_number_for_group()
    with pytest.raises(ValueError, match="share memory"):
        distlite.all_reduce(tensor, group=group)
    assert group._get_sequence_number_for_group() == sent


HUGE = 1 << 61


@pytest.mark.parametrize("kind", [np.asarray, Producer])
@pytest.mark.parametrize("strides", [(HUGE, 8), (-HUGE, 8), (8, HUGE)])
def test_strides_that_lead_nowhere_are_refused(group, kind, strides):
    tensor = np.lib.stride_tricks.as_strided(np.zeros(4), (9, 9), strides)
    sent = group._get_sequence_number_for_group()
    with pytest.raises(ValueError, match="strides that lead out of the address space"):
        distlite.broadcast(kind(tensor), 0, group)
    assert group._get_sequence_number_for_group() == sent


def test_lengths_that_lead_nowhere_are_refused(group):
    with pytest.raises(ValueError, match="larger than any memory"):
        distlite.broadcast(Producer(np.zeros((1, 1)), shape=(HUGE, 9)), 0, group)


def test_read_only_is_refused_for_results(all_reduce, group):
    tensor = np.arange(3.0)
    tensor.flags.writeable = False
    with pytest.raises(ValueError, match="read-only"):
        all_reduce(tensor)
    # The root of a broadcast only reads.
    distlite.broadcast(tensor, 0, group)


@pytest.mark.parametrize(
    "thing",
    [[1, 2], (1.0,), 3, 2.5, None, "text", b"bytes", {}, np.float32(1), np, object()],
    ids=lambda thing: type(thing).__name__,
)
def test_wrong_types_are_named_as_torch_does(all_reduce, thing):
    with pytest.raises(TypeError) as caught:
        all_reduce(thing)
    assert str(caught.value).startswith(
        "Invalid function argument. Expected parameter `tensor` of type numpy.ndarray "
        "(or a CPU torch.Tensor, or anything with DLPack)\n"
        f"             but got {type(thing)} instead."
    )


class Interface:
    """Memory through `__array_interface__` alone."""

    def __init__(self, values):
        self.values = values
        self.__array_interface__ = values.__array_interface__


class Converts:
    """Makes an array when asked, of memory of its own."""

    def __array__(self, dtype=None, copy=None):
        return np.zeros(3)


def test_takes_array_interface(doubled):
    for values in np.arange(3.0), np.arange(6.0)[::2]:
        before = values.copy()
        doubled(Interface(values), before)
        np.testing.assert_array_equal(values, before * 2)


@pytest.mark.parametrize(
    "lender",
    [array.array("d", [1, 2]), bytearray(b"ab"), memoryview(bytearray(b"ab"))],
    ids=lambda lender: type(lender).__name__,
)
def test_takes_buffers(doubled, lender):
    before = np.array(lender)
    doubled(lender, before)
    np.testing.assert_array_equal(np.array(lender), before * 2)


def test_read_only_buffers_are_refused(all_reduce):
    with pytest.raises(ValueError, match="read-only"):
        all_reduce(memoryview(b"ab"))


def test_a_copy_would_lose_the_result(all_reduce):
    with pytest.raises(TypeError, match="Expected parameter `tensor`"):
        all_reduce(Converts())


@pytest.mark.parametrize("kind", [Producer, Writable, OfAUser])
@pytest.mark.parametrize("code", NUMERIC)
def test_takes_dlpack(group, code, kind):
    values = np.arange(6).astype(code).reshape(2, 3)
    producer = kind(values.copy())
    assert seen_dtype(group, producer) == values.dtype.name
    distlite.broadcast(producer, 0, group)
    np.testing.assert_array_equal(producer.array, values)
    assert producer.capsules == 0


@pytest.mark.parametrize(
    ("said", "seen"),
    [
        ({"offset": 16}, "float32"),
        ({"strides": None}, "float32"),
        ({"device": 3}, "float32"),
        ({"device": 11}, "float32"),
        ({"code": 4, "bits": 16}, "bfloat16"),
        ({"code": 10, "bits": 8}, "float8_e4m3fn"),
        ({"code": 12, "bits": 8}, "float8_e5m2"),
        ({"code": 14, "bits": 8}, "float8_e8m0fnu"),
        ({"code": 17, "bits": 4, "lanes": 2}, "DLPack type 17"),
        ({"code": 2, "bits": 16, "lanes": 2}, "DLPack type 2"),
    ],
    ids=str,
)
def test_dlpack_of_other_libraries(group, said, seen):
    item = said.get("bits", 32) * said.get("lanes", 1) // 8
    producer = Producer(np.zeros(4, f"u{item}"), **{"code": 2, "bits": 32, **said})
    assert seen_dtype(group, producer) == seen
    distlite.broadcast(producer, 0, group)


@pytest.mark.parametrize(
    ("array_", "said", "kind", "text"),
    [
        (np.zeros(4), {"device": 8}, ValueError, "`tensor` is on a device .*type 8"),
        (np.zeros(4), {"device": 2}, NotImplementedError, "cuda:0.*has no backend"),
        (np.zeros(4), {"major": 2}, BufferError, "version 2 of DLPack"),
        (np.zeros(4), {"flags": 1}, ValueError, "read-only"),
        (np.zeros(4), {"flags": 2}, ValueError, "read-only"),
        (np.zeros(4), {"bits": 4}, ValueError, "elements of 4 bits"),
        (np.zeros(4), {"bits": 0}, ValueError, "elements of 0 bits"),
        (np.zeros(4), {"lanes": 0}, ValueError, "elements of 0 bits"),
        (np.zeros((4, 2)), {"shape": (-4, -2)}, ValueError, "a length of -4"),
        (np.zeros(4), {"absent": "data"}, ValueError, "`tensor` has no data"),
        (np.zeros(4), {"absent": "shape"}, ValueError, "`tensor` has no shape"),
    ],
    ids=lambda given: str(given) if isinstance(given, dict) else "",
)
def test_dlpack_refused(all_reduce, array_, said, kind, text):
    producer = Producer(array_, **said)
    with pytest.raises(kind, match=text):
        all_reduce(producer)
    assert producer.capsules == 0


@pytest.mark.parametrize(
    "said",
    [
        {"shape": (-4,)},
        {"shape": (-4, -2)},
        {"data": ("an address", False), "stream": None},
        {"data": (4096,), "stream": None},
    ],
    ids=str,
)
def test_cuda_arrays_that_make_no_sense(all_reduce, said):
    class Array:
        __cuda_array_interface__: ClassVar[dict] = {
            **{"shape": (4,), "typestr": "<f4", "data": (4096, False), "version": 3},
            **said,
        }

    with pytest.raises(ValueError, match="__cuda_array_interface__ that is not supp"):
        all_reduce(Array())


def test_a_capsule_that_does_not_promise_writing_is_read_only(group):
    """JAX exports such ones, of arrays that never change and share their memory."""
    shared = np.arange(3.0)
    arrays = [Producer(shared, versioned=False) for _ in range(2)]
    calls = {
        "all_reduce": lambda: distlite.all_reduce(arrays[0], group=group),
        "async": lambda: distlite.all_reduce(arrays[0], group=group, async_op=True),
        "reduce": lambda: distlite.reduce(arrays[0], 0, group=group),
        "all_gather": lambda: distlite.all_gather([arrays[0]], np.ones(3), group),
        "scatter": lambda: distlite.scatter(arrays[0], [np.ones(3)], group=group),
    }
    for name, call in calls.items():
        with pytest.raises(
            ValueError,
            match=f"{name.replace('async', 'all_reduce')}: "
            "the array is read-only.*numpy.array",
        ):
            call()
    assert shared.tolist() == [0.0, 1.0, 2.0]
    # What is only read may be such an array.
    gathered = np.zeros(3)
    distlite.all_gather([gathered], arrays[1], group)
    distlite.broadcast(arrays[1], 0, group)
    assert gathered.tolist() == shared.tolist()


def test_masked_arrays_are_refused(group):
    masked = np.ma.masked_array([1.0, 2.0, 3.0], [False, True, False])
    calls = {
        "tensor": lambda: distlite.all_reduce(masked, group=group),
        "input_tensor": lambda: distlite.all_gather_single(np.ones(3), masked, group),
        "tensor_list": lambda: distlite.all_gather([masked], np.ones(3), group),
    }
    for name, call in calls.items():
        with pytest.raises(ValueError, match=rf"`{name}.* is a masked array.*filled"):
            call()
    distlite.all_reduce(masked.filled(0), group=group)
    distlite.all_reduce(np.zeros(2).view(np.recarray), group=group)


def test_dlpack_axes_of_one_element_have_any_stride(all_reduce, doubled):
    tensor = np.ones((4, 3))[:, :1][:1]
    assert tensor.shape == (1, 1)
    doubled(Producer(tensor), tensor.copy())
    assert tensor[0, 0] == 2
    all_reduce(Producer(np.zeros((0, 3))[:, ::2]))


def test_errors_of_the_other_library_come_through(all_reduce):
    class Refuses:
        def __dlpack__(self, **_):
            raise BufferError("not today")

    with pytest.raises(BufferError, match="^`tensor`: not today$"):
        all_reduce(Refuses())


@pytest.mark.parametrize("returned", [5, None, np.zeros(3), datetime_CAPI])
def test_no_capsule(all_reduce, returned):
    class Lies:
        def __dlpack__(self, **_):
            return returned

    text = r"^`tensor`: __dlpack__\(\) of Lies has returned an? (object|capsule)"
    with pytest.raises(TypeError, match=text):
        all_reduce(Lies())


def test_a_property_that_raises_is_named(all_reduce):
    class Refuses:
        @property
        def __dlpack__(self):
            raise RuntimeError("not today")

    with pytest.raises(RuntimeError, match="^`tensor`: not today$"):
        all_reduce(Refuses())


@pytest.mark.parametrize("device", [1, 2])
def test_exporters_know_none_or_some_of_the_keywords(group, device):
    values = np.arange(4.0)
    kinds = (
        lambda self: values.__dlpack__(),
        lambda self, stream=None: values.__dlpack__(),
        lambda self, max_version=None: values.__dlpack__(max_version=max_version),
    )
    for export in kinds:
        members = {"__dlpack__": export, "__dlpack_device__": lambda _: (device, 0)}
        distlite.broadcast(type("Array", (), members)(), 0, group)


def test_references_are_given_back(all_reduce):
    lender, plain = Interface(np.zeros(3)), np.zeros(3)
    swapped = np.zeros(6, ">f8")
    things = [lender, plain, swapped, lender.values]
    before = [sys.getrefcount(thing) for thing in things]
    for _ in range(50):
        all_reduce(lender)
        all_reduce(plain)
        with pytest.raises(ValueError):
            all_reduce(swapped)
    assert [sys.getrefcount(thing) for thing in things] == before


def test_a_torch_tensor_shares_its_memory(group, all_reduce, doubled):
    torch = pytest.importorskip("torch")
    for name in "float32", "bfloat16", "bool", "complex64", "float8_e5m2":
        tensor = torch.ones(5).to(getattr(torch, name))
        assert seen_dtype(group, tensor) == name
        distlite.broadcast(tensor, 0, group)
    matrix = torch.arange(12.0).reshape(4, 3).T
    doubled(matrix, matrix.numpy().copy())
    assert matrix[2, 3] == 22
    trained = torch.ones(3, requires_grad=True)
    all_reduce(trained)


def test_what_torch_has_not_computed_yet(group, all_reduce, doubled):
    torch = pytest.importorskip("torch")
    number = torch.tensor([1 + 2j, 3 + 4j])
    for pending in number.conj(), number.conj().reshape(2, 1)[0]:
        with pytest.raises(ValueError, match="resolve_conj"):
            all_reduce(pending)
    for pending in number.conj().imag, number[0].conj().imag:
        with pytest.raises(ValueError, match="resolve_neg"):
            all_reduce(pending)
    for settled in number.imag, number.conj().resolve_conj().imag, number[1].imag:
        doubled(settled, settled.numpy().copy())


@pytest.mark.parametrize("kind", ["meta", "sparse"])
def test_tensors_without_elements_are_refused_in_a_line(all_reduce, kind):
    torch = pytest.importorskip("torch")
    tensor = torch.ones(3).to("meta") if kind == "meta" else torch.eye(3).to_sparse()
    with pytest.raises((BufferError, RuntimeError, ValueError)) as caught:
        all_reduce(tensor)
    text = str(caught.value)
    assert "\n" not in text and text.startswith("`tensor`: "), text
    assert text.endswith("; pass tensor.to_dense()") is (kind == "sparse"), text


def test_types_with_a_table_come_and_go(all_reduce):
    torch = pytest.importorskip("torch")
    for turn in range(12):
        kind = type(f"Kind{turn}", (torch.Tensor,), {})
        tensor = torch.ones(3 + turn).as_subclass(kind)
        all_reduce(tensor)
        all_reduce(np.ones(2))
        all_reduce(bytearray(b"xy"))
        assert tensor.shape == (3 + turn,)
        del kind, tensor
        gc.collect()


@pytest.mark.parametrize("name", ["bfloat16", "float8_e4m3fn", "float8_e5m2", "int4"])
def test_dtypes_of_ml_dtypes(group, name):
    ml_dtypes = pytest.importorskip("ml_dtypes")
    tensor = np.ones(5, getattr(ml_dtypes, name))
    assert seen_dtype(group, tensor) == name
    distlite.broadcast(tensor, 0, group)


PROGRAM = """
import sys, distlite
from array import array
assert "numpy" not in sys.modules
group = distlite.ProcessGroup(distlite.HashStore(), 0, 1)
assert "numpy" not in sys.modules
try:
    distlite.all_reduce([1], group=group)
except TypeError:
    pass
assert "numpy" not in sys.modules
objects = [{"step": 1}]
distlite.broadcast_object_list(objects, group=group, group_src=0)
distlite.all_gather_object(objects, {"step": 2}, group)
distlite.gather_object({"step": 3}, objects, group=group, group_dst=0)
distlite.scatter_object_list(objects, [{"step": 4}], group=group, group_src=0)
assert objects == [{"step": 4}] and "numpy" not in sys.modules
distlite.all_reduce(array("d", [1.0]), group=group)
import numpy
distlite.all_reduce(numpy.ones(3), group=group)
"""


def test_numpy_is_imported_when_needed():
    subprocess.run([sys.executable, "-c", PROGRAM], check=True, timeout=100)
