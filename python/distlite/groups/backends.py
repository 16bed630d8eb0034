# SPDX-License-Identifier: BSD-3-Clause
"""Which backends there are, and which of them serves which device.

A backend is a name.  The CPU backend of this library is called "gloo" or "cpu"; others
are there when their library is, or when somebody has registered them.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum, IntEnum
from typing import Any, ClassVar

from .. import _C
from .._C import ProcessGroup

__all__ = [
    "Backend",
    "BackendConfig",
    "BackendType",
    "best_backend",
    "get_default_backend_for_device",
    "is_backend_available",
    "is_gloo_available",
    "is_mpi_available",
    "is_nccl_available",
    "is_ucc_available",
    "is_xccl_available",
]

_DEVICE_WORDS = (
    *("cpu", "cuda", "ipu", "xpu", "mkldnn", "opengl", "opencl", "ideep", "hip", "ve"),
    *("fpga", "maia", "xla", "lazy", "vulkan", "mps", "meta", "hpu", "mtia"),
    "privateuseone",
)


def _succeeds(load: Callable[[], object]) -> bool:
    try:
        load()
    except RuntimeError:
        return False
    return True


# Each of these loads a library, or raises an error that says why it cannot.
_loaders: dict[str, Callable[[], object]] = {
    "mpi": _C._mpi_library,
    "nccl": _C._nccl_version,
    "ucc": _C._ucc_version,
}

# Whether the library of a backend is here, by name, for those who bind others.
probes: dict[str, Callable[[], bool]] = {}

# Backends that serve devices beside a CPU backend, which such a group always has.
_BESIDE_CPU = ("nccl",)
# Backends that serve the CPU's memory, and CUDA's through copies in the CPU's.
_STAGING = ("gloo", "cpu", "mpi", "ucc", "fake")


class BackendType(IntEnum):
    """The numbers that torch gives to backends."""

    UNDEFINED = 0
    GLOO = 1
    NCCL = 2
    UCC = 3
    MPI = 4
    XCCL = 5
    CUSTOM = 6

    # As torch's, and not a number.
    __str__ = Enum.__str__
    __format__ = Enum.__format__


class BackendPlugin:
    """How a registered backend makes its group."""

    def __init__(self, creator_fn: Callable[..., Any], extended_api: bool) -> None:
        self.creator_fn = creator_fn
        self.extended_api = extended_api


class Backend(str):
    """The name of a backend, in lower case.

    `Backend("GLOO")` is "gloo", whether or not the backend is available. Registered
    backends become attributes, `Backend.NAME`.

    Args:
        name: The name, in lower or upper case.

    Raises:
        ValueError: `name` is not a string.

    Example:
        >>> dist.Backend("GLOO") == dist.Backend.GLOO == "gloo"
        True
    """

    UNDEFINED = "undefined"
    GLOO = "gloo"
    NCCL = "nccl"
    UCC = "ucc"
    MPI = "mpi"
    XCCL = "xccl"
    FAKE = "fake"

    _BackendPlugin = BackendPlugin
    _plugins: ClassVar[dict[str, BackendPlugin]] = {}
    backend_list: ClassVar[list[str]] = [
        *("undefined", "gloo", "nccl", "xccl", "ucc", "mpi", "fake")
    ]
    # The default backend of each device.
    default_device_backend_map: ClassVar[dict[str, str]] = {
        "cpu": "gloo",
        "cuda": "nccl",
        "xpu": "xccl",
        "mps": "gloo",
    }
    # The devices that a backend can serve.
    backend_capability: ClassVar[dict[str, list[str]]] = {
        "gloo": ["cpu", "cuda"],
        "nccl": ["cuda"],
        "xccl": ["xpu"],
        "ucc": ["cpu", "cuda"],
        "mpi": ["cpu", "cuda"],
        "fake": ["cpu", "cuda", "hpu", "xpu"],
    }
    backend_type_map: ClassVar[dict[str, BackendType]] = {
        "undefined": BackendType.UNDEFINED,
        "gloo": BackendType.GLOO,
        "nccl": BackendType.NCCL,
        "xccl": BackendType.XCCL,
        "ucc": BackendType.UCC,
        "mpi": BackendType.MPI,
        "fake": BackendType.CUSTOM,
    }

    def __new__(cls, name: str) -> str:  # type: ignore[misc]
        """Returns a plain str, in lower case; raises ValueError for anything but a
        str."""
        if not isinstance(name, str):
            raise _not_text(name)
        return str(name).lower()

    @classmethod
    def register_backend(
        cls,
        name: str,
        func: Callable[..., Any],
        extended_api: bool = False,
        devices: str | list[str] | None = None,
    ) -> None:
        """Registers a backend that is written in Python.

        It replaces an earlier backend of the same name.

        Args:
            name: The name of the backend, for `init_process_group` and `new_group`.
            func: The function that makes a group. It is called with (store, rank, size,
                timeout), or with (options, pg_options) if `extended_api` is True, and
                returns a `ProcessGroup`: a subclass that implements the operations, or
                a native one.
            extended_api: Whether `func` takes options, which have `store`,
                `group_rank`, `group_size`, `timeout`, `group_id` and
                `global_ranks_in_group`.
            devices: The devices whose arrays it accepts, a name or a list of names.

        Raises:
            TypeError: `func` is not callable.
        """
        if not callable(func):
            raise TypeError(
                f"a backend is a function that makes a group, not {type(func).__name__}"
            )
        if devices is None:
            import warnings

            warnings.warn(
                f"Device capability of {name} unspecified, assuming `cpu` and `cuda`. "
                "Please specify it via the `devices` argument of `register_backend`.",
                stacklevel=2,
            )
            devices = ["cpu", "cuda"]
        served = [devices] if isinstance(devices, str) else list(devices)
        word = name.lower()
        setattr(cls, name.upper(), word)
        if word not in cls.backend_list:
            cls.backend_list.append(word)
        for device in served:
            cls.default_device_backend_map.setdefault(device, word)
        cls.backend_capability[word] = served
        cls.backend_type_map[word] = BackendType.CUSTOM
        cls._plugins[name.upper()] = BackendPlugin(func, extended_api)


class BackendConfig:
    """Which backend serves which device.

    Args:
        backend: A name, or pairs of a device and a name.

    Raises:
        ValueError: A pair is malformed, or a device has two backends.

    Example:
        >>> dist.BackendConfig("cpu:gloo,cuda:nccl").get_device_backend_map()
        {'cpu': 'gloo', 'cuda': 'nccl'}
    """

    def __init__(self, backend: str) -> None:
        self.device_backend_map: dict[str, str] = _map_of(backend)

    def __repr__(self) -> str:
        return ",".join(
            f"{device}:{name}" for device, name in self.device_backend_map.items()
        )

    def get_device_backend_map(self) -> dict[str, str]:
        """Returns a dict from device names to backend names."""
        return self.device_backend_map


def _map_of(backend: str) -> dict[str, str]:
    if ":" in backend:
        return _map_of_pairs(backend)
    backend = backend.lower()
    if backend == Backend.UNDEFINED:
        return {"cpu": Backend.GLOO}
    # "cpu" is distlite's own name for the backend that serves the CPU only.
    devices = ["cpu"] if backend == "cpu" else Backend.backend_capability.get(backend)
    if devices is None:
        import warnings

        warnings.warn(
            f"Device capability of {backend} unknown, assuming `cpu`, `cuda` and "
            "`xpu`. Please specify it in `device:backend` format.",
            stacklevel=3,
        )
        devices = ["cpu", "cuda", "xpu"]
    return {device: backend for device in devices}


def _map_of_pairs(text: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for pair in text.lower().split(","):
        device, colon, name = pair.partition(":")
        if not colon or ":" in name or name.startswith("//"):
            remedy = (
                f"pass a URL as init_method={text!r}"
                if "://" in text
                else f"a backend is a name, or device:backend,..., not {text!r}"
            )
            raise ValueError(f"Invalid device:backend pairing: {pair}; {remedy}")
        if device in found:
            raise ValueError(f"Duplicate device type {device} in {text!r}")
        found[device] = name
    return found


def is_gloo_available() -> bool:
    """Returns whether there is a backend for the CPU.

    Returns:
        True, always.
    """
    return True


def is_mpi_available() -> bool:
    """Returns whether an MPI library that can serve as a backend is on this machine."""
    return _is_present("mpi")


def is_nccl_available() -> bool:
    """Returns whether the library NCCL is on this machine.

    Returns:
        True or False; whether there is a device for it is not checked.
    """
    return _is_present("nccl")


def is_ucc_available() -> bool:
    """Returns whether the library UCC is on this machine."""
    return _is_present("ucc")


def is_xccl_available() -> bool:
    """Returns whether there is a backend for GPUs of Intel."""
    return _is_present("xccl")


def _is_present(name: str) -> bool:
    if name in probes:
        return probes[name]()
    return name in _loaders and _succeeds(_loaders[name])


def is_backend_available(backend: str) -> bool:
    """Returns whether groups can have a backend.

    Args:
        backend: A name, or pairs such as "cpu:gloo,cuda:nccl", which must all be
            available.

    Example:
        >>> dist.is_backend_available("gloo"), dist.is_backend_available("pigeons")
        (True, False)
    """
    name = backend.lower()
    if ":" in name:
        return all(is_backend_available(each) for each in _map_of(name).values())
    if name in ("nccl", "mpi", "ucc", "xccl"):
        return _is_present(name)
    return name == "cpu" or name in Backend.backend_list


def get_default_backend_for_device(device: Any) -> str:
    """Returns the backend that serves a device unless another one is asked for.

    Args:
        device: A name such as "cpu" or "cuda:0", or a `torch.device`.

    Returns:
        The name of the backend.

    Raises:
        RuntimeError: `device` is not a device.
        ValueError: No backend serves it by default.

    Example:
        >>> dist.get_default_backend_for_device("cpu")
        'gloo'
    """
    word = str(getattr(device, "type", device)).partition(":")[0]
    if word not in _DEVICE_WORDS and word not in Backend.default_device_backend_map:
        raise RuntimeError(
            f"Expected one of {', '.join(_DEVICE_WORDS)} device type at start of "
            f"device string: {device}"
        )
    if word not in Backend.default_device_backend_map:
        raise ValueError(f"Default backend not registered for device : {device}")
    return Backend.default_device_backend_map[word]


def best_backend(array: Any) -> str:
    """Returns the fastest backend on this machine for the memory of an array.

    It is not collective: ranks on different machines may get different answers.

    Args:
        array: An array, or a device: "cpu", "cuda:0" or a `torch.device`.

    Returns:
        The name of the backend.

    Raises:
        RuntimeError: No backend on this machine serves such memory; the message says
            what is missing.

    Example:
        >>> dist.best_backend(np.zeros(2))
        'gloo'
    """
    device = _device_of(array)
    name = get_default_backend_for_device(device)
    try:
        _check(name)
        if _is_native(name) and device.partition(":")[0] != "cpu":
            # torch's map has gloo for Metal, whose memory the core cannot read.
            raise RuntimeError(f"{name} supports the CPU's memory only")
    except (RuntimeError, AssertionError) as error:
        if device.startswith("cuda") and _succeeds(_C._check_cuda):
            return Backend.GLOO
        raise RuntimeError(
            f"no available backend supports arrays on {device}: {error}. Copy them to "
            "the CPU, which 'gloo' supports"
        ) from None
    return name


# torch's names of the devices that DLPack numbers: the CPU's memory, what CUDA (3) and
# ROCm (11) have pinned of it, and CUDA's, managed (13) or not.  What of them the core
# takes is in csrc/python/arrays/dlpack.c.
_DLPACK_DEVICES = {
    **dict.fromkeys((1, 3, 11), "cpu"),
    **dict.fromkeys((2, 13), "cuda"),
    **{8: "mps", 14: "xpu"},
}


def dlpack_device_of(array: Any) -> str | int | None:
    """Returns the kind of device that an array is on by DLPack, or DLPack's number if
    the kind has no name; None if the array has no `__dlpack_device__`.
    """
    ask = getattr(array, "__dlpack_device__", None)
    if ask is None:
        return None
    number = int(ask()[0])
    return _DLPACK_DEVICES.get(number, number)


def _device_of(array: Any) -> str:
    if isinstance(array, str):
        return array
    found = dlpack_device_of(array)
    if isinstance(found, int):
        raise RuntimeError(f"no available backend supports DLPack's device {found}")
    if found is not None:
        return found
    if hasattr(array, "__cuda_array_interface__"):
        return "cuda"
    if isinstance(getattr(array, "type", None), str):
        return str(array.type)
    try:
        memoryview(array)
    except TypeError:
        raise TypeError(
            f"an array or the name of a device is needed, not {type(array).__name__}"
        ) from None
    return "cpu"


def _not_text(backend: object) -> ValueError:
    return ValueError(
        "Backend constructor parameter must be string-ish: a name such as "
        f'"gloo", not {backend!r}'
    )


class DeviceBackends(BackendConfig):
    """The backends of a group, and the name that stands for them all."""

    def __init__(self, name: str, by_device: dict[str, str]) -> None:
        self.name = name  # as given to init_process_group
        self.device_backend_map = by_device

    @property
    def engine(self) -> str:
        """The core's name of the backend for the CPU or, without one, for the first
        device."""
        engine = self.device_backend_map.get("cpu") or next(
            iter(self.device_backend_map.values())
        )
        return Backend.GLOO if engine in _BESIDE_CPU else engine

    @property
    def plugins(self) -> dict[str, BackendPlugin]:
        """How to make the groups of the devices that registered backends serve."""
        found = {
            device: plugin_of(name) for device, name in self.device_backend_map.items()
        }
        return {device: plugin for device, plugin in found.items() if plugin}


def backends_of(backend: object) -> DeviceBackends:
    """Returns the backends that the argument of init_process_group() means; raises if
    one of them is not here, or does not serve its device."""
    if backend is None:
        return DeviceBackends(Backend.UNDEFINED, {"cpu": Backend.GLOO})
    if not isinstance(backend, str):
        raise _not_text(backend)
    name = backend.lower()
    if ":" not in name:
        _check(name)
    served = _map_of(backend)
    for device, served_by in served.items():
        _check(served_by)
        if ":" in name:
            _check_device(device, served_by)
        if served_by in _BESIDE_CPU and device != "cuda":
            raise RuntimeError(f"{served_by} supports cuda memory only, not {device}")
    backends = DeviceBackends(name, served)
    engine, by = backends.engine, served.get("cuda")
    if by in _STAGING and not _is_staged_by(engine, by):
        raise ValueError(
            f"{by} serves cuda memory by copies in the CPU's memory, which is "
            f'{engine}\'s here; use "cpu:{by},cuda:{by}" or "cpu:{engine},cuda:nccl"'
        )
    return backends


def _check_device(device: str, name: str) -> None:
    if name in ("gloo", "cpu", "mpi", "ucc") and device not in ("cpu", "cuda"):
        raise ValueError(
            f"{name} supports cpu and cuda memory only, not {device}; for arrays on "
            f'devices use "cpu:{name},cuda:nccl"'
        )


def _is_staged_by(engine: str, name: str) -> bool:
    """Returns whether the CPU's backend serves CUDA memory under that name."""
    return name in _STAGING and (engine == name or {engine, name} == {"gloo", "cpu"})


def _is_native(name: str) -> bool:
    return name in ("gloo", "cpu", Backend.UNDEFINED)


def _check(name: str) -> None:
    if _is_native(name) or name == Backend.FAKE or plugin_of(name) is not None:
        return
    if name in _loaders and _is_present(name):
        return
    if name == Backend.UCC:
        raise AssertionError(f"Unknown c10d backend type UCC; {_reason_of(name)}")
    if name in (Backend.NCCL, Backend.MPI, Backend.XCCL):
        raise RuntimeError(
            f"Distributed package doesn't have {name.upper()} built in; "
            f"{_reason_of(name)}"
        )
    registered = [each.lower() for each in Backend._plugins]
    known = ["gloo", "mpi", "nccl", "ucc", *registered]
    raise AssertionError(
        f"Unknown backend type {name}; known are {', '.join(known)}, or one for "
        'each device, as in "cpu:gloo,cuda:nccl"'
    )


def _reason_of(name: str) -> str:
    if name not in _loaders:
        return "this version has the cpu backend, also called 'gloo'"
    try:
        _loaders[name]()
    except RuntimeError as error:
        return str(error)
    return "but it can be loaded now"


def plugin_of(name: str) -> BackendPlugin | None:
    """Returns how to make groups of a registered backend; None for a built-in one."""
    return Backend._plugins.get(name.upper())


def serve_devices(
    group: ProcessGroup,
    backends: DeviceBackends,
    options: object = None,
    device_id: object = None,
) -> None:
    """Lets a new group serve the devices that it has backends for."""
    served = backends.device_backend_map
    served_by = served.get("cuda")
    if served_by in (Backend.NCCL, Backend.UCC):
        from .nccl import connect, serve

        serve(group, options, served_by, "cpu" not in served)
        if device_id is not None:
            connect(group, device_id)
    elif served_by is not None and _is_staged_by(backends.engine, served_by):
        _C._device_serve(group, served_by, None, False)


for _public in (Backend, BackendConfig, BackendType):
    _public.__module__ = "distlite"
