# SPDX-License-Identifier: BSD-3-Clause
"""Which folder may include which: the table of docs/architecture.md."""

from __future__ import annotations

import fnmatch
from itertools import pairwise

import pytest
from c_source import CSRC, ROOT, Source, csrc_files

_BELOW_PG = ("base/*", "tensor/*", "store/store.h")
_PG = (*_BELOW_PG, "pg/*.h")

# Patterns of what a folder may include beside its own files.  The longest folder that
# contains a file decides.
MAY_INCLUDE = {
    "base": (),
    "tensor": ("base/*",),
    "net": ("base/*",),
    "store": ("base/*", "net/*"),
    "store/tcp": ("base/*", "net/*", "store/*"),
    "pg": (
        *(*_BELOW_PG, "pg/record/*.h", "pg/agree/*.h", "pg/device/*.h"),
        "pg/*/*_backend.h",  # the one header that each backend shows
    ),
    "pg/record": ("base/*", "pg/fingerprint.h"),
    "pg/agree": (*_PG, "pg/record/*.h"),
    "pg/device": (*_PG, "pg/record/*.h", "pg/agree/*.h"),
    "pg/cpu": (*_PG, "net/*", "pg/record/*.h", "pg/agree/*.h"),
    "pg/nccl": (*_PG, "pg/agree/*.h", "pg/device/*.h"),
    "pg/mpi": (
        *(*_PG, "pg/record/*.h"),
        "pg/cpu/cpu_backend.h",  # which it has beside MPI
    ),
    "pg/ucc": (*_PG, "pg/cpu/cpu_backend.h"),  # which it has beside UCC
    "pg/fake": _PG,
    "python": (
        *(*_PG, "pg/record/*.h", "pg/agree/*.h", "pg/device/*.h", "pg/*/*_backend.h"),
        "store/*_store.h",
        "store/tcp/tcp_store.h",
        "store/tcp/relay.h",
    ),
}


# The build writes it, into a folder of its own.
GENERATED = "python/module/docstrings.h"


def matches(name: str, pattern: str) -> bool:
    """Like fnmatch, but a star does not reach into a subfolder."""
    return name.count("/") == pattern.count("/") and fnmatch.fnmatch(name, pattern)


def room_of(path: str) -> str:
    """The longest folder of the table that contains the file."""
    folder = path.removeprefix("csrc/").rsplit("/", 1)[0]
    while folder not in MAY_INCLUDE:
        assert "/" in folder, f"{path}: the table has no line for its folder"
        folder = folder.rsplit("/", 1)[0]
    return folder


def is_allowed(source: Source, name: str) -> bool:
    room = room_of(source.path)
    if name.startswith(f"{room}/") and room_of(f"csrc/{name}") == room:
        return True
    return any(matches(name, pattern) for pattern in MAY_INCLUDE[room])


def layering_errors(source: Source) -> list[str]:
    errors = []
    for is_quoted, name in source.includes:
        if is_quoted and not is_allowed(source, name):
            errors.append(f"{source.path} may not include {name}")
        if is_quoted and name != GENERATED and not (CSRC / name).is_file():
            errors.append(f"{source.path}: {name} is not written from csrc")
        if name == "Python.h" and room_of(source.path) != "python":
            errors.append(f"{source.path}: Python.h outside csrc/python")
    return errors


def circles(sources: list[Source]) -> list[list[str]]:
    """Circles among modules.  A module is a header with its .c file, and what is
    private to it: headers without a .c file that include its header, and whose names
    begin with the module's.

    Functions that a header declares may stand in another .c file than its own, above
    what that uses: so dl_group_new() is in membership.c, which knows everything, and
    group.h is known by everything."""
    owners = _owners(sources)
    above: dict[str, set[str]] = {}
    for source in sources:
        module = above.setdefault(owners[_module_of(source.path)], set())
        names = [_module_of(n) for is_quoted, n in source.includes if is_quoted]
        module.update(owners.get(name, name) for name in names)
    reach = {module: _reached(above, module) for module in above}
    found = {
        tuple(sorted(m for m in reach[module] if module in reach.get(m, ())))
        for module in above
    }
    return [list(circle) for circle in sorted(found) if len(circle) > 1]


def _owners(sources: list[Source]) -> dict[str, str]:
    """The module of each file, by the file's name without its ending."""
    bodies = {_module_of(s.path) for s in sources if s.path.endswith(".c")}
    owners = {_module_of(s.path): _module_of(s.path) for s in sources}
    for source in sources:
        name = _module_of(source.path)
        owner = name.rpartition("_")[0]
        included = [name for _, name in source.includes]
        if name not in bodies and owner in bodies and f"{owner}.h" in included:
            owners[name] = owner
    return owners


def _module_of(path: str) -> str:
    return path.removeprefix("csrc/").rsplit(".", 1)[0]


def _reached(above: dict[str, set[str]], module: str) -> set[str]:
    """The modules that this one includes, also through others."""
    found: set[str] = set()
    waiting = [module]
    while waiting:
        new = above.get(waiting.pop(), set()) - found
        found |= new
        waiting += new
    return found


def test_modules_form_no_circle():
    assert circles(csrc_files()) == []


def chain(*paths: str) -> list[Source]:
    """Files each of which includes the next one."""
    return [Source(f"csrc/{a}", f'#include "{b}"\n') for a, b in pairwise(paths)]


@pytest.mark.parametrize(
    ("files", "found"),
    [
        # Through several folders, and a module that only leads there.
        (
            ["pg/d.h", "pg/b.h", "pg/c.h", "pg/record/a.h", "pg/b.h"],
            [["pg/b", "pg/c", "pg/record/a"]],
        ),
        (["pg/a.h", "pg/b.h", "pg/a.h"], [["pg/a", "pg/b"]]),
        (["pg/a.c", "pg/a.h", "pg/b.h"], []),
        # A header that is private to a module, and one that is not.
        (["pg/a.c", "pg/a_state.h", "pg/a.h"], []),
        (["pg/a.c", "pg/b_state.h", "pg/a.h"], [["pg/a", "pg/b_state"]]),
        (
            ["pg/a.c", "pg/a_types.h", "pg/b.h", "pg/a.h"],
            [["pg/a", "pg/a_types", "pg/b"]],
        ),
    ],
)
def test_a_circle_is_seen(files: list[str], found: list[list[str]]):
    assert circles(chain(*files)) == found


def test_the_includes_of_csrc():
    errors = [e for source in csrc_files() for e in layering_errors(source)]
    assert not errors, "\n".join(errors)


def test_every_file_names_its_licence():
    suffixes = (".c", ".h", ".py", ".pyi")
    folders = ("csrc", "python", "tests", "benchmarks", "examples")
    files = [p for f in folders for p in (ROOT / f).rglob("*") if p.suffix in suffixes]
    without = [
        str(path.relative_to(ROOT))
        for path in files
        if "SPDX-License-Identifier: BSD-3-Clause" not in path.read_text()[:200]
    ]
    assert files and not without


@pytest.mark.parametrize(
    ("path", "include"),
    [
        ("base/x.c", "net/socket.h"),
        ("tensor/x.c", "net/socket.h"),
        ("net/x.c", "store/store.h"),
        ("store/x.c", "pg/group.h"),
        ("store/x.c", "store/tcp/wire.h"),
        ("pg/x.c", "net/socket.h"),
        ("pg/x.c", "store/tcp/tcp_store.h"),
        ("pg/cpu/algorithms/x.c", "store/hash_store.h"),
        ("pg/cpu/x.c", "python/module/state.h"),
        ("pg/record/x.c", "pg/agree/deadlock.h"),
        ("pg/agree/x.c", "pg/cpu/cpu_backend.h"),
        ("pg/cpu/x.c", "pg/device/device.h"),
        ("python/x.c", "net/socket.h"),
        ("python/x.c", "store/tcp/wire.h"),
        ("python/x.c", "store/tcp/session.h"),
        ("python/x.c", "store/table.h"),
        ("pg/cpu/x.c", "pg/nccl/nccl_backend.h"),
    ],
)
def test_an_arrow_that_points_up_is_seen(path, include):
    source = Source(f"csrc/{path}", f'#include "{include}"\n')
    assert f"csrc/{path} may not include {include}" in layering_errors(source)


def test_python_outside_its_folder_is_seen():
    source = Source("csrc/base/x.c", "#include <Python.h>\n")
    assert layering_errors(source) == ["csrc/base/x.c: Python.h outside csrc/python"]
