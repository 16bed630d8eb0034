# SPDX-License-Identifier: BSD-3-Clause
import os
import socket
import subprocess
import sys
from datetime import timedelta
from random import Random
from urllib.parse import parse_qsl, urlparse

import pytest

import distlite
from distlite import DistStoreError, rendezvous
from distlite.urls import PlainUrl, query_of, split_url

rendezvous_module = sys.modules["distlite.rendezvous"]
LIMIT = timedelta(seconds=60)
MASTER = {
    "RANK": "0",
    "WORLD_SIZE": "1",
    "MASTER_ADDR": "127.0.0.1",
    "MASTER_PORT": "0",
}


@pytest.fixture(autouse=True)
def environment(monkeypatch):
    """A master's environment, that tests take things from."""
    for name in ("USE_LIBUV", "TORCHELASTIC_USE_AGENT_STORE"):
        monkeypatch.delenv(name, raising=False)
    for name, value in MASTER.items():
        monkeypatch.setenv(name, value)
    return monkeypatch


def first(url, *arguments, **keywords):
    keywords.setdefault("timeout", LIMIT)
    return next(rendezvous(url, *arguments, **keywords))


PLACE = "of the call, or ?rank=0&world_size=4 after the address"
NO_RANK = f"rank parameter missing: rank= {PLACE}"
NO_SIZE = f"world size parameter missing: world_size= {PLACE}"


def error_of(scheme, problem):
    return (
        f"Error initializing torch.distributed using {scheme}:// rendezvous: {problem}"
    )


@pytest.mark.parametrize(
    ("url", "arguments", "kind", "text"),
    [
        (5, (), RuntimeError, "`url` must be a string. <class 'int'>: 5"),
        ("tcp://h:1", ("0",), RuntimeError, "`rank` must be an integer. 0"),
        ("tcp://h:1", (0, "1"), RuntimeError, "`world_size` must be an integer. 1"),
        ("foo://", (), RuntimeError, "No rendezvous handler for foo://"),
        ("", (), RuntimeError, "No rendezvous handler for ://"),
        ("host:80", (0, 1), RuntimeError, "No rendezvous handler for host://"),
        (
            "tcp://",
            (0, 1),
            ValueError,
            error_of("tcp", "port number missing, as in tcp://host:29500"),
        ),
        (
            "tcp://h",
            (0, 1),
            ValueError,
            error_of("tcp", "port number missing, as in tcp://host:29500"),
        ),
        (
            "tcp://h:1",
            (),
            ValueError,
            error_of("tcp", NO_RANK),
        ),
        (
            "tcp://h:1",
            (-1, 1),
            ValueError,
            error_of("tcp", NO_RANK),
        ),
        (
            "tcp://h:1?rank=0",
            (),
            ValueError,
            error_of("tcp", NO_SIZE),
        ),
        ("tcp://:1", (0, 1), AssertionError, "hostname cannot be None"),
        ("tcp://h:99999", (0, 1), ValueError, "Port out of range 0-65535"),
        (
            "tcp://h:abc",
            (0, 1),
            ValueError,
            "Port could not be cast to integer value as 'abc'",
        ),
        (
            "tcp://h:1?rank=0",
            (0, 1),
            AssertionError,
            "The url: tcp://h:1?rank=0 has node-specific arguments(rank, world_size) "
            "already.",
        ),
        ("file://", (0, 1), ValueError, error_of("file", "path missing")),
        (
            "file:///x",
            (),
            ValueError,
            error_of("file", NO_RANK),
        ),
        (
            "file:///x",
            (0,),
            ValueError,
            error_of("file", NO_SIZE),
        ),
        (
            "env://?rank=x",
            (),
            ValueError,
            "Error initializing torch.distributed using env:// rendezvous: "
            "rank parameter must be a number, but is 'x'",
        ),
        (
            "tcp://h:1",
            (5, 2),
            ValueError,
            "rank must be from 0 to 1 (world_size=2), but was 5",
        ),
        (
            "file:///x?rank=-2&world_size=2",
            (),
            ValueError,
            "rank must be from 0 to 1 (world_size=2), but was -2",
        ),
    ],
)
def test_url_errors(url, arguments, kind, text):
    with pytest.raises(kind) as caught:
        first(url, *arguments)
    assert type(caught.value) is kind
    assert str(caught.value).split("; there are ")[0] == text


@pytest.mark.parametrize("value", [None, ""])
def test_env_names_what_is_missing_in_torchs_order(environment, value):
    missing = []
    for name in ("MASTER_PORT", "MASTER_ADDR", "WORLD_SIZE", "RANK"):
        if value is None:
            environment.delenv(name)
        else:
            environment.setenv(name, value)
        with pytest.raises(ValueError) as caught:
            first("env://")
        missing.append(str(caught.value))
        assert str(caught.value).startswith(
            error_of("env", f"environment variable {name} expected, but not set")
        )
        assert "`distlite run -n 4 script.py`" in str(caught.value)
    assert len(set(missing)) == 4


@pytest.mark.parametrize(
    ("port", "text"),
    [
        (
            "abc",
            "Error initializing torch.distributed using env:// rendezvous: "
            "environment variable MASTER_PORT must be a number, but is 'abc'",
        ),
        ("70000", "port must have value from 0 to 65535 but was 70000."),
        ("-5", "port must have value from 0 to 65535 but was -5."),
    ],
)
def test_env_port_errors(environment, port, text):
    environment.setenv("MASTER_PORT", port)
    with pytest.raises(ValueError) as caught:
        first("env://")
    assert str(caught.value) == text


@pytest.mark.parametrize("name", ["RANK", "WORLD_SIZE"])
def test_numbers_of_the_environment_that_are_none_are_named(environment, name):
    environment.setenv(name, "two")
    problem = f"environment variable {name} must be a number, but is 'two'"
    with pytest.raises(ValueError) as caught:
        first("env://")
    assert str(caught.value) == error_of("env", problem)


def test_query_and_arguments_replace_the_environment(environment):
    environment.setenv("RANK", "7")
    environment.setenv("WORLD_SIZE", "x")
    for answer in (first("env://?rank=0&world_size=1"), first("env://", 0, 1)):
        assert answer[1:] == (0, 1)


def test_env_makes_a_store():
    store, rank, world_size = first("env://")
    assert (rank, world_size) == (0, 1)
    assert isinstance(store, distlite.TCPStore)
    store.set("key", "value")
    assert store.get("key") == b"value"


def test_tcp_makes_a_store():
    store, rank, world_size = first("tcp://127.0.0.1:0", 0, 1)
    assert (rank, world_size, store.host) == (0, 1, "127.0.0.1")
    assert store.port > 0
    assert store.timeout == LIMIT


def test_file_makes_a_store(tmp_path):
    store, rank, world_size = first(f"file://{tmp_path}/meeting?rank=1&world_size=2")
    assert (rank, world_size) == (1, 2)
    assert isinstance(store, distlite.FileStore)
    assert store.path == f"{tmp_path}/meeting"


@pytest.mark.parametrize("slashes", ["", "/", "//"])
def test_no_folder_of_a_path_is_taken_for_a_host(tmp_path, slashes):
    store, _, _ = first(f"file://{slashes}{tmp_path}/meeting", 1, 2)
    assert store.path == f"{slashes}{tmp_path}/meeting"


@pytest.mark.parametrize("url", ["env://", "tcp://127.0.0.1:0?rank=0&world_size=1"])
def test_no_second_answer(url):
    answers = rendezvous(url)
    next(answers)
    scheme = url.partition(":")[0]
    with pytest.raises(
        RuntimeError, match=f"Unable to perform re-rendezvous using {scheme}:// method"
    ):
        next(answers)


@pytest.mark.parametrize(
    ("argument", "query", "variable", "libuv"),
    [
        (None, "", None, True),
        (None, "", "0", False),
        (None, "", "1", True),
        (None, "&use_libuv=0", "1", False),
        (None, "&use_libuv=1", "0", True),
        (True, "&use_libuv=0", "0", True),
        (False, "&use_libuv=1", "1", False),
    ],
)
def test_libuv_by_argument_then_query_then_environment(
    environment, argument, query, variable, libuv
):
    if variable is not None:
        environment.setenv("USE_LIBUV", variable)
    for url in ("tcp://127.0.0.1:0", "env://"):
        store = first(f"{url}?rank=0&world_size=1{query}", use_libuv=argument)[0]
        assert store.libuvBackend is libuv


def test_own_handler():
    def handler(url, timeout, extra=None):
        yield distlite.HashStore(), url, (timeout, extra)

    scheme = "own-handler"
    distlite.register_rendezvous_handler(scheme, handler)
    store, url, rest = first(f"{scheme}://somewhere", 1, 2, extra="more")
    assert isinstance(store, distlite.HashStore)
    assert url == f"{scheme}://somewhere?rank=1&world_size=2"
    assert rest == (LIMIT, "more")
    with pytest.raises(
        RuntimeError, match=f"Rendezvous handler for {scheme}:// already registered"
    ):
        distlite.register_rendezvous_handler(scheme, handler)
    with pytest.raises(RuntimeError, match="tcp:// already registered"):
        distlite.register_rendezvous_handler("tcp", handler)


def test_with_the_launchers_store_rank_0_is_a_client(environment):
    server = distlite.TCPStore("127.0.0.1", 0, None, True, LIMIT)
    environment.setenv("MASTER_PORT", str(server.port))
    environment.setenv("TORCHELASTIC_USE_AGENT_STORE", "True")
    stores = []
    for attempt in "0", "1":
        environment.setenv("TORCHELASTIC_RESTART_COUNT", attempt)
        stores.append(first("env://")[0])
    stores[0].set("key", "first attempt")
    assert stores[0].get("key") == b"first attempt"
    assert not stores[1].check(["key"])


def test_a_place_where_no_launcher_listens_is_served_by_rank_0(environment):
    # A rank has started a job of its own, which inherits the launcher's variables.
    listening, port = bound_socket()
    listening.close()
    environment.setenv("MASTER_PORT", str(port))
    environment.setenv("TORCHELASTIC_USE_AGENT_STORE", "True")
    store = first("env://")[0]
    store.set("key", "value")
    other = first(f"tcp://127.0.0.1:{port}", 1, 2, wait_for_workers=False)[0]
    assert other.get("key") == b"value"


def test_a_store_elsewhere_than_the_launchers_is_served_by_rank_0(environment):
    environment.setenv("MASTER_PORT", "1")
    environment.setenv("TORCHELASTIC_USE_AGENT_STORE", "True")
    store, _, _ = first("tcp://127.0.0.1:0", 0, 1)
    store.set("key", "value")
    assert (store.get("key"), store.port > 1) == (b"value", True)


def bound_socket():
    listening = socket.socket()
    listening.bind(("127.0.0.1", 0))
    return listening, listening.getsockname()[1]


@pytest.mark.parametrize(
    ("written", "name"),
    [
        ("run%231/store", "run#1/store"),
        ("a%20b/50%25/%E2%82%AC", "a b/50%/\u20ac"),
        ("a b/50%/\u20ac", "a b/50%/\u20ac"),
        ("%FF", "\udcff"),
        ("a;b=c", "a;b=c"),
        ("what%3F", "what?"),
    ],
)
@pytest.mark.parametrize("host", ["", "localhost"])
def test_a_file_s_url_is_quoted(tmp_path, written, name, host):
    path = tmp_path / name
    path.parent.mkdir(parents=True, exist_ok=True)
    store, _, _ = first(f"file://{host}{tmp_path}/{written}", 0, 1)
    assert store.path == str(path) and path.exists()


PARTS = [
    ("file://{}/run#1/store", "has a fragment, which leads nowhere: write a # in a pa"),
    ("file://{}/what?/store", "has a query with ['/store'], where rank and world_size"),
    ("file://{}/what?ranks=1", "has a query with ['ranks'], where rank and world_size"),
    ("file://tmp{}/store", "names the host 'tmp': a path of this host follows three "),
    ("tcp://127.0.0.1:0#x", "has a fragment, which leads nowhere"),
    ("tcp://127.0.0.1:0/job", "'job' in the URL leads nowhere"),
    ("tcp://me@127.0.0.1:0", "'me@' in the URL leads nowhere"),
    ("env://127.0.0.1", "'127.0.0.1' in the URL leads nowhere"),
    ("env://#x", "has a fragment, which leads nowhere"),
]


@pytest.mark.parametrize(("url", "text"), PARTS)
def test_no_part_of_a_url_is_left_out(tmp_path, url, text):
    with pytest.raises(ValueError) as caught:
        first(url.format(tmp_path), 0, 1)
    assert text in str(caught.value)
    assert not list(tmp_path.iterdir())


def test_the_interface_of_an_address_may_be_quoted(monkeypatch):
    seen = []
    monkeypatch.setattr(
        rendezvous_module, "_tcp_store", lambda *given: seen.append(given[0])
    )
    first("tcp://[fe80::1%25Eth0]:80", 0, 1)
    first("tcp://[fe80::1%Eth0]:80", 0, 1)
    assert seen == [("fe80::1%Eth0", 80)] * 2


def test_a_file_that_is_no_store_s_keeps_its_mode(tmp_path):
    script = tmp_path / "train.py"
    script.write_text("import distlite\n")
    script.chmod(0o755)
    with pytest.raises(DistStoreError, match="damaged"):
        first(f"file://{script}", 0, 1)
    assert script.stat().st_mode & 0o777 == 0o755


PARTS = ["tcp", "T1", "://", ":", "//", "?", "=", "&", "host", "29500", "99999", "%41"]
PARTS += ["#", "@", "[::1]", "rank=1", ";", ".", " ", "\u0663", "\n", "_", "a-b"]


def outcome(url, split, query):
    try:
        found = split(url)
        names = ("scheme", "netloc", "path", "query", "hostname", "port")
        return [getattr(found, name) for name in names], query(found)
    except ValueError as error:
        return str(error)


def query_by_urllib(parts):
    return dict(parse_qsl(parts.query, keep_blank_values=True))


def test_a_plain_url_has_the_parts_that_urllib_finds():
    random = Random(1)
    plain = 0
    for _ in range(20_000):
        start = random.choice(["", "tcp://", "file://", "env://"])
        url = start + "".join(random.choices(PARTS, k=random.randint(1, 6)))
        expected = outcome(url, urlparse, query_by_urllib)
        assert outcome(url, split_url, query_of) == expected, url
        plain += isinstance(expected, tuple) and isinstance(split_url(url), PlainUrl)
    assert plain > 1000


def test_joining_does_not_import_urllib(tmp_path):
    """Its import takes longer than all else."""
    program = """
import distlite, sys
for url in f"file://{sys.argv[1]}/a_store", "tcp://127.0.0.1:0", "env://":
    distlite.init_process_group("gloo", init_method=url, rank=0, world_size=1)
    distlite.destroy_process_group()
print(*{"socket", "string", "urllib.parse", "uuid"} & set(sys.modules))
"""
    place = {**os.environ, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "0"}
    words = [sys.executable, "-c", program, str(tmp_path)]
    done = subprocess.run(words, capture_output=True, text=True, check=True, env=place)
    assert done.stdout == "\n"
