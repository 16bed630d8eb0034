# SPDX-License-Identifier: BSD-3-Clause
"""The compiled core: the reviewed interface of the extension module.

Every name here is public as distlite.<name>. Timeouts are a timedelta, or seconds as a
number; 0 checks once, negative waits forever, None is the timeout of the store or
group.
"""

from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from datetime import timedelta
from os import PathLike
from typing import Any, Literal, Protocol, TypeAlias, final

from typing_extensions import Self, disjoint_base

from .futures import Future
from .groups.backends import BackendType as _BackendType
from .groups.group_devices import ErrorType
from .groups.group_methods import CoalescedWork
from .groups.nccl import NCCLOptions
from .groups.options import (
    AllgatherOptions,
    AllreduceCoalescedOptions,
    AllreduceOptions,
    AllToAllOptions,
    BarrierOptions,
    BroadcastOptions,
    GatherOptions,
    ReduceOptions,
    ReduceScatterOptions,
    ScatterOptions,
)
from .groups.process_group_gloo import GlooOptions
from .groups.reconfigure import ReconfigureOptions
from .groups.reduce_op import RedOpType, ReduceOp
from .stores.store_lock import StoreLock

# What keys and values may be; str stands for its UTF-8.
_Bytes: TypeAlias = str | bytes | bytearray | memoryview
_Timeout: TypeAlias = timedelta | float | None
_Stats: TypeAlias = dict[str, Any]

class DistError(RuntimeError):
    """The base class of distlite's exceptions, a `RuntimeError`.

    Example:
        >>> try:
        ...     dist.HashStore().wait(["key"], timeout=0.01)
        ... except dist.DistError as error:
        ...     print(type(error).__name__)
        DistStoreError
    """

class DistBackendError(DistError):
    """A collective operation or a message failed.

    A peer failed or did not arrive in time, the ranks called different operations, or
    the backend itself failed. Every collective may raise it, and TypeError for an
    argument that is not an array; the description of each lists further errors.

    Example:
        >>> group = dist.new_group()
        >>> try:
        ...     dist.all_reduce(np.ones(2 + rank), group=group)
        ... except dist.DistBackendError:
        ...     print("the arrays differ in size")
        the arrays differ in size
    """

class DistNetworkError(DistError):
    """A connection could not be made, or was lost.

    Example:
        >>> try:
        ...     dist.TCPStore("127.0.0.1", 1, timeout=0)
        ... except dist.DistNetworkError:
        ...     print("no server")
        no server
    """

class DistStoreError(DistError):
    """A store timed out, was closed, or refused a request.

    Example:
        >>> try:
        ...     dist.HashStore().wait(["model"], 0)
        ... except dist.DistStoreError as error:
        ...     print(error)
        wait timeout after 0ms, keys: model
    """

class QueueEmptyError(DistStoreError):
    """`queue_pop(block=False)` found an empty queue.

    Example:
        >>> try:
        ...     dist.HashStore().queue_pop("jobs", block=False)
        ... except dist.QueueEmptyError:
        ...     print("no job")
        no job
    """

@disjoint_base
class Store:
    """A key-value store that processes share; the base class of all stores.

    Keys and values are str (encoded as UTF-8) or bytes; values are returned as bytes. A
    store is also a mapping: `store[key]` (which raises KeyError at once if the key does
    not exist), `key in store`, `del store[key]`, and iteration over the keys. A with
    statement closes it. Every method raises DistStoreError if the store is closed or
    its server cannot be reached, and NotImplementedError if this store does not support
    it.

    A subclass in Python overrides the methods that it supports, which get keys as str
    and values as bytes. It can be used wherever a store is expected. `append`,
    `multi_get`, `multi_set`, `wait` and `barrier` call the other methods if they are
    not overridden; all others raise NotImplementedError.

    A timeout is a `timedelta` or a number of seconds: 0 checks once, negative waits
    forever, and None is the store's timeout.

    Example:
        >>> store = dist.HashStore()
        >>> store["answer"] = "42"
        >>> store["answer"], "question" in store, list(store)
        (b'42', False, ['answer'])
    """

    def __init__(self) -> None: ...
    def set(self, key: _Bytes, value: _Bytes) -> None:
        """Sets the value of a key, and replaces an earlier value.

        Args:
            key: The key, str or bytes.
            value: The value, str, bytes or another buffer.
        """
    def get(self, key: _Bytes, *, timeout: _Timeout = None) -> bytes:
        """Returns the value of a key, and waits until the key exists.

        Args:
            key: The key, str or bytes.
            timeout: A `timedelta` or seconds; 0 checks once; None is the store's
                timeout.

        Returns:
            The value as bytes.

        Raises:
            DistStoreError: The key did not exist within the timeout, or the store is
                closed.

        Example:
            >>> store = dist.HashStore()
            >>> store.set("key", "value")
            >>> store.get("key")
            b'value'
        """
    def add(self, key: _Bytes, amount: int) -> int:
        """Adds a number to a counter.

        A counter is a value like any other, in decimal digits. It begins at 0, and
        wraps at 64 bits.

        Args:
            key: The key of the counter.
            amount: The number to add, which may be negative.

        Returns:
            The sum.

        Raises:
            ValueError: The value is not a number; it is left unchanged.

        Example:
            >>> store = dist.HashStore()
            >>> store.add("steps", 2), store.add("steps", 3), store.get("steps")
            (2, 5, b'5')
        """
    def compare_set(self, key: _Bytes, expected: _Bytes, desired: _Bytes) -> bytes:
        """Replaces a value if it is what the caller expects.

        If the key does not exist, it is set if `expected` is empty.

        Args:
            key: The key.
            expected: The value to replace.
            desired: The new value.

        Returns:
            The value of the key afterwards; `expected` if the key does not exist.

        Example:
            >>> store = dist.HashStore()
            >>> store.compare_set("leader", "", "rank 1")
            b'rank 1'
            >>> store.compare_set("leader", "", "rank 2")
            b'rank 1'
        """
    def delete_key(self, key: _Bytes) -> bool:
        """Removes a key.

        Args:
            key: The key.

        Returns:
            Whether the key existed.
        """
    def append(self, key: _Bytes, value: _Bytes) -> None:
        """Adds bytes to the end of a value, which is empty if the key does not exist.

        Args:
            key: The key.
            value: The bytes to add.

        Example:
            >>> store = dist.HashStore()
            >>> store.append("log", "first ")
            >>> store.append("log", "second")
            >>> store.get("log")
            b'first second'
        """
    def queue_push(self, key: _Bytes, value: _Bytes) -> None:
        """Adds a value to the end of a queue.

        The names of queues are separate from those of values.

        Args:
            key: The name of the queue.
            value: The value.
        """
    def queue_pop(
        self, key: _Bytes, block: bool = True, *, timeout: _Timeout = None
    ) -> bytes:
        """Removes the first value of a queue, and returns it.

        Args:
            key: The name of the queue.
            block: Whether to wait for a value.
            timeout: The time to wait, a `timedelta` or seconds; None is the store's
                timeout, and negative waits forever.

        Returns:
            The value as bytes.

        Raises:
            QueueEmptyError: The queue is empty, and `block` is False.
            DistStoreError: The timeout has passed, or the store is closed.

        Example:
            >>> store = dist.HashStore()
            >>> store.queue_push("jobs", "first")
            >>> store.queue_pop("jobs", block=False)
            b'first'
        """
    def queue_len(self, key: _Bytes) -> int:
        """Returns the number of values in a queue.

        Args:
            key: The name of the queue.

        Returns:
            The number, 0 if there is no such queue.
        """
    def check(self, keys: Iterable[_Bytes]) -> bool:
        """Returns whether all of the keys exist.

        Args:
            keys: The keys: of values, or of queues that are not empty.

        Returns:
            True if all exist, otherwise False.

        Example:
            >>> store = dist.HashStore()
            >>> store.set("a", "1")
            >>> store.check(["a"]), store.check(["a", "b"])
            (True, False)
        """
    def wait(self, keys: Iterable[_Bytes], timeout: _Timeout = None) -> None:
        """Waits until all of the keys exist.

        Args:
            keys: The keys.
            timeout: A `timedelta` or seconds; 0 checks once; None is the store's
                timeout.

        Raises:
            DistStoreError: A key did not exist within the timeout, or the store is
                closed.

        Example:
            >>> store = dist.HashStore()
            >>> store.set("ready", "")
            >>> store.wait(["ready"], timeout=5.0)
        """
    def num_keys(self) -> int:
        """Returns the number of values in the store.

        Returns:
            The number, including the values that the store itself uses.
        """
    def list_keys(self) -> list[str]:
        """Returns the keys of all values, in no particular order.

        Returns:
            A list of str. Bytes that are not UTF-8 are escaped as surrogates, which
            every method accepts.

        Example:
            >>> store = dist.HashStore()
            >>> store.set("key", "value")
            >>> store.list_keys()
            ['key']
        """
    def stats(self) -> _Stats:
        """Returns what the store holds, and what its server has done and refused.

        A `TCPStore` asks its server, which must be distlite's; a `HashStore` has only
        `keys`, `names`, `bytes` and `waiters`.

        Returns:
            A dict: `keys` (values), `names` (of values, queues and waits), `bytes` of
            the table, `waiters`, connected `clients`, `unix_clients` (those of them
            that use the server's Unix socket), `relays` and `relayed_clients`,
            `requests` served, `input_bytes` of partly received requests, `output_bytes`
            of unread replies, `slowest_turn_us` (the longest turn of the server's
            loop), `uptime_ms`, `identity` (in hexadecimal digits), and dicts of counts:
            `refusals` by limit; `closed`, the connections that the server closed, by
            kind of error; `replies`, what it remembers for calls that are repeated; and
            `journal`, if it has one.

        Raises:
            NotImplementedError: This store has no statistics, or the server is torch's.

        Example:
            >>> store = dist.HashStore()
            >>> store.set("key", "value")
            >>> store.stats()["keys"]
            1
        """
    def multi_get(
        self, keys: Iterable[_Bytes], *, timeout: _Timeout = None
    ) -> list[bytes]:
        """Returns the values of several keys, and waits until all exist.

        Args:
            keys: The keys.
            timeout: The time to wait for all of them, a `timedelta` or seconds; None is
                the store's timeout, 0 checks once, and negative waits forever.

        Returns:
            The values as a list of bytes, in the order of the keys.

        Raises:
            DistStoreError: A key did not exist within the timeout, or the store is
                closed.

        Example:
            >>> store = dist.HashStore()
            >>> store.multi_set(["a", "b"], ["1", "2"])
            >>> store.multi_get(["b", "a"])
            [b'2', b'1']
        """
    def multi_set(self, keys: Iterable[_Bytes], values: Iterable[_Bytes]) -> None:
        """Stores several values.

        Args:
            keys: The keys.
            values: The values, one for each key.

        Raises:
            DistStoreError: There are not as many values as keys (nothing is stored
                then), or the store is closed.
        """
    def barrier(self, key: _Bytes, world_size: int, timeout: _Timeout = None) -> None:
        """Waits until a number of callers have reached the barrier of a key.

        A key can be used once: later callers do not wait.

        Args:
            key: The key of the barrier.
            world_size: The number of callers.
            timeout: The time to wait, a `timedelta` or seconds; None is the store's
                timeout.

        Raises:
            DistStoreError: The others did not call it within the timeout, or the store
                is closed.

        Example:
            >>> store = dist.HashStore()
            >>> store.barrier("start", world_size=1)
        """
    def has_extended_api(self) -> bool:
        """Returns whether `append`, `multi_get` and `multi_set` are one request."""
    def clone(self, *, _timeout: _Timeout = None) -> Store:
        """Returns another store on the same data, with the same timeout.

        Returns:
            For a `TCPStore`, a store with its own connection; for a `HashStore`, the
            store itself.

        Raises:
            DistNetworkError: The server cannot be reached.

        Example:
            >>> store = dist.HashStore()
            >>> store.set("key", "value")
            >>> store.clone().get("key")
            b'value'
        """
    @property
    def timeout(self) -> timedelta:
        """The time that calls wait by default; negative is no limit."""
    def set_timeout(self, timeout: timedelta | float) -> None:
        """Sets the time that calls wait by default.

        Args:
            timeout: A `timedelta` or seconds; 0 checks once, negative waits forever.
        """
    def close(self) -> None:
        """Closes the store, its connections, and the server that it runs.

        Calls that wait, and later ones, raise DistStoreError. A second call does
        nothing.
        """
    def items(self, prefix: str = "") -> list[tuple[str, bytes]]:
        """Returns the keys that begin with a prefix, with their values.

        It takes two round trips, and more only if keys are deleted meanwhile, or for
        more than 131,072 keys. The values are not a snapshot: others may write between
        the two.

        Args:
            prefix: The beginning of the keys; "" selects all.

        Returns:
            Pairs of key and value, sorted by key, without keys that were deleted
            meanwhile.

        Raises:
            NotImplementedError: The store cannot list its keys.

        Example:
            >>> store = dist.HashStore()
            >>> store.multi_set(["host/0", "host/1", "x"], ["alpha", "beta", ""])
            >>> store.items("host/")
            [('host/0', b'alpha'), ('host/1', b'beta')]
        """
    def lock(
        self,
        name: str,
        timeout: _Timeout = None,
        *,
        lease: timedelta | float | None = None,
    ) -> StoreLock:
        """Returns a lock between all users of the store, for a with statement.

        See `distlite.stores.StoreLock`. If the lock has no lease, a holder that dies
        keeps it.

        Args:
            name: The name of the lock.
            timeout: The time to wait for it, a `timedelta` or seconds; None is the
                store's timeout.
            lease: The time after which others may take the lock from a holder that does
                not renew it, a `timedelta` or seconds. A thread of the holder renews it
                while the process lives.

        Returns:
            A `StoreLock`, which is not held yet.

        Example:
            >>> store = dist.HashStore()
            >>> with store.lock("checkpoint", timeout=5.0, lease=10.0) as lock:
            ...     store.set("saved", "1")
            ...     print(lock.is_held)
            True
        """
    def __enter__(self) -> Self:
        """The store itself."""
    def __exit__(
        self, exception_type: object, exception: object, traceback: object
    ) -> None:
        """Closes the store."""
    def __getitem__(self, key: _Bytes, /) -> bytes: ...
    def __setitem__(self, key: _Bytes, value: _Bytes, /) -> None: ...
    def __delitem__(self, key: _Bytes, /) -> None: ...
    def __contains__(self, key: _Bytes, /) -> bool: ...
    def __iter__(self) -> Iterator[str]: ...

class HashStore(Store):
    """A store in the memory of this process, which its threads share.

    Example:
        >>> store = dist.HashStore()
        >>> store.set("key", "value")
        >>> store.get("key")
        b'value'
    """

    def __init__(self) -> None: ...

class FileStore(Store):
    """A store in a file that processes share, on one host or on a network file system.

    The file system needs working locks. An existing file keeps its keys. The store has
    no queues.

    Args:
        file_name: The path of the file, which is created if it does not exist.
        world_size: The number of stores that use the file in all; the last one that is
            closed removes the file. If negative, the file is never removed.

    Raises:
        DistStoreError: The file cannot be opened or created.

    Example:
        >>> import os, tempfile
        >>> folder = tempfile.TemporaryDirectory()
        >>> store = dist.FileStore(os.path.join(folder.name, "store"), world_size=1)
        >>> store.set("key", "value")
        >>> store.get("key")
        b'value'
        >>> store.close()
        >>> folder.cleanup()
    """

    def __init__(
        self,
        file_name: str | bytes | PathLike[str] | PathLike[bytes],
        world_size: int = -1,
    ) -> None: ...
    @property
    def path(self) -> str:
        """The path of the file, as passed."""

class PrefixStore(Store):
    """A view of another store, whose `key` is `prefix/key` in that store.

    It has the timeout of the other store, and `num_keys` counts all keys of that store.

    Args:
        prefix: The prefix, without the slash.
        store: The other store.

    Example:
        >>> store = dist.HashStore()
        >>> view = dist.PrefixStore("training", store)
        >>> view.set("epoch", "3")
        >>> store.get("training/epoch")
        b'3'
    """

    def __init__(self, prefix: _Bytes, store: Store) -> None: ...
    @property
    def underlying_store(self) -> Store:
        """The other store."""
    @property
    def _underlying_non_prefix_store(self) -> Store: ...

class TCPStore(Store):
    """A store on a server, to which every process connects as a client.

    One process, the master, also runs the server, in a thread. Servers and clients work
    with those of torch.

    Args:
        host_name: The host of the server. The master listens there; at "", "0.0.0.0"
            and "::" it listens on all addresses.
        port: The port of the server, 0 to 65535. With 0, the master chooses a free
            port; the attribute `port` has it.
        world_size: The number of clients, including the master, that the master's
            constructor waits for; None: it does not wait.
        is_master: Whether this process runs the server.
        timeout: The limit of the constructor, and then the store's timeout: a
            `timedelta` or seconds; None is 300 seconds.
        wait_for_workers: If False, the constructor does not wait for the other clients.
        multi_tenant: If True, masters with the same port in one process share a server.
        master_listen_fd: A bound socket, as a file descriptor, that the server takes
            over.
        use_libuv: Whether the server uses libuv or, if False, epoll. By default the
            environment variable USE_LIBUV (0 or 1) decides; if it is unset, the server
            uses libuv if the build has it.
        token: The job's secret; server and clients prove to each other that they know
            it. None takes it from the environment variable DISTLITE_TOKEN, or from the
            file that DISTLITE_TOKEN_FILE names; without these, the store serves
            everybody who can connect, including torch's clients.
        journal: The path of a file in which the server keeps the contents of the store.
            A server that is started again with the same file has all of them, even if
            the last server was killed. The file has mode 0600, and serves one server at
            a time. None: no file.
        journal_sync: When the disk must have the changes: with "never", changes survive
            the end of the server but not a crash of its host; "interval" syncs the file
            once a second; "always" syncs it before each reply.
        tls: "psk" encrypts connections by TLS 1.3 with a key derived from the token,
            "cert" with certificates; "off" does not encrypt; None takes the mode from
            the environment variable DISTLITE_TLS. Server and clients need the same
            mode.

    Raises:
        DistNetworkError: The server cannot be started or reached, or one side refuses
            the other's token, TLS mode or certificate.
        DistStoreError: Not all clients connected within the timeout, or there is no
            OpenSSL for a token or TLS.
        NotImplementedError: OpenSSL is too old.
        ValueError: The port is out of range; the token is empty; the journal is used by
            another server, is a symbolic link, or is open to other users; `tls` is
            unknown; or a token or certificate that it needs is missing.

    Example:
        >>> master = dist.TCPStore("localhost", 0, is_master=True, timeout=5.0)
        >>> client = dist.TCPStore("localhost", master.port, timeout=5.0)
        >>> client.set("key", "value")
        >>> master.get("key")
        b'value'
        >>> client.close()
        >>> master.close()
    """

    def __init__(
        self,
        host_name: str,
        port: int,
        world_size: int | None = None,
        is_master: bool = False,
        timeout: _Timeout = None,
        wait_for_workers: bool = True,
        multi_tenant: bool = False,
        master_listen_fd: int | None = None,
        use_libuv: bool = True,
        token: _Bytes | None = None,
        journal: str | PathLike[str] | None = None,
        journal_sync: Literal["never", "interval", "always"] = "interval",
        tls: str | None = None,
    ) -> None: ...
    @property
    def host(self) -> str:
        """The name of the server's host, as passed."""
    @property
    def port(self) -> int:
        """The port of the server; the chosen one if 0 was passed."""
    @property
    def libuvBackend(self) -> bool:
        """Whether `use_libuv` was set."""
    @property
    def _tls(self) -> str: ...
    @property
    def _token(self) -> bytes | None: ...
    @property
    def _server(self) -> bytes | None: ...

class _SupportsDLPack(Protocol):
    def __dlpack__(self, *, max_version: tuple[int, int] | None = None) -> object: ...

class _SupportsArrayInterface(Protocol):
    @property
    def __array_interface__(self) -> dict[str, Any]: ...

# A numpy.ndarray is both.
_Array: TypeAlias = _SupportsDLPack | _SupportsArrayInterface | bytearray | memoryview
_Group: TypeAlias = ProcessGroup | None

# Asked first: the group, the function's name, and what it was given, by name.  Its
# answer is the function's; NotImplemented has the core do it.
_Handler: TypeAlias = Callable[[ProcessGroup, str, dict[str, Any]], Any]

@disjoint_base
class ProcessGroup:
    """Processes that communicate.

    `init_process_group` and `new_group` return groups. The constructor makes a group
    directly: `ProcessGroup(store, rank, size, timeout=None, group_name="0",
    group_desc="undefined", backend="cpu")`. Every rank calls it with the same store,
    and it returns when all ranks have called it. The methods are torch's, such as
    `allreduce`: each begins an operation and returns a `Work`.

    A subclass whose `__init__` calls `super().__init__(rank, size)` implements the
    operations itself: `allreduce(tensors, opts)` and so on, each of which returns a
    `Work`.

    Example:
        >>> group = dist.new_group([0, 1])
        >>> values = np.array([rank + 1.0])
        >>> group.allreduce(values).wait()
        True
        >>> values, group.size(), group.rank() == rank
        (array([3.]), 2, True)
    """

    # (store, rank, size, timeout=None, group_name="0", group_desc="undefined",
    # backend="cpu", parent=None, ranks=None, is_successor=False, is_vacant=False);
    # subclasses that write the operations have arguments of their own, and call
    # __init__ with (rank, size).
    def __new__(cls, *args: Any, **kwargs: Any) -> Self: ...
    def __init__(self, *args: Any, **kwargs: Any) -> None: ...
    def rank(self) -> int:
        """Returns the rank of this process in the group."""
    def size(self) -> int:
        """Returns the number of ranks in the group."""
    def name(self) -> str:
        """Returns the name of the backend that serves the group."""
    @property
    def group_name(self) -> str:
        """The name of the group, the same on all of its ranks."""
    @property
    def group_desc(self) -> str:
        """The description of the group, as passed."""
    @property
    def timeout(self) -> timedelta:
        """The time that an operation may take; negative is no limit."""
    def set_timeout(self, timeout: _Timeout) -> None:
        """Sets the time that an operation may take from now on.

        Args:
            timeout: A `timedelta` or seconds; negative is no limit.

        Example:
            >>> group = dist.new_group([0, 1])
            >>> group.set_timeout(60)
            >>> group.timeout
            datetime.timedelta(seconds=60)
        """
    def get_group_store(self) -> Store:
        """Returns the store that the ranks of the group have used to join it."""
    def abort(self) -> None:
        """Makes running and later operations of the group fail at once.

        It may be called from any thread. The operations raise DistBackendError, also on
        the other ranks.

        Example:
            >>> group = dist.new_group([rank], use_local_synchronization=True)
            >>> group.abort()
            >>> try:
            ...     dist.barrier(group)
            ... except dist.DistBackendError:
            ...     print("aborted")
            aborted
        """
    def _set_group_name(self, group_name: str, /) -> None: ...
    def _set_group_desc(self, group_desc: str, /) -> None: ...
    def _abort(self, reason: str, /) -> None:
        """abort(), with a reason for the errors' text."""
    def _drain(self) -> bool:
        """Waits for the operations of an aborted group, for a second at most; returns
        whether the group is open."""
    def _verify_calls(self, timeout: timedelta, /) -> None:
        """Compares calls that this rank has made ahead of other ranks with theirs."""
    def _error_kind(self) -> int:
        """Returns the number of the ErrorType of the group's first failure."""
    def get_error(self) -> ErrorType: ...
    @property
    def supports_reconfigure(self) -> bool: ...
    def get_reconfigure_handle(self) -> str: ...
    def reconfigure(self, opts: ReconfigureOptions) -> Work: ...
    def _is_proved(self, rank: int, /) -> bool:
        """Returns whether a rank (-1: every rank) has proved to be a process of this
        job."""
    def _has_ended(self, rank: int, /) -> bool:
        """Returns whether the process of a rank has ended, as far as is known."""
    def shutdown(self) -> None:
        """Leaves the group; later operations fail."""
    # Of backends and devices (group_devices.py).
    BackendType: TypeAlias = _BackendType
    UNDEFINED: _BackendType
    GLOO: _BackendType
    NCCL: _BackendType
    UCC: _BackendType
    MPI: _BackendType
    XCCL: _BackendType
    CUSTOM: _BackendType
    supports_shrinking: bool
    supports_splitting: bool
    supports_time_estimate: bool
    @property
    def supports_coalescing(self) -> bool: ...
    @property
    def bound_device_id(self) -> str | None: ...
    @bound_device_id.setter
    def bound_device_id(self, device: Any) -> None: ...
    @property
    def _device_types(self) -> list[str]: ...
    def _get_backend(self, device: Any) -> ProcessGroup: ...
    def _get_backend_name(self) -> str: ...
    def _set_default_backend(self, backend_type: _BackendType) -> None: ...
    def _set_default_timeout(self, timeout: _Timeout) -> None: ...
    def _set_sequence_number_for_group(self) -> None: ...
    @property
    def options(self) -> GlooOptions | NCCLOptions: ...
    def _register_backend(
        self,
        device: Any,
        backend_type: _BackendType,
        backend: ProcessGroup | None = None,
    ) -> None: ...
    def monitored_barrier(
        self, timeout: timedelta | float | None = None, wait_all_ranks: bool = False
    ) -> None: ...
    def split_group(
        self,
        ranks: list[int],
        timeout: timedelta | float | None = None,
        opts: Any = None,
        group_name: str | None = None,
        group_desc: str | None = None,
        device_types: Any = None,
    ) -> ProcessGroup | None: ...
    def merge_remote_group(
        self,
        store: Store,
        size: int,
        timeout: timedelta | float | None = None,
        group_name: str | None = None,
        group_desc: str | None = None,
    ) -> ProcessGroup: ...
    def _get_sequence_number_for_group(self) -> int: ...
    def _set_global_ranks(self, ranks: list[int], /) -> None: ...
    # Operations as torch's methods (group_methods.py), which take an array or a list of
    # one, and return a Work.
    def allreduce(
        self,
        tensors: Any,
        opts: AllreduceOptions | _Op | None = None,
        timeout: _Timeout = None,
    ) -> Work: ...
    def broadcast(
        self,
        tensors: Any,
        opts: BroadcastOptions | int | None = None,
        timeout: _Timeout = None,
    ) -> Work: ...
    def reduce(
        self,
        tensors: Any,
        opts: ReduceOptions | int | None = None,
        op: _Op | None = None,
        timeout: _Timeout = None,
    ) -> Work: ...
    def allgather(
        self,
        output_tensors: Sequence[Any],
        input_tensors: Any,
        opts: AllgatherOptions | _Timeout = None,
    ) -> Work: ...
    def gather(
        self,
        output_tensors: Any,
        input_tensors: Any,
        opts: GatherOptions | int | None = None,
        timeout: _Timeout = None,
    ) -> Work: ...
    def scatter(
        self,
        output_tensors: Any,
        input_tensors: Any,
        opts: ScatterOptions | int | None = None,
        timeout: _Timeout = None,
    ) -> Work: ...
    def reduce_scatter(
        self,
        output_tensors: Any,
        input_tensors: Any,
        opts: ReduceScatterOptions | _Op | None = None,
        timeout: _Timeout = None,
    ) -> Work: ...
    def all_gather_single(
        self, output: _Array, input: _Array, opts: AllgatherOptions | _Timeout = None
    ) -> Work: ...
    _allgather_base = all_gather_single
    def reduce_scatter_single(
        self,
        outputTensor: _Array,
        inputTensor: _Array,
        opts: ReduceScatterOptions | _Op | None = None,
        timeout: _Timeout = None,
    ) -> Work: ...
    _reduce_scatter_base = reduce_scatter_single
    def alltoall(
        self,
        output_tensors: _Arrays,
        input_tensors: _Arrays,
        opts: AllToAllOptions | _Timeout = None,
    ) -> Work: ...
    def all_to_all_single(
        self,
        output: _Array,
        input: _Array,
        output_split_sizes: Sequence[int] | None = None,
        input_split_sizes: Sequence[int] | None = None,
        opts: AllToAllOptions | _Timeout = None,
    ) -> Work: ...
    alltoall_base = all_to_all_single
    def barrier(self, opts: BarrierOptions | _Timeout = None) -> Work: ...
    def send(self, tensors: Any, dstRank: int, tag: int = 0) -> Work: ...
    def recv(self, tensors: Any, srcRank: int, tag: int = 0) -> Work: ...
    def recv_anysource(self, tensors: Any, tag: int = 0) -> Work: ...
    def allreduce_coalesced(
        self, tensors: Sequence[Any], opts: AllreduceCoalescedOptions | None = None
    ) -> CoalescedWork: ...
    def allgather_coalesced(
        self,
        output_lists: Sequence[Sequence[Any]],
        input_list: Sequence[Any],
        opts: AllgatherOptions | None = None,
    ) -> CoalescedWork: ...
    def all_gather_single_coalesced(
        self,
        outputs: Sequence[Any],
        inputs: Sequence[Any],
        opts: AllgatherOptions | None = None,
    ) -> CoalescedWork: ...
    allgather_into_tensor_coalesced = all_gather_single_coalesced
    def reduce_scatter_single_coalesced(
        self,
        outputs: Sequence[Any],
        inputs: Sequence[Any],
        opts: ReduceScatterOptions | None = None,
    ) -> CoalescedWork: ...
    reduce_scatter_tensor_coalesced = reduce_scatter_single_coalesced
    def _set_handler(self, handler: _Handler | None, /) -> _Handler | None: ...
    def _replace(self, made: ProcessGroup, /) -> None:
        """Takes over the ranks, the backend and the store of another group."""
    def _adopt(
        self,
        store: Store,
        rank: int,
        size: int,
        timeout: _Timeout = None,
        group_name: str = "0",
        group_desc: str = "undefined",
        backend: str = "custom",
    ) -> None: ...

@disjoint_base
class Work:
    """An asynchronous operation.

    Calls with `async_op=True`, `isend` and `irecv` return it. It can be awaited under
    asyncio. Backends in Python return subclasses, which override `wait` and, as far as
    they can, `is_completed`, `exception`, `result` and `get_future`.

    Example:
        >>> values = np.array([rank + 1.0])
        >>> work = dist.all_reduce(values, async_op=True)
        >>> work.wait()
        True
        >>> values
        array([3.])
    """

    # Without arguments; subclasses, which backends in Python return, have their own.
    def __new__(cls, *args: Any, **kwargs: Any) -> Self: ...
    def __init__(self, *args: Any, **kwargs: Any) -> None: ...
    def wait(self, timeout: _Timeout = None) -> Literal[True]:
        """Waits until the operation has completed.

        It may be called again, with the same result. A timeout that is shorter than the
        operation's ends the wait only, not the operation. For an array on a CUDA
        device, the current stream waits, and not the host.

        Args:
            timeout: The time to wait, a `timedelta` or seconds; None and 0 are the
                operation's own timeout.

        Returns:
            True.

        Raises:
            DistBackendError: The operation failed, or has not completed within the
                timeout.

        Example:
            >>> work = dist.barrier(async_op=True)
            >>> work.wait(timeout=5.0)
            True
        """
    def is_completed(self) -> bool:
        """Returns whether the operation has completed, with or without an error."""
    def is_success(self) -> bool:
        """Returns whether the operation has completed without an error."""
    def exception(self) -> BaseException | None:
        """Returns the error of an operation that has failed.

        Returns:
            The exception; None if the operation has not failed, or has not completed.
        """
    def result(self) -> list[Any]:
        """Returns the outputs of an operation that has completed.

        Returns:
            A list of the arrays.

        Raises:
            RuntimeError: The operation has not completed.
            DistBackendError: It has failed.

        Example:
            >>> work = dist.all_reduce(np.array([rank + 1.0]), async_op=True)
            >>> work.wait(), work.result()
            (True, [array([3.])])
        """
    def source_rank(self) -> int:
        """Returns the rank of the sender of a message that `irecv` has received.

        Returns:
            The rank in the group.

        Raises:
            RuntimeError: The operation has not completed, or is not a receive.
            DistBackendError: It has failed.

        Example:
            >>> if rank == 0:
            ...     work = dist.irecv(np.zeros(1))
            ...     print(work.wait(), work.source_rank())
            ... else:
            ...     dist.send(np.ones(1), dst=0)
            True 1
        """
    def _source_rank(self) -> int: ...
    def synchronize(self) -> None:
        """Waits as `wait` does, and returns None.

        Raises:
            DistBackendError: The operation failed.
        """
    def get_future(self) -> Future:
        """Returns a future of the operation's outputs.

        Returns:
            A `Future`, whose value is the list of the arrays.

        Example:
            >>> work = dist.all_reduce(np.array([rank + 1.0]), async_op=True)
            >>> work.get_future().then(lambda done: float(done.value()[0][0])).wait()
            3.0
        """
    def __await__(self) -> Generator[Any, None, list[Any]]: ...
    def _get_op_type(self) -> int: ...
    def _call_when_done(self, callback: Callable[[Work], object], /) -> None: ...
    def _take_callbacks(self) -> list[Callable[[Work], object]]: ...
    def _withdraw(self) -> None: ...

_Arrays: TypeAlias = list[Any]
_Op: TypeAlias = RedOpType | ReduceOp
# The number of a cudaStream_t, or an object that has it.
_Stream: TypeAlias = Any
# A Work if `async_op` is True, otherwise None: Any lets callers who know which go on.
_Begun: TypeAlias = Work | Any

def all_reduce(
    tensor: _Array,
    op: _Op = ReduceOp.SUM,
    group: _Group = None,
    async_op: bool = False,
    *,
    stream: _Stream = None,
) -> _Begun:
    """Combines the arrays of all ranks element by element.

    The result replaces `tensor` on every rank, with the same bits on all of them.

    Args:
        tensor: The input and the output: an array of any shape, which is the same on
            every rank, as is its dtype.
        op: The reduction, a `ReduceOp`; `ReduceOp.SUM` by default.
        group: The group; None is the default group.
        async_op: Return a `Work` at once; the arrays are in use until it has completed.
        stream: The CUDA stream of an array on a device; see `cuda_stream`.

    Raises:
        ValueError: `op` cannot reduce the dtype, `tensor` cannot be written to, or
            there is no default group.

    Example:
        >>> gradient = np.array([1.0, 2.0]) * (rank + 1)
        >>> dist.all_reduce(gradient)
        >>> gradient
        array([3., 6.])
        >>> largest = np.array([rank])
        >>> dist.all_reduce(largest, op=dist.ReduceOp.MAX)
        >>> int(largest[0])
        1
    """

def scan(
    tensor: _Array,
    op: _Op = ReduceOp.SUM,
    group: _Group = None,
    async_op: bool = False,
    *,
    stream: _Stream = None,
) -> _Begun:
    """Combines the array of each rank with those of all ranks before it.

    On rank r, the reduction of the arrays of ranks 0 to r replaces `tensor`. CPU
    backends combine the arrays in the order of the ranks, whatever their hosts, so
    floating-point sums have the bits of a loop over the ranks.

    Args:
        tensor: The input and the output: an array of any shape, which is the same on
            every rank, as is its dtype.
        op: The reduction, a `ReduceOp`; `ReduceOp.SUM` by default; all but `AVG`.
        group: The group; None is the default group.
        async_op: Return a `Work` at once; the arrays are in use until it has completed.
        stream: The CUDA stream of an array on a device; see `cuda_stream`.

    Raises:
        ValueError: `op` cannot reduce the dtype or is `AVG`, `tensor` cannot be written
            to, or there is no default group.
        DistBackendError: A peer failed or did not call it within the group's timeout,
            the ranks called different operations, or the arrays are on a device.

    Example:
        >>> values = np.array([rank + 1.0, 10.0])
        >>> dist.scan(values)
        >>> values.tolist() == [[1.0, 10.0], [3.0, 20.0]][rank]
        True
    """

def exscan(
    tensor: _Array,
    op: _Op = ReduceOp.SUM,
    group: _Group = None,
    async_op: bool = False,
    *,
    stream: _Stream = None,
) -> _Begun:
    """Combines the arrays of all ranks before each rank.

    On rank r, the reduction of the arrays of ranks 0 to r - 1 replaces `tensor`. The
    array of rank 0 is left unchanged. Otherwise it is like `scan`.

    Args:
        tensor: The input and the output: an array of any shape, which is the same on
            every rank, as is its dtype.
        op: The reduction, a `ReduceOp`; `ReduceOp.SUM` by default; all but `AVG`.
        group: The group; None is the default group.
        async_op: Return a `Work` at once; the arrays are in use until it has completed.
        stream: The CUDA stream of an array on a device; see `cuda_stream`.

    Raises:
        ValueError: `op` cannot reduce the dtype or is `AVG`, `tensor` cannot be written
            to, or there is no default group.
        DistBackendError: A peer failed or did not call it within the group's timeout,
            the ranks called different operations, or the arrays are on a device.

    Example:
        >>> offset = np.array([5 + rank])  # how many rows this rank has
        >>> dist.exscan(offset)
        >>> first = int(offset[0]) if rank > 0 else 0
        >>> first == [0, 5][rank]
        True
    """

def broadcast(
    tensor: _Array,
    src: int | None = None,
    group: _Group = None,
    async_op: bool = False,
    group_src: int | None = None,
    *,
    stream: _Stream = None,
) -> _Begun:
    """Copies the array of one rank to all others.

    Args:
        tensor: The array to send on the source, and the array to fill on the other
            ranks. Its size and its dtype are the same on every rank.
        src: The global rank of the source.
        group: The group; None is the default group.
        async_op: Return a `Work` at once; the arrays are in use until it has completed.
        group_src: The rank of the source in `group`, instead of `src`.
        stream: The CUDA stream of an array on a device; see `cuda_stream`.

    Raises:
        ValueError: Neither or both of `src` and `group_src` are given, the source is
            not a member of the group, or `tensor` cannot be written to.

    Example:
        >>> weights = np.array([0.5, 0.25]) if rank == 0 else np.zeros(2)
        >>> dist.broadcast(weights, src=0)
        >>> weights
        array([0.5 , 0.25])
    """

def reduce(
    tensor: _Array,
    dst: int | None = None,
    op: _Op = ReduceOp.SUM,
    group: _Group = None,
    async_op: bool = False,
    group_dst: int | None = None,
    *,
    stream: _Stream = None,
) -> _Begun:
    """Combines the arrays of all ranks element by element, on one rank.

    Args:
        tensor: The input; on the destination also the output. On the other ranks it is
            left unchanged. Its size and dtype are the same on every rank.
        dst: The global rank of the destination.
        op: The reduction, a `ReduceOp`; `ReduceOp.SUM` by default.
        group: The group; None is the default group.
        async_op: Return a `Work` at once; the arrays are in use until it has completed.
        group_dst: The rank of the destination in `group`, instead of `dst`.
        stream: The CUDA stream of an array on a device; see `cuda_stream`.

    Raises:
        ValueError: Neither or both of `dst` and `group_dst` are given, the destination
            is not a member of the group, or `op` cannot reduce the dtype.

    Example:
        >>> samples = np.array([10 * (rank + 1)])
        >>> dist.reduce(samples, dst=0)
        >>> if rank == 0:
        ...     print(samples)
        [30]
    """

def all_gather(
    tensor_list: _Arrays,
    tensor: _Array,
    group: _Group = None,
    async_op: bool = False,
    *,
    stream: _Stream = None,
) -> _Begun:
    """Collects the arrays of all ranks in a list, on every rank.

    The arrays may differ in size from rank to rank, if the lists of all ranks have the
    same sizes.

    Args:
        tensor_list: The outputs, one array for each rank of the group, in the order of
            the ranks, of the size and the dtype of that rank's `tensor`.
        tensor: The array that this rank contributes.
        group: The group; None is the default group.
        async_op: Return a `Work` at once; the arrays are in use until it has completed.
        stream: The CUDA stream of an array on a device; see `cuda_stream`.

    Raises:
        TypeError: `tensor_list` is not a list of arrays, or `tensor` is not an array.
        ValueError: The sizes or the dtypes of the arrays do not fit each other, or an
            output cannot be written to.

    Example:
        >>> parts = [np.zeros(2), np.zeros(2)]
        >>> dist.all_gather(parts, np.full(2, float(rank)))
        >>> parts
        [array([0., 0.]), array([1., 1.])]
    """

def all_gather_single(
    output_tensor: _Array,
    input_tensor: _Array,
    group: _Group = None,
    async_op: bool = False,
    *,
    stream: _Stream = None,
) -> _Begun:
    """Collects the arrays of all ranks in one array, on every rank.

    `all_gather_into_tensor` is another name of this function.

    Args:
        output_tensor: The output. For N ranks and inputs of shape (d, ...) its shape is
            (N * d, ...), the concatenation, or (N, d, ...), the stack.
        input_tensor: The array that this rank contributes, of the same shape and dtype
            on every rank. It may be this rank's own block of `output_tensor`.
        group: The group; None is the default group.
        async_op: Return a `Work` at once; the arrays are in use until it has completed.
        stream: The CUDA stream of an array on a device; see `cuda_stream`.

    Raises:
        ValueError: The sizes or the dtypes of the arrays do not fit each other, or
            `output_tensor` cannot be written to.

    Example:
        >>> ranks = np.zeros(2, dtype=np.int64)
        >>> dist.all_gather_single(ranks, np.array([rank]))
        >>> ranks
        array([0, 1])
    """

def gather(
    tensor: _Array,
    gather_list: _Arrays | None = None,
    dst: int | None = None,
    group: _Group = None,
    async_op: bool = False,
    group_dst: int | None = None,
    *,
    stream: _Stream = None,
) -> _Begun:
    """Collects the arrays of all ranks in a list, on one rank.

    Args:
        tensor: The array that this rank contributes, of the same size and dtype on
            every rank; see `gather_v` for sizes that differ.
        gather_list: On the destination the outputs, one array for each rank of the
            group, in the order of the ranks; None or [] on the other ranks.
        dst: The global rank of the destination, 0 by default.
        group: The group; None is the default group.
        async_op: Return a `Work` at once; the arrays are in use until it has completed.
        group_dst: The rank of the destination in `group`, instead of `dst`.
        stream: The CUDA stream of an array on a device; see `cuda_stream`.

    Raises:
        ValueError: `gather_list` is missing on the destination or given elsewhere, or
            its arrays do not fit.

    Example:
        >>> parts = [np.zeros(1), np.zeros(1)] if rank == 0 else None
        >>> dist.gather(np.array([rank + 0.5]), parts, dst=0)
        >>> if rank == 0:
        ...     print(parts)
        [array([0.5]), array([1.5])]
    """

def gather_v(
    tensor: _Array,
    gather_list: _Arrays | None = None,
    dst: int | None = None,
    group: _Group = None,
    async_op: bool = False,
    group_dst: int | None = None,
    *,
    stream: _Stream = None,
) -> _Begun:
    """Collects arrays that differ in size from rank to rank in a list, on one rank.

    Args:
        tensor: The array that this rank contributes, of the same dtype on every rank.
        gather_list: On the destination the outputs, one array for each rank of the
            group, of the size of that rank's `tensor`; None or [] on the other ranks.
        dst: The global rank of the destination, 0 by default.
        group: The group; None is the default group.
        async_op: Return a `Work` at once; the arrays are in use until it has completed.
        group_dst: The rank of the destination in `group`, instead of `dst`.
        stream: The CUDA stream of an array on a device; see `cuda_stream`.

    Raises:
        ValueError: `gather_list` is missing on the destination or given elsewhere, or
            its arrays do not fit.

    Example:
        >>> parts = [np.zeros(1), np.zeros(2)] if rank == 0 else None
        >>> dist.gather_v(np.full(rank + 1, float(rank)), parts, dst=0)
        >>> if rank == 0:
        ...     print(parts)
        [array([0.]), array([1., 1.])]
    """

def scatter(
    tensor: _Array,
    scatter_list: _Arrays | None = None,
    src: int | None = None,
    group: _Group = None,
    async_op: bool = False,
    group_src: int | None = None,
    *,
    stream: _Stream = None,
) -> _Begun:
    """Gives each rank one array of a list of one rank.

    Args:
        tensor: The output, of the same size and dtype on every rank; see `scatter_v`
            for sizes that differ.
        scatter_list: On the source one array for each rank of the group, in the order
            of the ranks; None or [] on the other ranks.
        src: The global rank of the source, 0 by default.
        group: The group; None is the default group.
        async_op: Return a `Work` at once; the arrays are in use until it has completed.
        group_src: The rank of the source in `group`, instead of `src`.
        stream: The CUDA stream of an array on a device; see `cuda_stream`.

    Raises:
        ValueError: `scatter_list` is missing on the source or given elsewhere, or its
            arrays do not fit.

    Example:
        >>> parts = [np.array([10]), np.array([20])] if rank == 0 else None
        >>> mine = np.zeros(1, dtype=np.int64)
        >>> dist.scatter(mine, parts, src=0)
        >>> int(mine[0]) == 10 * (rank + 1)
        True
    """

def scatter_v(
    tensor: _Array,
    scatter_list: _Arrays | None = None,
    src: int | None = None,
    group: _Group = None,
    async_op: bool = False,
    group_src: int | None = None,
    *,
    stream: _Stream = None,
) -> _Begun:
    """Gives each rank one array of a list of one rank; the arrays may differ in size.

    Args:
        tensor: The output, of the size of this rank's array in `scatter_list`.
        scatter_list: On the source one array for each rank of the group, in the order
            of the ranks and of one dtype; None or [] on the other ranks.
        src: The global rank of the source, 0 by default.
        group: The group; None is the default group.
        async_op: Return a `Work` at once; the arrays are in use until it has completed.
        group_src: The rank of the source in `group`, instead of `src`.
        stream: The CUDA stream of an array on a device; see `cuda_stream`.

    Raises:
        ValueError: `scatter_list` is missing on the source or given elsewhere, or its
            arrays do not fit.

    Example:
        >>> parts = [np.ones(1), np.ones(2)] if rank == 0 else None
        >>> mine = np.zeros(rank + 1)
        >>> dist.scatter_v(mine, parts, src=0)
        >>> bool(mine.all())
        True
    """

def reduce_scatter(
    output: _Array,
    input_list: _Arrays,
    op: _Op = ReduceOp.SUM,
    group: _Group = None,
    async_op: bool = False,
    *,
    stream: _Stream = None,
) -> _Begun:
    """Combines lists of arrays element by element, and gives each rank one result.

    Rank i gets the combination of `input_list[i]` of all ranks. The arrays of a list
    may differ in size, on all ranks the same way.

    Args:
        output: The output, of the size and the dtype of this rank's array in
            `input_list`.
        input_list: One array for each rank of the group, in the order of the ranks.
        op: The reduction, a `ReduceOp`; `ReduceOp.SUM` by default.
        group: The group; None is the default group.
        async_op: Return a `Work` at once; the arrays are in use until it has completed.
        stream: The CUDA stream of an array on a device; see `cuda_stream`.

    Raises:
        TypeError: `input_list` is not a list of arrays, `output` is not an array, or
            `op` not a reduction.
        ValueError: The sizes or the dtypes of the arrays do not fit each other, `op`
            cannot reduce the dtype, or `output` cannot be written to.

    Example:
        >>> mine = np.zeros(2)
        >>> dist.reduce_scatter(mine, [np.ones(2), np.full(2, 5.0)])
        >>> bool((mine == (2.0 if rank == 0 else 10.0)).all())
        True
    """

def reduce_scatter_single(
    output: _Array,
    input: _Array,
    op: _Op = ReduceOp.SUM,
    group: _Group = None,
    async_op: bool = False,
    *,
    stream: _Stream = None,
) -> _Begun:
    """Combines arrays element by element, and gives each rank one block of the result.

    Rank i gets block i along the first dimension. `reduce_scatter_tensor` is another
    name of this function.

    Args:
        output: The output, of shape (d, ...). It may be this rank's own block of
            `input`.
        input: The input, of shape (N * d, ...) or (N, d, ...) for N ranks, and of the
            dtype of `output`.
        op: The reduction, a `ReduceOp`; `ReduceOp.SUM` by default.
        group: The group; None is the default group.
        async_op: Return a `Work` at once; the arrays are in use until it has completed.
        stream: The CUDA stream of an array on a device; see `cuda_stream`.

    Raises:
        TypeError: An argument is not an array, or `op` not a reduction.
        ValueError: The sizes or the dtypes of the arrays do not fit each other, `op`
            cannot reduce the dtype, or `output` cannot be written to.

    Example:
        >>> mine = np.zeros(1)
        >>> dist.reduce_scatter_single(mine, np.array([1.0, 10.0]))
        >>> float(mine[0]) == (2.0 if rank == 0 else 20.0)
        True
    """

def all_to_all(
    output_tensor_list: _Arrays,
    input_tensor_list: _Arrays,
    group: _Group = None,
    async_op: bool = False,
    *,
    stream: _Stream = None,
) -> _Begun:
    """Sends one array to each rank, and receives one from each.

    `input_tensor_list[j]` of rank i arrives in `output_tensor_list[i]` of rank j. The
    arrays may differ in size if both sides pass the same size.

    Args:
        output_tensor_list: The outputs, one array for each rank of the group.
        input_tensor_list: The inputs, one array for each rank of the group, all of one
            dtype.
        group: The group; None is the default group.
        async_op: Return a `Work` at once; the arrays are in use until it has completed.
        stream: The CUDA stream of an array on a device; see `cuda_stream`.

    Raises:
        TypeError: An argument is not a list of arrays.
        ValueError: The sizes or the dtypes of the arrays do not fit each other, or an
            output cannot be written to.

    Example:
        >>> outputs = [np.zeros(1, dtype=np.int64) for _ in range(2)]
        >>> dist.all_to_all(outputs, [np.array([10 * rank]), np.array([10 * rank + 1])])
        >>> [int(part[0]) for part in outputs] == [rank, 10 + rank]
        True
    """

def all_to_all_single(
    output: _Array,
    input: _Array,
    output_split_sizes: Sequence[int] | None = None,
    input_split_sizes: Sequence[int] | None = None,
    group: _Group = None,
    async_op: bool = False,
    *,
    stream: _Stream = None,
) -> _Begun:
    """Sends one block of an array to each rank, and receives one from each.

    Arrays are divided along the first dimension, into equal blocks or by the split
    sizes.

    Args:
        output: The output; block i comes from rank i.
        input: The input, of the dtype of `output`; block i goes to rank i.
        output_split_sizes: The lengths of the blocks of `output` along the first
            dimension, one for each rank; None for equal blocks.
        input_split_sizes: The same of `input`.
        group: The group; None is the default group.
        async_op: Return a `Work` at once; the arrays are in use until it has completed.
        stream: The CUDA stream of an array on a device; see `cuda_stream`.

    Raises:
        ValueError: The dtypes differ, the split sizes do not add up to the length of
            the array, or the array cannot be divided into equal blocks.

    Example:
        >>> mine = np.zeros(2, dtype=np.int64)
        >>> dist.all_to_all_single(mine, np.array([10 * rank, 10 * rank + 1]))
        >>> mine.tolist() == [rank, 10 + rank]
        True
    """

def barrier(
    group: _Group = None,
    async_op: bool = False,
    device_ids: object = None,
    timeout: _Timeout = None,
) -> _Begun:
    """Waits until every rank of the group has called it.

    Args:
        group: The group; None is the default group.
        async_op: Return a `Work` at once; the arrays are in use until it has completed.
        device_ids: Ignored; part of torch's signature.
        timeout: The time to wait, a `timedelta` or seconds; None is the group's
            timeout.

    Raises:
        DistBackendError: A rank failed, or did not arrive within the timeout. The
            message names it.

    Example:
        >>> dist.barrier()
        >>> dist.barrier(timeout=5.0)
    """

def monitored_barrier(
    group: _Group = None, timeout: _Timeout = None, wait_all_ranks: bool = False
) -> None:
    """Waits until every rank has called it, and names the ranks that have not.

    The barrier fails on all ranks or on none, and a failure leaves the group usable.

    Args:
        group: The group; None is the default group.
        timeout: The time to wait, a `timedelta` or seconds; None is the group's
            timeout.
        wait_all_ranks: If True, the error names all ranks that are missing, otherwise
            the first one.

    Raises:
        DistBackendError: Some ranks did not arrive within the timeout.

    Example:
        >>> dist.monitored_barrier(timeout=5.0, wait_all_ranks=True)
    """

def _deadlock_configure() -> None:
    """Reads DISTLITE_DEADLOCK and DISTLITE_DEADLOCK_SECONDS."""

def _get_debug_level() -> int: ...
def _set_debug_level(level: int, /) -> None: ...
def _set_debug_level_from(text: str | None, /) -> None:
    """Sets the level: OFF, INFO or DETAIL in any case, None for OFF; ValueError
    otherwise."""

def send(
    tensor: _Array,
    dst: int | None = None,
    group: _Group = None,
    tag: int = 0,
    group_dst: int | None = None,
    *,
    stream: _Stream = None,
) -> None:
    """Sends an array to one rank, and returns when the array may be changed again.

    The call waits for the receiver's `recv` if the array has more than 256 KiB (less if
    more than five ranks share the host), or more than 60 KiB for a rank on another
    host. A smaller array may still be under way when the call returns; if its `recv`
    has another dtype or a smaller array, only that `recv` raises the error.

    Args:
        tensor: The array to send.
        dst: The global rank of the receiver.
        group: The group; None is the default group.
        tag: A number that the matching `recv` has too, 0 or more.
        group_dst: The rank of the receiver in `group`, instead of `dst`.
        stream: The CUDA stream of an array on a device; see `cuda_stream`.

    Raises:
        ValueError: The receiver is this rank itself, or is not a member of the group.
        DistBackendError: The receiver failed, did not call `recv` within the group's
            timeout, or did so with an array of another dtype or one that is too small.

    Example:
        >>> if rank == 0:
        ...     dist.send(np.array([1.0, 2.0]), dst=1)
        ... else:
        ...     values = np.zeros(2)
        ...     source = dist.recv(values, src=0)
        ...     print(source, values)
        0 [1. 2.]
    """

def recv(
    tensor: _Array,
    src: int | None = None,
    group: _Group = None,
    tag: int = 0,
    group_src: int | None = None,
    *,
    stream: _Stream = None,
) -> int:
    """Receives an array from one rank, or from any.

    Args:
        tensor: The array to fill. A shorter message fills its beginning.
        src: The global rank of the sender; without it and `group_src`, any rank.
        group: The group; None is the default group.
        tag: A number that the matching `send` has too.
        group_src: The rank of the sender in `group`, instead of `src`.
        stream: The CUDA stream of an array on a device; see `cuda_stream`.

    Returns:
        The global rank of the sender; -1 on a process that is not a member of the
        group.

    Raises:
        ValueError: The sender is this rank itself or is not a member of the group, or
            `tensor` cannot be written to.
        DistBackendError: The sender failed, did not send within the group's timeout, or
            sent an array of another dtype or one that is too large.

    Example:
        >>> if rank == 1:
        ...     dist.send(np.arange(3), dst=0, tag=7)
        ... else:
        ...     values = np.zeros(3, dtype=np.int64)
        ...     source = dist.recv(values, tag=7)
        ...     print(source, values)
        1 [0 1 2]
    """

def _probe(
    waits: bool, src: int | None, group: _Group, tag: int | None, group_src: int | None
) -> tuple[int, int, str, int] | None: ...
def _exchange(
    outputs: Sequence[_Array | None] | _Array,
    inputs: Sequence[_Array | None] | _Array,
    peers: tuple[int | None, ...],
    group: ProcessGroup,
) -> bool: ...

@disjoint_base
class _P2POp:
    op: Callable[..., Any]
    tensor: Any
    group: ProcessGroup
    tag: int
    peer: int
    group_peer: int
    def __init__(
        self,
        op: Callable[..., Any],
        tensor: Any,
        peer: int | None = None,
        group: ProcessGroup | None = None,
        tag: int = 0,
        group_peer: int | None = None,
    ) -> None: ...

def _batch(operations: Any, /) -> list[Work] | None: ...
def _sendrecv(
    output: _Array,
    input: _Array,
    dst: int | None,
    src: int | None,
    group: _Group,
    tag: int,
    group_dst: int | None,
    group_src: int | None,
) -> int | None: ...
def _check_message(
    tensor: _Array, is_send: bool, group: ProcessGroup, tag: int, group_peer: int
) -> None: ...
def isend(
    tensor: _Array,
    dst: int | None = None,
    group: _Group = None,
    tag: int = 0,
    group_dst: int | None = None,
    *,
    stream: _Stream = None,
) -> Work:
    """Begins to send an array to one rank, without waiting.

    Args:
        tensor: The array to send. It must not be changed until the operation has
            completed.
        dst: The global rank of the receiver.
        group: The group; None is the default group.
        tag: A number that the matching `recv` has too.
        group_dst: The rank of the receiver in `group`, instead of `dst`.
        stream: The CUDA stream of an array on a device; see `cuda_stream`.

    Returns:
        A `Work`; None on a process that is not a member of the group.

    Raises:
        ValueError: The receiver is this rank itself, or is not a member of the group.

    Example:
        >>> other = 1 - rank
        >>> values = np.zeros(1)
        >>> receive = dist.irecv(values, src=other)
        >>> send = dist.isend(np.array([rank + 1.0]), dst=other)
        >>> send.wait() and receive.wait()
        True
        >>> float(values[0]) == other + 1.0
        True
    """

def irecv(
    tensor: _Array,
    src: int | None = None,
    group: _Group = None,
    tag: int = 0,
    group_src: int | None = None,
    *,
    stream: _Stream = None,
) -> Work:
    """Begins to receive an array from one rank, or from any, without waiting.

    Args:
        tensor: The array to fill. It must not be used until the operation has
            completed.
        src: The global rank of the sender; without it and `group_src`, any rank.
        group: The group; None is the default group.
        tag: A number that the matching `send` has too.
        group_src: The rank of the sender in `group`, instead of `src`.
        stream: The CUDA stream of an array on a device; see `cuda_stream`.

    Returns:
        A `Work`, whose `source_rank()` is the rank of the sender in the group; None on
        a process that is not a member of the group.

    Raises:
        ValueError: The sender is this rank itself or is not a member of the group, or
            `tensor` cannot be written to.

    Example:
        >>> values = np.zeros(2)
        >>> if rank == 0:
        ...     work = dist.irecv(values, src=1)
        ...     print(work.wait(), values)
        ... else:
        ...     dist.send(np.array([3.0, 4.0]), dst=0)
        True [3. 4.]
    """

@final
class _SharedMemory:
    def __new__(cls, group: ProcessGroup, size: int) -> Self: ...

@disjoint_base
class _Window:
    def __new__(
        cls, group: ProcessGroup, model: _Array, count: int, timeout: _Timeout
    ) -> Self: ...
    def put(
        self,
        array: _Array,
        rank: int,
        offset: int = 0,
        *,
        timeout: _Timeout = None,
    ) -> None:
        """Writes an array into a rank's memory.

        The array may be changed as soon as the call returns. The class describes when
        other ranks see the elements.

        Args:
            array: The array, of the window's dtype, with any strides.
            rank: The rank whose memory it is.
            offset: The first element.
            timeout: How long to wait for a rank on another host; None is the group's.

        Example:
            >>> with dist.Window(4) as win:
            ...     win.put(np.ones(2), 1 - rank, offset=2)
            ...     win.fence()
            ...     print(win.local)
            [0. 0. 1. 1.]
        """
    def get(
        self,
        array: _Array,
        rank: int,
        offset: int = 0,
        *,
        timeout: _Timeout = None,
    ) -> None:
        """Reads a rank's memory into an array.

        Args:
            array: The array to fill, of the window's dtype, with any strides.
            rank: The rank whose memory it is.
            offset: The first element.
            timeout: How long to wait for a rank on another host; None is the group's.

        Example:
            >>> with dist.Window(np.arange(4)) as win:
            ...     last = np.empty(1, int)
            ...     win.get(last, 1 - rank, offset=3)
            ...     print(last)
            [3]
        """
    def accumulate(
        self,
        array: _Array,
        rank: int,
        op: _Op | Literal["replace", "no_op"] = ReduceOp.SUM,
        offset: int = 0,
        *,
        timeout: _Timeout = None,
    ) -> None:
        """Combines elements of a rank's memory with an array.

        Each element is read and written in one atomic step. The updates of several
        ranks take effect in any order, so the last bits of sums of floats may vary.

        Args:
            array: The array, of the window's dtype, with any strides.
            rank: The rank whose memory it is.
            op: A reduction but AVG, or "replace".
            offset: The first element.
            timeout: How long to wait for other updates; None is the group's.

        Raises:
            ValueError: The elements are not all in the memory of the rank, or the dtype
                differs or has no such reduction.
            DistBackendError: The rank has ended, has closed the window, or another rank
                was killed while it was updating this memory.

        Example:
            >>> with dist.Window(2) as win:
            ...     win.accumulate(np.array([1.0, 2.0]), 1 - rank)
            ...     win.fence()
            ...     print(win.local)
            [1. 2.]
        """
    def unlock(self, rank: int, *, timeout: _Timeout = None) -> None:
        """Releases the lock of a rank's memory.

        This rank's accesses to the memory take effect before that.

        Args:
            rank: The rank whose memory it is.
            timeout: How long to wait for a rank on another host; None is the group's.

        Raises:
            ValueError: This rank does not hold the lock.
        """
    def flush(self, rank: int | None = None, *, timeout: _Timeout = None) -> None:
        """Waits until this rank's accesses have taken effect.

        On one host they have taken effect when they return.

        Args:
            rank: The rank whose memory was accessed; None means all ranks.
            timeout: How long to wait; None is the group's.

        Example:
            >>> with dist.Window(2) as win:
            ...     win.put(np.ones(2), 1)
            ...     win.flush(1)
        """
    def fence(self, timeout: _Timeout = None) -> None:
        """Waits until all ranks of the group call it.

        Afterwards each rank sees all accesses that any rank made before. It is a
        barrier of the group, and ordered with the group's operations.

        Args:
            timeout: How long to wait for the others; None is the group's.

        Example:
            >>> with dist.Window(1, dtype=int) as win:
            ...     win.put(np.array([7]), 1 - rank)
            ...     win.fence()
            ...     print(win.local)
            [7]
        """
    def close(self, timeout: _Timeout = None) -> None:
        """Closes the window on all ranks, after a fence.

        A second call does nothing. If the group has ended, the window is closed on this
        rank only. The memory is freed when neither the window nor an array in it exists
        any more.

        Args:
            timeout: How long to wait for the others; None is the group's.

        Raises:
            DistBackendError: A rank has ended, or the timeout has passed; the window
                is closed all the same.
        """
    def _fetch(
        self,
        array: _Array | None,
        result: _Array,
        rank: int,
        op: _Op | Literal["replace", "no_op"],
        offset: int,
        timeout: _Timeout,
    ) -> None: ...
    def _swap(
        self,
        value: _Array,
        compare: _Array,
        result: _Array,
        rank: int,
        offset: int,
        timeout: _Timeout,
    ) -> None: ...
    def _lock(self, rank: int, shared: bool, timeout: _Timeout) -> None: ...
    def _end(self) -> None: ...
    def _counts(self) -> tuple[int, ...]: ...

@final
class _SpareMemory:
    def __new__(cls, size: int) -> Self: ...

@final
class _Pack: ...

@final
class _Reducer: ...

def _pack(arrays: Sequence[Any], /) -> _Pack:
    """Returns the arrays, of one dtype, as one argument of an operation."""

def _pack_arrays(pack: _Pack, /) -> tuple[Any, ...]: ...
def _pack_blocks(arrays: Sequence[Any], parts: int) -> list[_Pack]:
    """Returns a list of `parts` packs; pack i has block i of each array, cut along its
    first dimension."""

def _plan_packs(arrays: Sequence[Any], limit: int, group: object) -> list[list[int]]:
    """Returns lists of indices, one list per operation: arrays of one dtype, each below
    `limit` bytes, go together, and each other array alone."""

def _find_shared(
    arrays: Sequence[Any], others: Sequence[Any] | None = None
) -> list[int]:
    """Returns the indices of arrays whose memory range overlaps that of another one, or
    of one of `others`. An index may occur more than once."""

def _add_group_methods(methods: dict[str, Callable[..., Any]], /) -> None: ...
def _clear_spare_memory() -> None: ...
def broadcast_object_list(
    object_list: list[Any],
    src: int | None = None,
    group: _Group = None,
    device: Any = None,
    group_src: int | None = None,
    *,
    safe: bool | None = None,
) -> None:
    """Copies a list of objects of one rank into the lists of all others.

    Objects are pickled, and loading a pickle can run any code; see safe mode.

    Args:
        object_list: On the source the objects; on the other ranks a list of the same
            length, whose elements are replaced.
        src: The global rank of the source, 0 by default.
        group: The group; None is the default group.
        device: Ignored; part of torch's signature.
        group_src: The rank of the source in `group`, instead of `src`.
        safe: Whether to send data only; None: what `set_safe_objects` has set.

    Raises:
        TypeError: As in every collective of objects, an object of this rank is not
            data, in safe mode; otherwise what pickling raises. The ranks that it was
            for raise DistBackendError.
        DistBackendError: A rank failed or did not call it in time; the lists have
            different lengths; or an object could not be sent or loaded. A source that
            does not wait for the other ranks raises it in its next call in the group.
            An object that cannot be loaded is an error on that rank only.
        ValueError: The source is not a member of the group.

    Example:
        >>> settings = [{"rate": 0.1}, "adam"] if rank == 0 else [None, None]
        >>> dist.broadcast_object_list(settings, src=0)
        >>> settings
        [{'rate': 0.1}, 'adam']
    """

def all_gather_object(
    object_list: list[Any],
    obj: Any,
    group: _Group = None,
    *,
    safe: bool | None = None,
) -> None:
    """Collects an object of each rank in a list, on every rank.

    Objects are pickled, and loading a pickle can run any code; see safe mode.

    Args:
        object_list: The output, a list with a place for each rank of the group, or
            more. It gets a copy of this rank's own object.
        obj: The object that this rank contributes.
        group: The group; None is the default group.
        safe: Whether to send data only; None: what `set_safe_objects` has set.

    Raises:
        IndexError: The list is too short for the ranks of the group.

    Example:
        >>> names = [None, None]
        >>> dist.all_gather_object(names, f"worker {rank}")
        >>> names
        ['worker 0', 'worker 1']
    """

def gather_object(
    obj: Any,
    object_gather_list: list[Any] | None = None,
    dst: int | None = None,
    group: _Group = None,
    group_dst: int | None = None,
    *,
    safe: bool | None = None,
) -> None:
    """Collects an object of each rank in a list, on one rank.

    Objects are pickled, and loading a pickle can run any code; see safe mode.

    Args:
        obj: The object that this rank contributes.
        object_gather_list: On the destination the output, a list with a place for each
            rank of the group; None on the other ranks.
        dst: The global rank of the destination, 0 by default.
        group: The group; None is the default group.
        group_dst: The rank of the destination in `group`, instead of `dst`.
        safe: Whether to send data only; None: what `set_safe_objects` has set.

    Raises:
        ValueError: The list is missing on the destination or given elsewhere, where the
            destination raises DistBackendError; or the destination is not a member of
            the group.
        IndexError: The list is too short for the ranks of the group.

    Example:
        >>> found = [None, None] if rank == 0 else None
        >>> dist.gather_object({"rank": rank}, found, dst=0)
        >>> if rank == 0:
        ...     print(found)
        [{'rank': 0}, {'rank': 1}]
    """

def scatter_object_list(
    scatter_object_output_list: list[Any],
    scatter_object_input_list: Sequence[Any] | None = None,
    src: int | None = None,
    group: _Group = None,
    group_src: int | None = None,
    *,
    safe: bool | None = None,
) -> None:
    """Gives each rank one object of a list of one rank.

    Objects are pickled, and loading a pickle can run any code; see safe mode.

    Args:
        scatter_object_output_list: The output, a list of at least one element: its
            first is replaced.
        scatter_object_input_list: On the source the objects, one for each rank of the
            group; ignored on the other ranks.
        src: The global rank of the source, 0 by default.
        group: The group; None is the default group.
        group_src: The rank of the source in `group`, instead of `src`.
        safe: Whether to send data only; None: what `set_safe_objects` has set.

    Raises:
        ValueError: The input list is missing on the source or has another length, where
            the other ranks raise DistBackendError; the output list is empty; or the
            source is not a member of the group.

    Example:
        >>> own = [None]
        >>> dist.scatter_object_list(own, ["even", "odd"] if rank == 0 else None, src=0)
        >>> own == [["even", "odd"][rank]]
        True
    """

def send_object_list(
    object_list: list[Any],
    dst: int | None = None,
    group: _Group = None,
    device: Any = None,
    group_dst: int | None = None,
    use_batch: bool = False,
    *,
    safe: bool | None = None,
) -> None:
    """Sends a list of objects to one rank.

    As with `send`, the call waits for the receiver's `recv_object_list` only if the
    objects are large.

    Objects are pickled, and loading a pickle can run any code; see safe mode.

    Args:
        object_list: The objects. The receiver calls `recv_object_list` with a list of
            the same length.
        dst: The global rank of the receiver.
        group: The group; None is the default group.
        device: Ignored; part of torch's signature.
        group_dst: The rank of the receiver in `group`, instead of `dst`.
        use_batch: Ignored; part of torch's signature.
        safe: Whether to send data only; None: what `set_safe_objects` has set.

    Raises:
        TypeError: An object of this rank is not data, in safe mode; otherwise what
            pickling raises. The receiver raises DistBackendError.
        ValueError: The receiver is this rank itself, or is not a member of the group.
        DistBackendError: The receiver has ended, or did not call `recv_object_list` in
            time.

    Example:
        >>> if rank == 0:
        ...     dist.send_object_list(["step", 3], dst=1)
        ... else:
        ...     received = [None, None]
        ...     source = dist.recv_object_list(received, src=0)
        ...     print(source, received)
        0 ['step', 3]
    """

def recv_object_list(
    object_list: list[Any],
    src: int | None = None,
    group: _Group = None,
    device: Any = None,
    group_src: int | None = None,
    use_batch: bool = False,
    *,
    safe: bool | None = None,
) -> int:
    """Receives a list of objects from one rank.

    Objects are pickled, and loading a pickle can run any code; see safe mode.

    Args:
        object_list: The output, a list of the length of the sender's, whose elements
            are replaced.
        src: The global rank of the sender; this or `group_src` is required.
        group: The group; None is the default group.
        device: Ignored; part of torch's signature.
        group_src: The rank of the sender in `group`, instead of `src`.
        use_batch: Ignored; part of torch's signature.
        safe: Whether to send data only; None: what `set_safe_objects` has set.

    Returns:
        The global rank of the sender; -1 on a process that is not a member of the
        group.

    Raises:
        TypeError: `object_list` is not a list. Nothing has been received.
        ValueError: The sender is this rank itself, or is not a member of the group.
        DistBackendError: The sender failed or did not send in time; its list has
            another length or another `safe`; or the objects cannot be loaded. The
            sender does not learn of this.

    Example:
        >>> if rank == 0:
        ...     dist.send_object_list(["step", 3], dst=1)
        ... else:
        ...     received = [None, None]
        ...     source = dist.recv_object_list(received, src=0)
        ...     print(source, received)
        0 ['step', 3]
    """

@disjoint_base
class _ObjectCall:
    """A call on objects; objects/object_call.py has the rest of its methods."""

    group: ProcessGroup
    name: str
    refusal: Any
    op: int
    rank: int
    root: int
    size: int
    kind: int
    in_python: bool

    def exchange(self, value: object, count: int, message: Any, /) -> Any:
        """Packs `value`, unless there is a message, moves blocks, and loads. Returns a
        list of the objects for this rank if all ranks agree and all streams have room
        in the blocks; otherwise, in a tuple, what it has sent, and the blocks: of all
        ranks, or the root's, or in a gather this rank's own."""

    def keep(self, group: Any, rank: Any, group_rank: Any, safe: Any) -> None:
        """Lets the group keep the description for calls with these arguments."""

def _kept_call(op: int, group: Any, rank: Any, group_rank: Any, safe: Any) -> Any:
    """Returns the description that the group keeps, or None."""

def _forget_calls(group: ProcessGroup, /) -> None:
    """Drops the descriptions that the group keeps."""

_OBJECT_ROOM: int
_OBJECT_PART_LEAST: int
_OBJECT_TAG: int
_GATHER_TAG: int
_SIGNAL_TAG: int
_SAFE_DEPTH_LIMIT: int

def _put_plain(
    out: bytearray,
    value: object,
    beside: int,
    depth: int,
    other: Callable[[Any, int], object],
) -> None:
    """Appends a value to a bytearray; other(value, depth) appends values of other
    kinds, values nested too deeply, and bytes of length `beside` or more."""

def _take_plain(
    data: bytes | bytearray | memoryview,
    at: int,
    depth: int,
    other: Callable[[int, int], tuple[Any, int]],
    accept: Callable[[list[Any]], None],
) -> tuple[Any, int]:
    """Returns the value that begins at `at`, and the offset of its end. other(at,
    depth) decodes values of other kinds, and accept(keys) raises if keys with one hash
    are not allowed. ValueError if the bytes are malformed."""

def _check_keys(keys: list[Any], accept: Callable[[list[Any]], None]) -> None:
    """Passes each run of keys that have one hash to `accept`."""

def _set_default_group(group: ProcessGroup | None, /) -> None:
    """Sets the group of calls that are given none; None removes it."""

def _set_thread_group(group: ProcessGroup | None, /) -> None:
    """The same for the calling thread alone, until it ends; the group is borrowed."""

def _recording() -> bytes | None:
    """Returns a snapshot of this process's recording; None if nothing is recorded."""

def _read_recording(path: str, /) -> bytes:
    """Returns a snapshot of another process's recording, or of a dump."""

def _recording_folders() -> list[str]:
    """Returns the folders in which recordings of this user may be."""

def _relay_start(
    host: str,
    port: int,
    name: str | None,
    token: str | bytes | None,
    tls: str | None,
) -> object: ...
def _relay_name(relay: object, /) -> str: ...
def _relay_is_connected(relay: object, /) -> bool: ...
def _recording_identify(job: str, rank: int, size: int) -> None: ...
def _recording_make() -> None: ...
def _recording_names() -> tuple[
    list[tuple[str, bool]], list[tuple[str, int]], list[str], list[str]
]:
    """Returns what the numbers in recordings mean: the operations, and whether each
    reduces; the dtypes with their sizes; the reductions; how operations end."""

def _set_hooked(has_hooks: bool, /) -> None:
    """Says whether distlite.hooks wants the events of operations."""

def _show_wait(text: str | None, /) -> bool:
    """Shows what this thread waits for, until it is called with None.

    Returns False if that is not shown: within another wait, which is shown, or without
    a recording.
    """

def _recordings_sweep() -> None:
    """Removes recordings that ended processes of this user left on this host."""

def _finish_report() -> None:
    """Waits a few seconds at most for the table of a failure to be written."""

def _capture_log(fd: int, /) -> None:
    """Sends each line of the log to a copy of this socket; -1, in a forked child: to
    standard error."""

def _log_warning(text: str, /) -> None:
    """Puts a line into the core's log."""

def _addresses(connected: str | None, /) -> str:
    """Returns lines of a name and an address: the chosen one, then all interfaces."""

def _set_call_label(label: str | None, /) -> str | None:
    """Sets the function name in this thread's call sites, None for the actual one;
    returns the previous name."""

def _group_refuse(
    parent: ProcessGroup,
    ranks: list[int],
    rank: int,
    name: str,
    backend: str,
    reason: str,
) -> None:
    """Tells the other members of a group that this rank cannot make it."""

def _set_custom_handler(handler: _Handler, /) -> None:
    """Sets the function that is called first for groups whose class implements
    operations."""

def _set_reduce_op_types(
    members: type[RedOpType],
    wrapper: type[ReduceOp],
    make_reducer: Callable[[Any, Any, str, int], _Reducer],
) -> None:
    """Sets the classes of reductions, and the function that makes a _Reducer for those
    without a kernel."""

def _pair_reducer(
    is_max: bool,
    dtype: str,
    unit: int,
    value: str,
    value_offset: int,
    index: str,
    index_offset: int,
) -> _Reducer:
    """Returns a _Reducer for MINLOC or MAXLOC of pairs with this layout."""

def _function_reducer(
    name: str,
    dtype: str,
    unit: int,
    function: Callable[[memoryview, memoryview], None] | int,
    context: int,
    ufunc: Any = None,
    type_number: int = 0,
) -> _Reducer:
    """Returns a _Reducer that calls a Python function with two memoryviews, or a C
    function."""

def _set_future_of_work(factory: Callable[[Work], Future], /) -> None: ...
def _nccl_version() -> int: ...
def _mpi_library() -> tuple[str, str]: ...
def _mpi_place() -> tuple[int, int]: ...
def _mpi_tell(text: str, timeout: timedelta) -> str: ...
def _mpi_give_up() -> None: ...
def _ucc_version() -> int: ...
def _check_cuda() -> None: ...
def _device_serve(
    group: ProcessGroup,
    name: str,
    options: tuple[Any, ...] | None,
    takes_barriers: bool,
) -> None: ...
def _device_connect(group: ProcessGroup, index: int) -> None: ...
def _device_split(
    parent: ProcessGroup, color: int, key: int, child: ProcessGroup | None
) -> None: ...
def _device_shrink(
    parent: ProcessGroup, excluded: list[int], flags: int, child: ProcessGroup
) -> None: ...
def _device_grow(
    parent: ProcessGroup | None, device: int, child: ProcessGroup
) -> None: ...
def _device_ways(group: ProcessGroup, /) -> int:
    """Returns what another group's communicator can be made from this group's by: 1 the
    library can shrink, 2 it can grow, 4 there is a communicator, and no operation."""

def _device_name(group: ProcessGroup, /) -> str | None: ...
def _serves_devices(group: ProcessGroup, /) -> bool: ...
def _set_cuda_stream(stream: _Stream, /) -> int | None: ...
def _batch_begin(group: ProcessGroup, /) -> None: ...
def _batch_end(group: ProcessGroup, is_dropped: bool) -> Work | None: ...
def _next_finished() -> Work | None: ...
def _stop_completions() -> None: ...
def _renew_completions() -> None: ...
