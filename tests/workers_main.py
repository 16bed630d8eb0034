# SPDX-License-Identifier: BSD-3-Clause
"""What one rank of workers.py runs.  Imports little: every rank pays for it."""

from __future__ import annotations

import os
import pickle
import sys

PR_SET_PDEATHSIG = 1
SIGKILL = 9


def _die_with_parent(parent: int) -> None:
    import ctypes

    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        os._exit(1)


def _load(name: str, path: str, function: str) -> object:
    """The function, from its file: however pytest named the module."""
    from importlib.util import module_from_spec, spec_from_file_location

    if name == "__main__":
        name = "__ranks__"  # a script's own guard must not start ranks again
    spec = spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    module = module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    found: object = module
    for part in function.split("."):
        found = getattr(found, part)
    return found


def _pickled_error(error: BaseException) -> bytes:
    import traceback

    text = traceback.format_exc()
    try:
        message = pickle.dumps(("error", error, text))
        pickle.loads(message)
    except Exception:
        return pickle.dumps(("error", None, text))
    return message


def main(result_fd: int) -> int:
    os.set_inheritable(result_fd, False)
    parent, sys.path[:], name, path, function = pickle.load(sys.stdin.buffer)
    _die_with_parent(parent)
    returncode = 0
    try:
        run = _load(name, path, function)
        # Only now: arguments may be of types that the module defines.
        arguments = pickle.load(sys.stdin.buffer)
        message = pickle.dumps(("value", run(**arguments), ""))  # type: ignore[operator]
    except BaseException as error:
        message = _pickled_error(error)
        returncode = 1
    with os.fdopen(result_fd, "wb") as pipe:
        pipe.write(message)
    return returncode


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1])))
