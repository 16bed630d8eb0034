# SPDX-License-Identifier: BSD-3-Clause
"""What the processes of test_spawn.py do; a module that imports next to nothing."""

import os
import signal
import sys
import time


def note(index, folder, word):
    """A file that is whole once it is there."""
    with open(f"{folder}/{index}.new", "w") as file:
        file.write(f"{word} {os.getpid()}")
    os.rename(f"{folder}/{index}.new", f"{folder}/{index}")


def end(index, folder, how):
    """The last one ends as it is told; the others wait for their own end."""
    note(index, folder, "started")
    if index == 0:
        time.sleep(60)
    while not os.path.exists(f"{folder}/0"):
        time.sleep(0.005)
    if how == "raise":
        raise KeyError("the reason")
    if how == "exit":
        sys.exit(7)
    os.kill(os.getpid(), signal.SIGKILL)


def follow(index, folder, reason):
    """The second one says that it has lost the first, which fails when it is gone."""
    import distlite as dist

    if index == 1:
        note(index, folder, "lost a peer")
        raise dist.DistBackendError("rank 0 (pid 7 on host a) has ended")
    path = f"{folder}/1"
    while not os.path.exists(path):
        time.sleep(0.005)
    with open(path) as file:
        pid = file.read().split()[-1]
    while os.path.exists(f"/proc/{pid}"):
        time.sleep(0.005)
    if reason:
        raise KeyError(reason)
    time.sleep(60)


def complain(index, word):
    raise ValueError(word)


def stay(index, folder):
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    note(index, folder, "deaf")
    if index == 0:
        time.sleep(60)
    while not os.path.exists(f"{folder}/0"):
        time.sleep(0.005)
    sys.exit(3)


def interrupt(index):
    os.kill(os.getpid(), signal.SIGINT)
    time.sleep(60)


def all_reduce(index, url, size):
    import numpy as np

    import distlite as dist

    dist.init_process_group("gloo", url, rank=index, world_size=size)
    total = np.array([index + 1.0])
    dist.all_reduce(total)
    assert total[0] == sum(range(size + 1))
    dist.destroy_process_group()


def lose_a_peer(index, url, size):
    import logging

    import numpy as np

    import distlite as dist

    # A rank that was forked has the handlers of pytest, which would keep what it tells.
    for name in (None, "distlite"):
        logging.getLogger(name).handlers.clear()
    dist.init_process_group("gloo", url, rank=index, world_size=size)
    dist.barrier()
    if index == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    dist.all_reduce(np.zeros(3))


def wait_for(index, path):
    while not os.path.exists(path):
        time.sleep(0.005)


def wait_and_note(index, folder, path):
    wait_for(index, path)
    note(index, folder, "done")
