# SPDX-License-Identifier: BSD-3-Clause
"""The program of a rank of processes.py.  It imports little, because every rank does
so."""

from __future__ import annotations

import os
import pickle
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

# A file of distlite/launch; distlite itself is imported by the rank's function.
sys.path.append(os.path.join(os.path.dirname(__file__), os.pardir, "launch"))
import rank_process  # type: ignore[import-not-found]

MARGIN = 1.0


def _load(rewrites: bool, name: str, path: str, function: str) -> object:
    """Returns the function, loaded from its file, because pytest may name the module
    otherwise."""
    from importlib.util import module_from_spec, spec_from_file_location

    is_script = name == "__main__"
    if is_script:
        # The name must not be "__main__", with which a script would start ranks again.
        # It is that of multiprocessing, so that values of the script's classes can be
        # pickled.
        name = "__mp_main__"
    loader = _rewriting_loader(name, path) if rewrites else None
    spec = spec_from_file_location(name, path, loader=loader)
    assert spec is not None and spec.loader is not None
    module = module_from_spec(spec)
    sys.modules[name] = module
    if is_script:
        module.__spec__ = None  # as a script has it: multiprocessing then uses the file
        sys.modules["__main__"] = module
    spec.loader.exec_module(module)
    found: object = module
    for part in function.split("."):
        # pytest makes a new object of the class for each test.
        found = getattr(found() if isinstance(found, type) else found, part)
    return found


def _rewriting_loader(name: str, path: str) -> Any:
    """Returns a loader that rewrites assertions, so that failed ones show the values,
    as in pytest."""
    import ast
    from importlib.machinery import SourceFileLoader

    from _pytest.assertion.rewrite import rewrite_asserts

    class Loader(SourceFileLoader):
        # It does not use the cache of bytecode, which other programs use.
        def get_code(self, fullname: str) -> Any:
            source = self.get_data(path)
            tree = ast.parse(source, path)
            rewrite_asserts(tree, source)
            return compile(tree, path, "exec", dont_inherit=True)

    return Loader(name, path)


@contextmanager
def _group(backend: str | None, init_method: str, end: float | None) -> Iterator[None]:
    """Makes the default group for a with statement; after an error the group is not
    left, so that the others notice.

    Its operations time out before the run ends, so that their errors name the late
    ranks.
    """
    if backend is None:
        yield
        return
    import time

    import distlite

    left = None if end is None else max(1.0, end - time.monotonic() - MARGIN)
    distlite.init_process_group(
        backend,
        init_method=init_method,
        rank=int(os.environ["RANK"]),
        world_size=int(os.environ["WORLD_SIZE"]),
        timeout=left,
    )
    yield
    if distlite.is_initialized():
        distlite.destroy_process_group()


def _hit(faults: list[tuple[str, int, int, float]]) -> AbstractContextManager[None]:
    """Lets the rank run into the faults within a with statement."""
    if not faults:
        return nullcontext()
    from distlite.testing.faults import Fault, Victim, hit

    return hit(Victim([Fault(*each) for each in faults]).before)


def _pickled_error(error: BaseException) -> bytes:
    import traceback

    trace = error.__traceback__
    while trace is not None and trace.tb_frame.f_code.co_filename == __file__:
        trace = trace.tb_next
    lines = traceback.format_exception(type(error), error, trace or error.__traceback__)
    text = "".join(lines)
    outcomes = sys.modules.get("_pytest.outcomes")
    if outcomes is not None and isinstance(error, outcomes.Skipped):
        return pickle.dumps(("skip", str(error), ""))
    # The value is pickled by itself: if it cannot be loaded, there is still the
    # traceback.
    try:
        content = pickle.dumps(error)
        pickle.loads(content)
    except Exception:
        content = None
    return pickle.dumps(("error", content, text))


def main(result_fd: int, *, is_fork: bool = False) -> int:
    """Runs the function that standard input names, and returns the exit status.

    A fork of the fork server is the server's child, and has already arranged to end
    with it.
    """
    os.set_inheritable(result_fd, False)
    parent, sys.path[:], rewrites, *place = pickle.load(sys.stdin.buffer)
    if not is_fork:
        rank_process.end_with_parent(parent)
    returncode = 0
    try:
        run = _load(rewrites, *place)
        # Only now, because arguments may be of types that the module defines.
        world, arguments, faults = pickle.load(sys.stdin.buffer)
        with _group(*world), _hit(faults):
            value = run(**arguments)  # type: ignore[operator]
        message = pickle.dumps(("value", value, ""))
    except BaseException as error:
        message = _pickled_error(error)
        returncode = 1
    with os.fdopen(result_fd, "wb") as pipe:
        pipe.write(message)
    return returncode


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1])))
