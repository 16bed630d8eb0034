# SPDX-License-Identifier: BSD-3-Clause
"""Finding the other ranks: from a URL to (store, rank, world_size).

A handler is a generator function per scheme; its first value is the answer, and asking
for a second one (a re-rendezvous) is refused, as in torch, whose texts these are.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from datetime import timedelta
from operator import index
from typing import TYPE_CHECKING, Any

from ._C import FileStore, PrefixStore, Store, TCPStore
from ._environment import flag_of
from .constants import default_pg_timeout
from .urls import PlainUrl, query_of, split_url, unquote_path

if TYPE_CHECKING:
    from urllib.parse import ParseResult

    from .cluster import Member

Answer = tuple[Store, int, int]

__all__ = ["address_of", "register_rendezvous_handler", "rendezvous"]

PROBE_SECONDS = 5.0

_handlers: dict[str, Callable[..., Iterator[Answer]]] = {}


def register_rendezvous_handler(
    scheme: str, handler: Callable[..., Iterator[Answer]]
) -> None:
    """Registers a function that finds the store for URLs of a scheme.

    Args:
        scheme: The scheme, the part of the URL before `://`.
        handler: The function. It is called with the URL and with keywords such as
            `timeout`, and returns an iterator of (store, rank, world_size).

    Raises:
        RuntimeError: The scheme is registered already.

    Example:
        >>> def one_rank(url, timeout=None, **kwargs):
        ...     yield dist.HashStore(), 0, 1
        >>> scheme = f"memory{rank}"
        >>> dist.register_rendezvous_handler(scheme, one_rank)
        >>> next(dist.rendezvous(f"{scheme}://"))[1:]
        (0, 1)
    """
    if scheme in _handlers:
        raise RuntimeError(f"Rendezvous handler for {scheme}:// already registered")
    _handlers[scheme] = handler


def rendezvous(
    url: str, rank: int = -1, world_size: int = -1, **kwargs: Any
) -> Iterator[Answer]:
    """Finds the store, the rank and the world size that a URL leads to.

    `init_process_group` calls it.

    Args:
        url: The URL: `env://`, `tcp://host:port`, `file:///path`, or one with a scheme
            of `register_rendezvous_handler`.
        rank: The rank of this process, unless the URL or the environment has it.
        world_size: The number of processes, likewise.

    Returns:
        An iterator, whose first value is (store, rank, world_size).

    Raises:
        RuntimeError: The scheme is not known, or an argument has the wrong type.
        ValueError: The rank, the world size or a part of the address is missing or
            wrong.

    Example:
        >>> import os, tempfile
        >>> folder = tempfile.TemporaryDirectory()
        >>> url = f"file://{folder.name}/store"
        >>> store, own_rank, size = next(dist.rendezvous(url, rank=0, world_size=1))
        >>> own_rank, size
        (0, 1)
        >>> store.close()
        >>> folder.cleanup()
    """
    if not isinstance(url, str):
        raise RuntimeError(f"`url` must be a string. {type(url)}: {url}")
    rank, world_size = _index(rank, "rank"), _index(world_size, "world_size")
    if rank != -1 or world_size != -1:
        url = _with_arguments(url, rank, world_size)
    scheme = split_url(url).scheme
    if scheme not in _handlers:
        is_address = "://" not in url and ":" in url
        raise RuntimeError(
            f"No rendezvous handler for {scheme}://; there are "
            f"{', '.join(f'{each}://' for each in sorted(_handlers))}"
            + (f", as in tcp://{url.partition('?')[0]}" if is_address else "")
        )
    return _handlers[scheme](url, **kwargs)


def find_place(url: str, rank: int, world_size: int, timeout: timedelta) -> Answer:
    """Carries out a rendezvous for ranks that check in over the store later, and then
    can say more about missing ranks than the store's own wait for its clients."""
    handler = _handlers.get(split_url(url).scheme)
    extra = {"wait_for_workers": False} if handler in _waiting else {}
    return next(rendezvous(url, rank, world_size, timeout=timeout, **extra))


def _index(value: object, name: str) -> int:
    """Returns a plain int of any integer, such as NumPy's."""
    try:
        return index(value)  # type: ignore[arg-type]
    except TypeError:
        raise RuntimeError(f"`{name}` must be an integer. {value}") from None


def _parts_of(url: str, scheme: str) -> PlainUrl | ParseResult:
    """Divides a URL; raises an error if a part of it would lead nowhere."""
    parts = split_url(url)
    if "#" in url:
        raise _error(
            scheme,
            f"{url!r} has a fragment, which leads nowhere: write a # in a path as %23",
        )
    user, at, _ = parts.netloc.rpartition("@")
    path = parts.path if scheme != "file" else ""
    extra = user + at or (parts.netloc if scheme == "env" else "") or path.strip("/")
    if extra:
        raise _error(scheme, f"{extra!r} in the URL leads nowhere: leave it out")
    return parts


def _with_arguments(url: str, rank: int, world_size: int) -> str:
    """Returns the URL with the arguments in its query, where handlers read them."""
    found = query_of(split_url(url))
    if "rank" in found or "world_size" in found:
        raise AssertionError(
            f"The url: {url} has node-specific arguments(rank, world_size) already."
        )
    added = [f"rank={rank}"] if rank != -1 else []
    added += [f"world_size={world_size}"] if world_size != -1 else []
    before, mark, fragment = url.partition("#")
    place, _, query = before.partition("?")
    return f"{place}?{'&'.join([query] * bool(query) + added)}{mark}{fragment}"


def _error(scheme: str, problem: str) -> ValueError:
    return ValueError(
        f"Error initializing torch.distributed using {scheme}:// rendezvous: {problem}"
    )


def _integer(query: dict[str, str], name: str, scheme: str) -> int:
    if name not in query:
        raise _error(
            scheme,
            f"{name.replace('_', ' ')} parameter missing: {name}= of the call, or "
            f"?rank=0&world_size=4 after the address",
        )
    return _number(query[name], scheme, f"{name.replace('_', ' ')} parameter")


def _number(text: str, scheme: str, what: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise _error(scheme, f"{what} must be a number, but is {text!r}") from None


def _check_rank(rank: int, world_size: int) -> None:
    # torch notices it by a timeout; the store refuses a world without ranks.
    if world_size > 0 and not 0 <= rank < world_size:
        raise ValueError(
            f"rank must be from 0 to {world_size - 1} (world_size={world_size}), "
            f"but was {rank}"
        )


# What a process without a launcher can do instead of setting a variable.
_ALONE = (
    "RANK=0 WORLD_SIZE=1 MASTER_ADDR=127.0.0.1 MASTER_PORT=0 run this process as a "
    "world of one rank"
)
_ADDRESS = (
    "pass the address of rank 0 to all ranks, as in "
    "init_method='tcp://127.0.0.1:29500', or set MASTER_ADDR and MASTER_PORT"
)


def _environment(name: str) -> str:
    value = os.environ.get(name, "")
    if not value:
        instead = _ADDRESS if name.startswith("MASTER_") else _ALONE
        raise _error(
            "env",
            f"environment variable {name} expected, but not set: a launcher sets "
            f"it, as in `distlite run -n 4 script.py`; without one, {instead}",
        )
    return value


def _environment_number(name: str) -> int:
    return _number(_environment(name), "env", f"environment variable {name}")


def _wants_libuv(argument: bool | None, query: dict[str, str]) -> bool:
    """Returns whether to use libuv: by the argument, the query, or USE_LIBUV; by
    default True."""
    if argument is not None:
        return argument
    if "use_libuv" in query:
        return query["use_libuv"] == "1"
    return flag_of(
        "the environment variable USE_LIBUV", os.environ.get("USE_LIBUV", "1")
    )


def _path_of(url: str) -> str:
    """Returns the path of a file's URL, in which any byte may be written as %xx."""
    parts = _parts_of(url, "file")
    if parts.netloc not in ("", "localhost"):
        raise _error(
            "file",
            f"{url!r} names the host {parts.netloc!r}: a path of this host follows "
            f"three slashes, as in file:///{parts.netloc}{parts.path}",
        )
    if not parts.path:
        raise _error("file", "path missing")
    if unknown := set(query_of(parts)) - {"rank", "world_size"}:
        raise _error(
            "file",
            f"{url!r} has a query with {sorted(unknown)}, where rank and world_size "
            "may be: write a ? in a path as %3F",
        )
    return unquote_path(parts.path)


def _file_rendezvous(url: str, **kwargs: Any) -> Iterator[Answer]:
    path, query = _path_of(url), query_of(_parts_of(url, "file"))
    rank = _integer(query, "rank", "file")
    world_size = _integer(query, "world_size", "file")
    _check_rank(rank, world_size)
    yield FileStore(path, world_size), rank, world_size
    raise RuntimeError("Unable to perform rerendezvous using file:// method")


def _address_in(parts: PlainUrl | ParseResult) -> tuple[str, int]:
    if parts.port is None:
        raise _error("tcp", "port number missing, as in tcp://host:29500")
    if parts.hostname is None:
        raise AssertionError("hostname cannot be None")
    # %25 is the % before the interface of an IPv6 address.
    return parts.hostname.replace("%25", "%", 1), parts.port


def address_of(text: str) -> tuple[str, int]:
    """Returns the host and the port of "host:port", or of such a URL of tcp."""
    if not isinstance(text, str):
        raise TypeError(f"address must be a text such as 'host:29500', not {text!r}")
    parts = _parts_of("tcp://" + text.removeprefix("tcp://"), "tcp")
    if parts.query:
        raise _error("tcp", f"{parts.query!r} in the address leads nowhere")
    return _address_in(parts)


def _tcp_rendezvous(
    url: str,
    timeout: timedelta = default_pg_timeout,
    use_libuv: bool | None = None,
    wait_for_workers: bool = True,
    **kwargs: Any,
) -> Iterator[Answer]:
    parts = _parts_of(url, "tcp")
    query = query_of(parts)
    address = _address_in(parts)
    rank = _integer(query, "rank", "tcp")
    world_size = _integer(query, "world_size", "tcp")
    libuv = _wants_libuv(use_libuv, query)
    store = _tcp_store(address, rank, world_size, timeout, libuv, wait_for_workers)
    yield store, rank, world_size
    raise RuntimeError("Unable to perform re-rendezvous using tcp:// method")


def _env_rendezvous(
    url: str,
    timeout: timedelta = default_pg_timeout,
    use_libuv: bool | None = None,
    wait_for_workers: bool = True,
    **kwargs: Any,
) -> Iterator[Answer]:
    query = query_of(_parts_of(url, "env"))
    libuv = _wants_libuv(use_libuv, query)
    if "rank" not in query and not os.environ.get("RANK"):
        from .cluster import find_member

        if member := find_member():
            yield _member_store(member, timeout, libuv), member.rank, member.world_size
            raise RuntimeError("Unable to perform re-rendezvous using env:// method")
    rank, world_size = (
        _integer(query, name, "env")
        if name in query
        else _environment_number(name.upper())
        for name in ("rank", "world_size")
    )
    address = (_environment("MASTER_ADDR"), _environment_number("MASTER_PORT"))
    store = _tcp_store(address, rank, world_size, timeout, libuv, wait_for_workers)
    yield store, rank, world_size
    raise RuntimeError("Unable to perform re-rendezvous using env:// method")


def _member_store(member: Member, timeout: timedelta, use_libuv: bool) -> Store:
    """Returns the store of a job started by Slurm or MPI."""
    address, port = os.environ.get("MASTER_ADDR"), os.environ.get("MASTER_PORT")
    address = address or member.address()
    if address is None:
        from .cluster import store_of_host

        return store_of_host(member, timeout, use_libuv)
    number = None if port else member.port()
    place = (address, number or _environment_number("MASTER_PORT"))
    return _tcp_store(place, member.rank, member.world_size, timeout, use_libuv)


def _is_launchers(host: str, port: int) -> bool:
    """Returns whether the environment names this place as the store that a launcher
    serves."""
    name = "TORCHELASTIC_USE_AGENT_STORE"
    if not flag_of(f"the environment variable {name}", os.environ.get(name, "")):
        return False
    place = os.environ.get("MASTER_ADDR"), os.environ.get("MASTER_PORT")
    return place == (host, str(port))


def _is_served(host: str, port: int) -> bool:
    """Returns whether a server listens there, or at the address of its standby. A
    launcher's does before its ranks start; a rank that starts a job of its own, with a
    MASTER_PORT of its own, hands the launcher's other variables on to it, and there
    nobody does."""
    import socket

    if os.environ.get("DISTLITE_STORE_STANDBY", "").endswith(f"@{host}:{port}"):
        return True
    try:
        socket.create_connection((host, port), timeout=PROBE_SECONDS).close()
    except ConnectionRefusedError:
        return False
    except OSError:
        pass  # the store's own attempts will say what is wrong
    return True


def _tcp_store(
    address: tuple[str, int],
    rank: int,
    world_size: int,
    timeout: timedelta,
    use_libuv: bool,
    wait_for_workers: bool = True,
) -> Store:
    _check_rank(rank, world_size)
    host, port = address
    if not 0 <= port <= 65535:
        raise ValueError(f"port must have value from 0 to 65535 but was {port}.")
    is_launchers = _is_launchers(host, port)
    is_master = rank == 0 and not (is_launchers and _is_served(host, port))
    listen_fd = None
    if is_master and _is_for_other_hosts(host, world_size):
        listen_fd = _listen_everywhere(port)
    store = TCPStore(
        host,
        port,
        world_size,
        is_master,
        timeout,
        multi_tenant=True,
        master_listen_fd=listen_fd,
        use_libuv=use_libuv,
        wait_for_workers=wait_for_workers,
    )
    if not is_launchers:
        return store
    # The launcher's server outlives a restart of the ranks, so each attempt gets keys
    # of its own.
    attempt = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
    return PrefixStore(f"/worker/attempt_{attempt}", store)


def _is_for_other_hosts(host: str, world_size: int) -> bool:
    """Returns whether rank 0 calls its own host "localhost" and ranks on other hosts
    may use another name: unless a launcher says that all ranks are on this host."""
    local = os.environ.get("LOCAL_WORLD_SIZE")
    return host == "localhost" and world_size > 1 and local != str(world_size)


def _listen_everywhere(port: int) -> int | None:
    """Returns a socket for all addresses, as torch's; None if the port is taken, maybe
    by this process's own store, which TCPStore finds out."""
    import socket

    with_ipv6 = socket.has_dualstack_ipv6()
    family = socket.AF_INET6 if with_ipv6 else socket.AF_INET
    try:
        return socket.create_server(
            ("", port), family=family, dualstack_ipv6=with_ipv6
        ).detach()
    except OSError:
        return None


# Handlers whose store need not wait for its clients.
_waiting = (_tcp_rendezvous, _env_rendezvous)
register_rendezvous_handler("tcp", _tcp_rendezvous)
register_rendezvous_handler("env", _env_rendezvous)
register_rendezvous_handler("file", _file_rendezvous)
