# SPDX-License-Identifier: BSD-3-Clause
"""Objects as bytes that are harmless to load."""

import contextlib
import dataclasses
import datetime
import itertools
import pickle
import struct
import sys

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings, strategies as st
from hypothesis.extra import numpy as arrays

import distlite
from distlite.objects.safe_codec import (
    DEPTH_LIMIT,
    Malformed,
    Unsafe,
    decode,
    encode,
    register_safe_type,
)

BESIDE = (1 << 62, 1)
# However busy the machine is, and however slow a sanitizer makes it.
AT_LEISURE = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow]}


@register_safe_type
@dataclasses.dataclass(frozen=True)
class Point:
    x: object
    y: object = None

    def __post_init__(self):
        Point.made += 1


Point.made = 0


@register_safe_type
@dataclasses.dataclass
class Slotted:
    __slots__ = ("a",)
    a: int


@dataclasses.dataclass
class Unregistered:
    x: int


def there_and_back(value, beside):
    data, buffers = encode(value, beside)
    memory = [np.frombuffer(bytearray(buffer), np.uint8) for buffer in buffers]
    return decode(bytes(data), memory)


dates = st.datetimes(
    timezones=st.none()
    | st.timedeltas(datetime.timedelta(hours=-23), datetime.timedelta(hours=23)).map(
        datetime.timezone
    )
)
leaves = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | st.complex_numbers(allow_nan=False)
    | st.text(st.characters())
    | st.binary()
    | st.timedeltas()
    | dates
    | st.dates()
)
values = st.recursive(
    leaves,
    lambda inner: (
        st.lists(inner)
        | st.lists(inner).map(tuple)
        | st.dictionaries(leaves, inner)
        | st.sets(leaves)
        | st.frozensets(leaves)
        | st.binary().map(bytearray)
        | st.builds(Point, inner, inner)
    ),
    max_leaves=20,
)


@settings(max_examples=60, **AT_LEISURE)
@given(values, st.sampled_from(BESIDE))
def test_plain_values(value, beside):
    again = there_and_back(value, beside)
    assert again == value
    # Equal is not the same type everywhere: 1 and True, 1 and 1.0, list and tuple.
    assert (
        repr(again) == repr(value)
        or isinstance(value, (set, frozenset))
        or "{" in (repr(value))
    )


@settings(max_examples=50, **AT_LEISURE)
@given(
    arrays.arrays(
        arrays.array_dtypes() | arrays.scalar_dtypes(),
        arrays.array_shapes(min_dims=0, min_side=0, max_side=4),
    ),
    st.sampled_from(BESIDE),
    st.sampled_from("CFS"),
)
def test_arrays(array, beside, order):
    if array.dtype.itemsize == 0 or array.dtype.subdtype:
        return
    array = (
        array[..., ::2] if order == "S" and array.ndim else np.array(array, order="F")
    )
    again = there_and_back(array, beside)
    assert (again.dtype, again.shape) == (array.dtype, array.shape)
    assert again.tobytes() == array.tobytes()
    assert again.flags.writeable


def test_the_format():
    """Peers may be of another version."""
    for value, expected in [
        ([None, True, False], b"l\x03NTF"),
        ((1.5, -0.0), b"t\x02f" + struct.pack("<d", 1.5) + b"f" + bytes(7) + b"\x80"),
        ({"a": b"xy"}, b"d\x01s\x01ab\x02xy"),
        ("\xe9\udc80", b"s\x05\xc3\xa9\xed\xb2\x80"),
        ("a" * 300, b"s\xac\x02" + b"a" * 300),
        (0, b"i\x01\x00"),
        (127, b"i\x01\x7f"),
        (-128, b"i\x02\x80\xff"),
        (1 << 63, b"i\x09" + bytes(7) + b"\x80\x00"),
    ]:
        assert encode(value)[0] == expected
        again = decode(expected)
        assert again == value and type(again) is type(value)
    assert decode(b"i\x00") == 0
    assert decode(b"i\x0a\xfe" + b"\xff" * 9) == -2


def test_numbers_of_all_lengths():
    edges = [1 << bits for bits in range(7, 130)]
    values = [
        sign * (edge + by) for edge in edges for sign in (1, -1) for by in (-1, 0)
    ]
    assert there_and_back(values, 1) == values


def class_with(getter):
    """A registered one whose field `x` is computed."""
    kind = register_safe_type(dataclasses.make_dataclass("Computed", ["x"]))
    kind.x = property(getter, lambda self, x: None)
    return kind


def test_a_list_and_a_dict_that_change_meanwhile():
    def empty(self):
        items.clear()
        table.clear()

    kind = class_with(empty)
    numbers = [*range(1000)]
    items = [object.__new__(kind), *numbers]
    table = {-1: object.__new__(kind), **dict.fromkeys(numbers)}
    again = there_and_back([items, table], 1)
    assert again[0][1:] == numbers and again[1] == {}
    table = {-1: object.__new__(kind), **dict.fromkeys(numbers)}
    assert [*there_and_back(table, 1)] == [-1, *numbers]


def test_scalars_and_foreign_dtypes():
    bfloat16 = pytest.importorskip("ml_dtypes").bfloat16
    for value in (
        np.float32(1.5),
        np.datetime64("2020-01-02"),
        np.bool_(True),
        np.array([(1, 2.5)], "i4,f8")[0],
        bfloat16(3),
    ):
        again = there_and_back(value, 1)
        assert type(again) is type(value) and again == value
    assert there_and_back(np.ones(3, bfloat16), 1).dtype == bfloat16


def test_dataclasses_are_filled_without_code():
    before = Point(Slotted(3), [Point(1)])
    made = Point.made
    again = there_and_back(before, 1)
    assert again == before and type(again.x) is Slotted
    assert Point.made == made


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ([1, 2, {"x": Point(0, object())}], "[2]['x'].y is of type builtins.object,"),
        (print, "the object is of type builtins.builtin_function_or_method,"),
        (({(1, len): 2},), "[0][key (1, <built-in function len>)][1] is of type"),
        ({frozenset([len])}, "{...}{...} is of type"),
        ([Unregistered(1)], "test_safe_objects.Unregistered, which"),
        (range(3), "range, which safe mode does not support"),
        ([np.array([{}])], "[0] is an array of object, which holds Python objects"),
        (np.ma.ones(3), "the object is of type numpy.ma.MaskedArray"),
        (type("Int", (int,), {})(3), "Int, which safe mode does not support"),
        (pickle.PickleBuffer(b""), "PickleBuffer, which safe mode does not support"),
        (
            datetime.datetime(2020, 1, 1, tzinfo=type("Z", (datetime.tzinfo,), {})()),
            "has the time zone",
        ),
    ],
)
def test_what_is_not_data_is_named(value, text):
    with pytest.raises(Unsafe) as caught:
        encode(value)
    assert text in str(caught.value)


def test_errors_of_other_kinds_stay_as_they_are():
    def fail(self):
        raise ImportError("no", path="there")

    with pytest.raises(ImportError, match="no") as caught:
        encode([{"x": object.__new__(class_with(fail))}])
    assert caught.value.path == "there"


def test_endless_values():
    value = []
    value.append(value)
    with pytest.raises(Unsafe, match=f"nested more than {DEPTH_LIMIT} deep"):
        encode(value)


def test_only_dataclasses_are_registered():
    for kind in (int, Point(1), "Point"):
        with pytest.raises(TypeError, match="only dataclasses"):
            register_safe_type(kind)


def test_a_type_that_is_not_registered_here():
    data, _ = encode(Point(1))
    with pytest.raises(Malformed, match=r"Qoint is not registered here"):
        decode(bytes(data).replace(b"Point", b"Qoint"))


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\x80\x04N.",  # a pickle
        b"l\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",
        b"l" + b"\xff" * 20,
        b"s\x05abc",
        b"NN",
        b"l\x01" * 100_000,
        b"S\x01l\x00",  # a set of a list
        b"d\x01l\x00N",
        b"o",
        b"m" + b"i\x01\x00" * 9,
        b"h" + b"N" * 3,
        b"D\x03abc",
        b"gN",
        # Arrays: of objects; larger than their bytes; of elements without a size.
        b"aC\x01\x01s\x02|O" + bytes(8),
        b"aC\x02\xff\xff\xff\xff\x7f\xff\xff\xff\xff\x7fs\x03<f8",
        b"aC\x01\xff\xff\xff\xff\x7fs\x02V0",
        b"aC\x00t\x01s\x05finfo" + bytes(8),
    ],
    ids=repr,
)
def test_hostile_bytes(data):
    with pytest.raises(Malformed):
        decode(data)


def test_buffers_that_do_not_fit():
    data, _ = encode([np.arange(4.0)], 1)
    for buffers in ([], [bytearray(31)], [bytearray(32)] * 2):
        with pytest.raises(Malformed):
            decode(data, buffers)


SAMPLE = [
    [1, "ab", {"x": (2.5, None)}, {3}, b"raw"],
    Point(np.arange(6.0).reshape(2, 3), np.float32(1)),
    [datetime.datetime(2020, 1, 1), datetime.timedelta(3), 2j],
]


@settings(max_examples=150, **AT_LEISURE)
@given(st.data())
def test_changed_bytes_never_do_more_than_fail(data):
    encoded, buffers = encode(data.draw(st.sampled_from(SAMPLE)), 1 << 62)
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(encoded)))
        cut = data.draw(st.integers(0, 3))
        encoded[at : at + cut] = data.draw(st.binary(max_size=4))
    with contextlib.suppress(Malformed):
        decode(encoded, buffers)


@settings(max_examples=80, **AT_LEISURE)
@given(st.binary(max_size=60))
def test_any_bytes_never_do_more_than_fail(data):
    with contextlib.suppress(Malformed):
        decode(data)


def test_no_memory_is_no_mistake_of_the_caller(monkeypatch):
    def encode_nothing(value: object, least: int) -> None:
        raise MemoryError

    monkeypatch.setattr("distlite.objects.safe_codec.encode", encode_nothing)
    with (
        distlite.process_group(store=distlite.HashStore(), rank=0, world_size=1),
        pytest.raises(MemoryError, match="rank 0: there is not enough memory to"),
    ):
        distlite.all_gather_object([None], {5}, safe=True)


# Python's hash of an int is its remainder.
HASH = sys.hash_info.modulus


def forged(letter, keys):
    """A dict or set of keys that may be equal in hash, in the order given."""
    data = bytearray(letter + bytes([len(keys) & 127 | 128, len(keys) >> 7]))
    for key in keys:
        data += encode(key, *BESIDE[:1])[0]
        if letter == b"d":
            data += b"N"
    return bytes(data)


def nest(depth, wide):
    """Sets of one hash that differ far inside only."""
    if depth == 0:
        return [HASH * number for number in range(wide)]
    inner = nest(depth - 1, wide)
    return [frozenset([HASH * number, *inner]) for number in range(wide)]


@pytest.mark.parametrize("letter", [b"d", b"S", b"Z"])
@pytest.mark.parametrize(
    "keys",
    [
        [HASH * number for number in range(10_000)],
        [(HASH * number, "x") for number in range(5_000)],
        nest(1, 3),
        [Point(HASH * number) for number in range(3)],
    ],
    ids=lambda keys: type(keys[0]).__name__ if isinstance(keys, list) else "",
)
def test_keys_that_were_made_to_collide_are_refused(letter, keys):
    assert len({hash(key) for key in keys}) < len(keys)
    with pytest.raises(Malformed, match="too many keys have the same hash"):
        decode(forged(letter, keys))


def test_keys_that_collide_by_chance_are_fine():
    ones = list(itertools.product([-1, -2], repeat=5))
    for keys in (
        ones,
        [-1, -2],
        [frozenset([-1]), frozenset([-2])],
        [Point(-1), Point(-2)],
    ):
        value = dict.fromkeys(keys, 1)
        assert there_and_back(value, BESIDE[0]) == value
        assert there_and_back(set(keys), BESIDE[0]) == set(keys)


def test_large_numbers_in_dates_are_refused():
    number = bytes(encode(1 << 600_000, BESIDE[0])[0])
    for letter in (b"w", b"h", b"m"):
        with pytest.raises(Malformed):
            decode(letter + number * 3)


def test_an_array_of_many_dimensions_is_refused():
    count = 100
    with pytest.raises(Malformed, match="too many dimensions"):
        decode(b"aC" + bytes([count]) + (b"\xff" * 9 + b"\x01") * count)
