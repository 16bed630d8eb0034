# SPDX-License-Identifier: BSD-3-Clause
"""One store server in a process of its own: `store_server.py LIBRARY BACKEND`.

Prints its port and serves until the end of its standard input.
"""

from __future__ import annotations

import sys


def main(library: str, backend: str) -> None:
    """`library`: distlite or torch; `backend`: libuv, or epoll (torch: legacy)."""
    if library == "torch":
        from torch.distributed import TCPStore
    else:
        from distlite import TCPStore
    store = TCPStore(
        "127.0.0.1",
        0,
        is_master=True,
        wait_for_workers=False,
        use_libuv=backend == "libuv",
    )
    print(store.port, flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    main(*sys.argv[1:])
