# SPDX-License-Identifier: BSD-3-Clause
"""How a rank tells the launcher what went wrong: in the file that
TORCHELASTIC_ERROR_FILE names, in torch's layout."""

from __future__ import annotations

import functools
import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import ParamSpec, TypeVar

    P = ParamSpec("P")
    R = TypeVar("R")

ERROR_FILE = "TORCHELASTIC_ERROR_FILE"


def record(function: Callable[P, R]) -> Callable[P, R]:
    """Records an exception that leaves a function, for the launcher's report.

    It decorates the main function of a script. Without it the report shows the
    traceback at the end of what the rank has written to stderr; with it the report is
    exact also where several threads or processes write there.

    Args:
        function: The function.

    Returns:
        A function that calls it, and raises what it raises.

    Example:
        >>> from distlite.launch import record
        >>> @record
        ... def main(steps):
        ...     return 2 * steps
        >>> main(3)
        6
    """

    @functools.wraps(function)
    def recorded(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return function(*args, **kwargs)
        except Exception as error:
            write_error(error)
            raise

    return recorded


def write_error(error: BaseException) -> None:
    """Writes an error into the file, if a launcher has named one and it is empty."""
    path = os.environ.get(ERROR_FILE)
    if not path:
        return
    import contextlib
    import json
    import time
    import traceback

    stack = "".join(traceback.format_exception(type(error), error, error.__traceback__))
    extra = {"py_callstack": stack, "timestamp": str(int(time.time()))}
    # The last line of the stack, for an error without a text.
    try:
        text = f"{type(error).__name__}: {error}"
    except Exception:
        text = stack.splitlines()[-1]
    content = {"message": {"message": text, "extraInfo": extra}}
    # The traceback is on stderr in any case.
    with contextlib.suppress(OSError), open(path, "x") as file:
        json.dump(content, file)


def read_error(path: str | None) -> list[str]:
    """Returns the lines of the traceback, or of the message, in a file; none without a
    file."""
    if path is None or not os.path.exists(path):
        return []
    import json

    try:
        with open(path) as file:
            message = json.load(file)["message"]
        if isinstance(message, str):
            return message.splitlines()
        text = message.get("extraInfo", {}).get("py_callstack") or message["message"]
        return str(text).splitlines()
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return []
