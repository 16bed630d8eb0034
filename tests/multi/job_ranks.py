# SPDX-License-Identifier: BSD-3-Clause
"""Workers of a distlite.elastic.JobQueue that are killed at any moment."""

from __future__ import annotations

import os
import random
import signal
import threading
from contextlib import suppress

import distlite
from distlite.elastic import JobQueue

LIMIT = 60.0


def work(rank: int, world_size: int, port: int, seed: int, count: int) -> int:
    """Does jobs until all are done; all ranks but the first are killed before."""
    store = distlite.TCPStore("127.0.0.1", port, timeout=LIMIT)
    queue = JobQueue(store, lease=LIMIT)
    store.barrier("start", world_size)
    if rank > 0:
        after = random.Random(f"{seed} {rank}").uniform(0, 0.2)
        threading.Timer(after, os.kill, (os.getpid(), signal.SIGKILL)).start()
    else:
        for number in range(count):
            queue.push(str(number))
    done = 0
    while rank > 0 or queue.unfinished():
        # The others may do the last one.
        with suppress(distlite.QueueEmptyError), queue.take(0.5) as job:
            store.add(f"done/{job.data.decode()}", 1)
            job.done()
            store.add(f"acknowledged/{job.data.decode()}", 1)
            done += 1
    return done
