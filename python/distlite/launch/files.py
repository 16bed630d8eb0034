# SPDX-License-Identifier: BSD-3-Clause
"""The folder of a job on this node, laid out as torchrun's:

    FOLDER/<job>_<random>/attempt_<k>/<local rank>/{stdout.log,stderr.log,error.json}

Unless files were asked for, it lies among the temporary ones and goes with the job.
"""

from __future__ import annotations

import contextlib
import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from distlite.launch.options import Options


def make_folder(options: Options) -> str | None:
    """Makes the folder and returns its path; None if it cannot be made and no files
    were asked for."""
    parent = options.log_dir or os.environ.get("TMPDIR") or "/tmp"
    name = options.run_id.replace("/", "_")
    path = f"{os.path.abspath(parent)}/{name}_{os.urandom(4).hex()}"
    if options.log_dir is None:
        path = f"{os.path.abspath(parent)}/distlite_{os.urandom(8).hex()}"
    try:
        os.makedirs(path, mode=0o777 if options.log_dir else 0o700)
    except OSError as error:
        if options.keeps_files:
            reason = f"cannot make the folder {path}: {error.strerror}"
            raise OSError(error.errno, reason) from None
        return None
    return path


def rank_folder(folder: str, attempt: int, local_rank: int) -> str:
    """Makes and returns the folder of one rank."""
    path = f"{folder}/attempt_{attempt}/{local_rank}"
    os.makedirs(path, exist_ok=True)
    return path


def remove_folder(path: str) -> None:
    """Removes a folder and its contents, as far as that is possible."""
    with contextlib.suppress(OSError):
        for entry in list(os.scandir(path)):
            if entry.is_dir(follow_symlinks=False):
                remove_folder(entry.path)
            else:
                os.unlink(entry.path)
        os.rmdir(path)


def last_bytes(path: str, size: int) -> bytes:
    """Returns the last bytes of a file; none if it cannot be read."""
    try:
        with open(path, "rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - size))
            return file.read()
    except OSError:
        return b""
