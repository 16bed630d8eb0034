# SPDX-License-Identifier: BSD-3-Clause
"""What every kind of store does: one list of cases, of values, counters, names, waits,
queues, barriers, and stores as mappings.

tests/unit/test_store_conformance.py runs all of them over each kind of ours;
tests/parity/test_store_interop.py those that torch's stores pass as well, over torch's,
and over our clients of torch's servers and torch's of ours.  A case takes `store`, and
`peer` where another handle on the same data sees what the first one does; `queue_store`
and `queue_peer` are those of kinds that have queues.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from types import ModuleType

import pytest
from store_kinds import KINDS, PATIENCE, Background, Kind, join_all

import distlite
from distlite import DistStoreError, PrefixStore, Store

LIMIT = 8 << 20
# Ours name the key; a store in Python words its own errors.
TEXT_IS_NO_NUMBER = 'lr" is not a 64-bit number|lr.*high|stoll'
KEY_LIMIT = 8191
# How late a timeout may be on a machine that does many other things as well.
LATE = 5.0
SOON = timedelta(milliseconds=50)


def library_of(store: Store) -> ModuleType:
    """Returns distlite or torch.distributed, whose exceptions the store raises."""
    is_theirs = type(store).__mro__[-3].__module__.startswith("torch")
    return sys.modules["torch.distributed"] if is_theirs else distlite


@pytest.mark.parametrize(
    ("given", "held"),
    [
        ("text", b"text"),
        ("", b""),
        ("snowman \N{SNOWMAN}", "snowman \N{SNOWMAN}".encode()),
        (b"\x00\xff\n\x00", b"\x00\xff\n\x00"),
        (bytearray(b"array"), b"array"),
    ],
)
def test_what_is_set_is_got(store: Store, peer: Store, given, held):
    assert store.set("key", given) is None
    assert store.get("key") == held
    assert peer.get("key") == held
    assert type(peer.get("key")) is bytes


@pytest.mark.parametrize("key", ["", "a/b", "-x", "k" * 8000, "\N{SNOWMAN}", "init/"])
def test_any_key_will_do(store: Store, peer: Store, key: str):
    store.set(key, "value")
    assert peer.get(key) == b"value"
    assert peer.get(key.encode()) == b"value"


def test_a_view_is_set(store: Store, peer: Store):
    store.set("key", memoryview(b"a view")[2:])
    assert peer.get("key") == b"view"


def test_a_key_may_have_a_nul(store: Store, peer: Store):
    store.set("a\0b", "value")
    assert peer.get("a\0b") == b"value"
    assert not store.check(["a"])


def test_the_last_value_stays(store: Store, peer: Store):
    for number in range(100):
        (store, peer)[number % 2].set("key", str(number))
        assert store.get("key") == peer.get("key") == b"%d" % number


# Around the sizes of packets, pages and records of TLS, less the headers.
SIZES = [0, 1, 1439, 1440, 1441, 4095, 4096, 16375, 16384, 65536, (1 << 20) + 1, LIMIT]


def test_large_values_arrive_whole(store: Store, peer: Store):
    value = bytes(range(251)) * (LIMIT // 251 + 1)
    for size in SIZES:
        store.set("key", value[:size])
        assert peer.get("key") == value[:size]


def test_too_much_is_refused_by_the_very_call(kind: Kind, store: Store):
    store.set("key", "before")
    large, many = bytes(LIMIT + 1), ["k"] * 131073
    for call in (
        lambda: store.set("key", large),
        lambda: store.append("key", large),
        lambda: store.compare_set("key", "before", large),
        lambda: store.multi_set(["other"], [large]),
    ):
        with pytest.raises(
            ValueError, match=r"value of 8388609 bytes .* limit of 8388608"
        ):
            call()
    longest = "k" * (KEY_LIMIT - kind.key_room)
    store.set(longest, "value")
    assert store.get(longest) == b"value"
    with pytest.raises(ValueError, match=r"key of 8192 bytes .* limit of 8191"):
        store.set(longest + "k", "value")
    for listed in (lambda: store.wait(many, 0), lambda: store.check(many)):
        with pytest.raises(ValueError, match=r"131073 .* limit of 131072"):
            listed()
    assert store.get("key") == b"before"
    assert sorted(store.list_keys()) == ["key", longest]


def test_a_counter_is_decimal_text(store: Store, peer: Store):
    assert store.add("n", 5) == 5
    assert peer.add("n", -12) == -7
    assert store.get("n") == b"-7"
    assert peer.add("n", 0) == -7
    assert peer.add("n", -(2**62)) == -7 - 2**62
    assert store.add("fresh", 0) == 0
    assert store.get("fresh") == b"0"
    store.set("n", "41")
    assert store.get("n") == b"41"
    assert peer.add("n", True) == 42


@pytest.mark.parametrize(
    ("text", "total"), [(" 12", 13), ("12abc", 13), ("0x10", 1), ("1e3", 2), ("+4", 5)]
)
def test_numbers_are_read_leniently(store: Store, peer: Store, text: str, total: int):
    store.set("n", text)
    assert store.get("n") == text.encode()
    assert peer.add("n", 1) == total
    assert store.get("n") == b"%d" % total


def test_a_counter_wraps(store: Store):
    assert store.add("n", 2**63 - 1) == 2**63 - 1
    assert store.add("n", 1) == -(2**63)


def test_adding_to_text_is_an_error_in_that_call(store: Store, peer: Store):
    store.set("lr", "high")
    assert peer.get("lr") == b"high"
    with pytest.raises(ValueError, match=TEXT_IS_NO_NUMBER):
        store.add("lr", 1)
    assert store.get("lr") == b"high"
    assert store.add("n", 1) == peer.add("n", 0) == 1


def test_counts_of_many_threads_add_up(store: Store, peer: Store):
    def count(view: Store) -> int:
        return max(view.add("n", 1) for _ in range(50))

    counts = [store, peer, store, peer]
    best = join_all([Background(lambda view=view: count(view)) for view in counts])
    assert max(best) == 200
    assert store.get("n") == b"200"


# (held before, expected, answer, held afterwards), where None stands for no value, of a
# compare_set that would make it "new".
COMPARISONS = [
    (None, "", "new", "new"),
    (None, "old", "old", None),
    ("", "", "new", "new"),
    ("", "old", "", ""),
    ("old", "old", "new", "new"),
    ("old", "", "old", "old"),
    ("old", "else", "old", "old"),
]


@pytest.mark.parametrize(("before", "expected", "answer", "after"), COMPARISONS)
def test_compare_set(
    store: Store,
    peer: Store,
    before: str | None,
    expected: str,
    answer: str,
    after: str | None,
):
    if before is not None:
        store.set("key", before)
        assert peer.get("key") == before.encode()
    assert peer.compare_set("key", expected, b"new") == answer.encode()
    assert store.check(["key"]) is (after is not None)
    if after is not None:
        assert store.get("key") == after.encode()


def test_delete_key(store: Store, peer: Store):
    store.set("key", "value")
    assert peer.delete_key("key") is True
    assert store.check(["key"]) is False
    store.set("key", "again")
    assert peer.get("key") == b"again"


def test_an_absent_key_is_not_deleted(store: Store, peer: Store):
    assert store.delete_key("key") is False
    store.set("key", "value")
    assert store.delete_key("key") is True
    assert peer.delete_key("key") is False


def test_append(store: Store, peer: Store):
    store.append("key", "one")
    peer.append("key", b"\x00two")
    assert store.get("key") == b"one\x00two"


def test_an_equal_append_is_no_repetition_of_the_call(store: Store, peer: Store):
    for _ in range(3):
        store.append("key", "x")
    peer.append("key", "x")
    assert store.get("key") == b"xxxx"


def test_an_append_of_nothing_makes_a_value(store: Store, peer: Store):
    for value, held in (("", b""), ("x", b"x"), ("", b"x")):
        store.append("key", value)
        assert peer.get("key") == held


def test_multi_set_and_multi_get(store: Store, peer: Store):
    store.multi_set(["a", "b", b"c"], ["1", b"\xff", ""])
    assert peer.multi_get(["c", "a", "b", "a"]) == [b"", b"1", b"\xff", b"1"]
    assert peer.multi_get([]) == []
    store.multi_set([], [])
    keys = [f"k{number}" for number in range(700)]
    peer.multi_set(keys, [key * (number % 30) for number, key in enumerate(keys)])
    assert (
        store.multi_get(keys[::-1])
        == [(key * (number % 30)).encode() for number, key in enumerate(keys)][::-1]
    )


def test_multi_set_of_unequal_lengths_sets_nothing(store: Store):
    text = "multiSet keys and values vectors must be of same size"
    with pytest.raises(library_of(store).DistStoreError, match=text):
        store.multi_set(["a", "b"], ["1"])
    assert not store.check(["a"])


def test_names_are_counted(kind: Kind, store: Store, peer: Store):
    assert store.num_keys() == kind.hidden_keys
    store.set("a", "1")
    peer.add("b/c", 1)
    assert peer.num_keys() == store.num_keys() == 2 + kind.hidden_keys
    store.delete_key("a")
    assert peer.num_keys() == 1 + kind.hidden_keys


def test_names_are_listed_once(store: Store, peer: Store):
    assert store.list_keys() == []
    for value in "12":
        store.set("a", value)
    store.set("f", "1")
    peer.add("b/c", 1)
    peer.append("d", "x")
    peer.compare_set("e", "", "y")
    store.delete_key("a")
    assert sorted(peer.list_keys()) == ["b/c", "d", "e", "f"]


def test_names_that_are_no_text_come_back_as_they_went(store: Store, peer: Store):
    store.set(b"caf\xe9\xff", "value")
    (name,) = peer.list_keys()
    assert name == "caf\udce9\udcff"
    assert store.get(name) == b"value"
    assert store.multi_get([name]) == [b"value"]
    assert store.delete_key(name)
    assert peer.list_keys() == []


def test_check(store: Store, peer: Store):
    assert store.check([]) is True
    assert store.check(["a"]) is False
    store.multi_set(["a", "b"], ["", ""])
    assert peer.check(["a"]) is True
    assert peer.check(("a", "b", "a")) is True
    assert peer.check({"a", "c"}) is False
    assert peer.check(key for key in "ab") is True


def test_has_extended_api(kind: Kind, store: Store):
    assert store.has_extended_api() is kind.has_extended_api


def test_a_clone_is_a_store_on_the_same_data(store: Store):
    clone = store.clone()
    clone.set("key", "value")
    assert store.get("key") == b"value"


def test_a_clone_has_the_timeout(store: Store):
    store.set_timeout(timedelta(seconds=7))
    assert store.clone().timeout == timedelta(seconds=7)


@contextmanager
def lasting(seconds: float) -> Iterator[None]:
    began = time.monotonic()
    yield
    took = time.monotonic() - began
    assert seconds - 0.002 <= took <= seconds + LATE


def starts_waiting(function: Callable[[], object]) -> Background:
    """Another thread that is asleep in `function`."""
    return Background(function).until_asleep()


WRITES: dict[str, Callable[[Store], object]] = {
    "set": lambda store: store.set("key", "value"),
    "add": lambda store: store.add("key", 1),
    "append": lambda store: store.append("key", "value"),
    "multi_set": lambda store: store.multi_set(["other", "key"], ["1", "2"]),
}


@pytest.mark.parametrize("write", WRITES)
def test_every_write_ends_a_wait(store: Store, peer: Store, write: str):
    waiter = starts_waiting(lambda: store.wait(["key"]))
    assert not waiter.is_done()
    WRITES[write](peer)
    waiter.join()


def test_a_compare_set_ends_a_wait(store: Store, peer: Store):
    waiter = starts_waiting(lambda: store.wait(["key"]))
    peer.compare_set("key", "", "value")
    waiter.join()


def test_get_waits(store: Store, peer: Store):
    waiter = starts_waiting(lambda: store.get("key"))
    assert not waiter.is_done()
    peer.set("key", "value")
    assert waiter.join() == b"value"


def test_multi_get_waits_for_all(store: Store, peer: Store):
    waiter = starts_waiting(lambda: store.multi_get(["a", "b"]))
    peer.set("b", "2")
    time.sleep(0.05)  # as long as it would take to go on wrongly
    assert not waiter.is_done()
    peer.set("a", "1")
    assert waiter.join() == [b"1", b"2"]


def test_a_wait_is_for_all_keys(store: Store, peer: Store):
    peer.set("a", "")
    waiter = starts_waiting(lambda: store.wait(["a", "b", "c", "b"]))
    peer.set("c", "")
    time.sleep(0.05)  # as long as it would take to go on wrongly
    assert not waiter.is_done()
    peer.set("b", "")
    waiter.join()


def test_a_failed_compare_set_ends_no_wait(store: Store, peer: Store):
    waiter = starts_waiting(lambda: store.wait(["key"]))
    peer.compare_set("key", "not there", "value")
    time.sleep(0.05)  # as long as it would take to go on wrongly
    assert not waiter.is_done()
    peer.set("key", "")
    waiter.join()


def test_timeouts_are_kept_to_the_millisecond(store: Store):
    for timeout in (0.05, SOON):
        with lasting(0.05), pytest.raises(DistStoreError, match="timeout after 50ms"):
            store.wait(["nope"], timeout)
    store.set_timeout(0.05)
    assert store.timeout == SOON
    for call in (
        lambda: store.get("nope"),
        lambda: store.wait(["nope"], None),
        lambda: store.multi_get(["nope"]),
    ):
        with lasting(0.05), pytest.raises(DistStoreError, match="wait timeout"):
            call()


CALLS_WITH_TIMEOUT: dict[str, Callable[[Store, object], object]] = {
    "get": lambda store, timeout: store.get("key", timeout=timeout),
    "multi_get": lambda store, timeout: store.multi_get(["key"], timeout=timeout)[0],
}


@pytest.mark.parametrize("name", CALLS_WITH_TIMEOUT)
def test_a_call_may_have_a_timeout_of_its_own(store: Store, peer: Store, name: str):
    check_own_timeout(store, CALLS_WITH_TIMEOUT[name], lambda: peer.set("key", "value"))


def test_a_pop_may_have_a_timeout_of_its_own(queue_store: Store, queue_peer: Store):
    check_own_timeout(
        queue_store,
        lambda store, timeout: store.queue_pop("key", timeout=timeout),
        lambda: queue_peer.queue_push("key", "value"),
    )


def check_own_timeout(
    store: Store,
    call: Callable[[Store, object], object],
    write: Callable[[], object],
) -> None:
    for timeout in (0.05, SOON):
        with lasting(0.05), pytest.raises(DistStoreError, match="wait timeout"):
            call(store, timeout)
    with lasting(0), pytest.raises(DistStoreError, match="timeout after 0ms"):
        call(store, 0)
    store.set_timeout(0.02)
    waiter = starts_waiting(lambda: call(store, -1))
    time.sleep(0.05)  # as long as it would take to go on wrongly
    assert not waiter.is_done()
    write()
    assert waiter.join() == b"value"
    with pytest.raises(TypeError, match="timeout must be"):
        call(store, "1")


def test_a_timeout_names_the_keys_that_are_missing(store: Store):
    store.set("there", "")
    keys = ["nope", "there", "none"]
    for call in (
        lambda: store.wait(keys, 0.05),
        lambda: store.multi_get(keys, timeout=0.05),
    ):
        with pytest.raises(DistStoreError, match=r"after 50ms, keys: \S*nope.*") as why:
            call()
        assert "there" not in str(why.value)
    with pytest.raises(DistStoreError, match=r"after 50ms, keys: \S*nope, \S*none$"):
        store.wait(keys, 0.05)
    with pytest.raises(DistStoreError, match=r"after 0ms, keys: \S*nope, \S*none$"):
        store.wait(keys, 0)


def test_zero_looks_once(store: Store, peer: Store):
    with lasting(0), pytest.raises(DistStoreError, match="wait timeout after 0"):
        store.wait(["key"], 0)
    peer.set("key", "value")
    for _ in range(50):
        store.wait(["key"], timedelta(0))
    store.set_timeout(0)
    for _ in range(50):
        assert store.get("key") == b"value"
        assert store.multi_get(["key"]) == [b"value"]
    with lasting(0), pytest.raises(DistStoreError, match="wait timeout"):
        store.get("nope")


def test_negative_waits_for_ever(store: Store, peer: Store):
    waiters = [
        starts_waiting(lambda timeout=timeout: store.wait(["key"], timeout))
        for timeout in (-1, -0.5, timedelta(microseconds=-1))
    ]
    time.sleep(0.05)  # as long as it would take to go on wrongly
    assert not any(waiter.is_done() for waiter in waiters)
    peer.set("key", "")
    join_all(waiters)


def test_the_timeout_belongs_to_the_store(store: Store):
    assert store.timeout == PATIENCE
    store.set_timeout(timedelta(days=2, microseconds=3))
    assert store.timeout == timedelta(days=2, microseconds=3)
    with pytest.raises(AttributeError):
        store.timeout = timedelta(1)


def test_queues_are_first_in_first_out(queue_store: Store, queue_peer: Store):
    queue_store.queue_push("other", "of another queue")
    for item in ["1", b"\x00", ""]:
        queue_store.queue_push("q", item)
    assert queue_peer.queue_len("q") == 3
    assert queue_peer.check(["q"])
    assert [queue_peer.queue_pop("q") for _ in range(3)] == [b"1", b"\x00", b""]
    assert queue_peer.queue_len("q") == queue_peer.queue_len("never") == 0
    assert not queue_peer.check(["q"])
    assert queue_peer.queue_pop("other") == b"of another queue"


def test_an_empty_queue_is_an_error_where_nobody_waits(queue_store: Store):
    library = library_of(queue_store)
    with pytest.raises(library.QueueEmptyError, match="queue is empty"):
        queue_store.queue_pop("q", block=False)
    with pytest.raises(library.DistStoreError):
        queue_store.queue_pop("q", False)
    queue_store.queue_push("q", "item")
    assert queue_store.queue_pop("q", block=False) == b"item"


def test_a_pop_waits_for_its_own_queue(queue_store: Store, queue_peer: Store):
    other = starts_waiting(lambda: queue_store.queue_pop("other"))
    waiter = starts_waiting(lambda: queue_store.queue_pop("q"))
    queue_peer.queue_push("q", "item")
    assert waiter.join() == b"item"
    assert not other.is_done()
    queue_peer.queue_push("other", "2")
    assert other.join() == b"2"


def test_a_blocking_pop_times_out(queue_store: Store):
    queue_store.set_timeout(SOON)
    error = library_of(queue_store).DistStoreError
    with lasting(0.05), pytest.raises(error, match="(?i)wait timeout after 50 ?ms"):
        queue_store.queue_pop("q")


def test_a_queue_is_no_value(queue_store: Store):
    queue_store.queue_push("name", "item")
    assert queue_store.check(["name"])
    queue_store.wait(["name"], 0)
    assert queue_store.list_keys() == []
    assert not queue_store.delete_key("name")
    queue_store.set("name", "value")
    assert queue_store.get("name") == b"value"
    assert queue_store.queue_pop("name") == b"item"
    assert queue_store.check(["name"])
    with pytest.raises(DistStoreError, match="wait timeout after 10ms"):
        queue_store.queue_pop("name", timeout=0.01)


def test_a_store_without_queues_says_so(kind_without_queues: Kind):
    store = kind_without_queues.open()
    for call in (
        lambda: store.queue_push("q", "item"),
        lambda: store.queue_pop("q"),
        lambda: store.queue_len("q"),
    ):
        with pytest.raises(NotImplementedError, match="queue_"):
            call()


def test_a_barrier_is_passed_together(store: Store, peer: Store):
    views = [store, peer, store]
    early = [
        Background(lambda view=view: view.barrier("b", 4, PATIENCE)) for view in views
    ]
    time.sleep(0.05)  # as long as it would take to go on wrongly
    assert not any(waiter.is_done() for waiter in early)
    peer.barrier("b", 4, PATIENCE)
    join_all(early)
    store.barrier("b", 4, timeout=timedelta(0))  # over, so latecomers pass


def test_a_barrier_times_out(store: Store):
    with (
        lasting(0.05),
        pytest.raises(
            # A Python store's wait() raises in its own words.
            library_of(store).DistStoreError,
            match=r"(barrier|wait) timeout after 50ms, keys?: \S*b\b",
        ),
    ):
        store.barrier("b", 2, SOON)
    store.set_timeout(SOON)
    with lasting(0.05), pytest.raises(RuntimeError, match="timeout"):
        store.barrier("c", 2)


def test_subscripts(store: Store, peer: Store):
    store["key"] = "value"
    store[b"raw"] = b"\xff"
    assert peer["key"] == b"value"
    assert peer[b"raw"] == b"\xff"
    del peer["key"]
    assert "key" not in store
    assert b"raw" in store


def test_an_absent_key_is_a_key_error_at_once(store: Store):
    began = time.monotonic()
    with pytest.raises(KeyError, match="nope"):
        store["nope"]
    with pytest.raises(KeyError, match="nope"):
        del store["nope"]
    assert time.monotonic() - began < 5


def test_iteration_is_over_the_names_of_now(store: Store, peer: Store):
    assert list(store) == []
    for name in "abc":
        peer[name] = name
    for name in store:
        del store[name]
    assert list(peer) == []


def test_leaving_the_block_closes(kind: Kind):
    with kind.open() as store:
        store["key"] = "value"
    with pytest.raises(DistStoreError, match="closed"):
        store.get("key")


def test_a_closed_store_refuses_every_call(store: Store):
    store.close()
    store.close()
    for call in (
        lambda: store.set("a", "b"),
        lambda: store.get("a"),
        lambda: store["a"],
        lambda: store.add("a", 1),
        lambda: store.wait(["a"]),
        lambda: store.num_keys(),
        lambda: "a" in store,
        lambda: store.clone().num_keys(),
    ):
        with pytest.raises(DistStoreError, match="closed"):
            call()


@pytest.mark.parametrize(
    "kind", ["hash", "file", "tcp-poll", "tcp-libuv", "tcp-relay"], indirect=True
)
def test_closing_ends_blocked_calls(store: Store):
    waiter = Background(lambda: store.get("nope")).until_asleep()
    store.close()
    with pytest.raises(DistStoreError, match="closed"):
        waiter.join()


WITH_WRITTEN = pytest.mark.parametrize("kind", [*KINDS, "written"], indirect=True)


@WITH_WRITTEN
def test_items_below_a_prefix(store: Store, peer: Store):
    peer.multi_set(["b/2", "b/1", "c", "b"], ["2", b"\xff", "3", ""])
    assert store.items("b/") == [("b/1", b"\xff"), ("b/2", b"2")]
    assert {("b", b""), ("c", b"3")} <= set(store.items())
    assert store.items("d") == []


@WITH_WRITTEN
def test_keys_that_are_deleted_meanwhile_are_left_out(store: Store, kind: Kind):
    class Late(PrefixStore):
        """Lists keys that are gone when they are read."""

        def list_keys(self) -> list[str]:
            return [*super().list_keys(), "gone/0", "gone/1", "zz"]

    late = Late("late", store)
    late.multi_set([f"k{n}" for n in range(9)], [str(n) for n in range(9)])
    began = time.monotonic()
    assert late.items() == [(f"k{n}", b"%d" % n) for n in range(9)]
    assert time.monotonic() - began < 30  # half of the store's timeout
    late.close()
    with pytest.raises(DistStoreError, match="closed"):
        late.items()
