# SPDX-License-Identifier: BSD-3-Clause
"""notebook_launcher: ranks that are forked from the caller."""

import json
import os
import signal
import sys
import threading

import numpy as np
import pytest
from ports import reserve_port

import distlite as dist
import distlite.notebook
from distlite.groups.world import world
from distlite.launch.cores import usable_cores
from distlite.spawn import (
    ProcessContext,
    ProcessExitedException,
    ProcessRaisedException,
)

VARIABLES = [
    *("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE"),
    *("MASTER_ADDR", "MASTER_PORT"),
    *("TORCHELASTIC_USE_AGENT_STORE", "TORCHELASTIC_RUN_ID"),
]


def test_it_gives_ranks_what_they_need(tmp_path):
    def work(start, folder):  # nothing that could be imported
        with dist.process_group():
            x = np.array([start + dist.get_rank()])
            dist.all_reduce(x)
            (folder / str(dist.get_rank())).write_text(str(x[0]))

    assert dist.notebook_launcher(work, (10, tmp_path), 3) is None
    assert {file.name: file.read_text() for file in tmp_path.iterdir()} == {
        str(rank): "33" for rank in range(3)
    }
    assert world.default is None


def test_the_environment_is_the_ranks_own(tmp_path, monkeypatch):
    """Also where the notebook is itself a rank of a launcher."""
    for name in VARIABLES:
        monkeypatch.setenv(name, "7")
    before = dict(os.environ)
    port = reserve_port()

    def tell():
        with dist.process_group():
            found = {name: os.environ.get(name) for name in VARIABLES}
            (tmp_path / found["RANK"]).write_text(json.dumps(found))

    dist.notebook_launcher(tell, (), 2, use_port=str(port))
    assert dict(os.environ) == before
    for rank in range(2):
        assert json.loads((tmp_path / str(rank)).read_text()) == {
            "RANK": str(rank),
            "LOCAL_RANK": str(rank),
            "WORLD_SIZE": "2",
            "LOCAL_WORLD_SIZE": "2",
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(port),
            "TORCHELASTIC_USE_AGENT_STORE": "True",
            "TORCHELASTIC_RUN_ID": None,
        }


def test_there_is_one_rank_per_core_unless_it_is_said(tmp_path):
    def tell():
        (tmp_path / os.environ["RANK"]).touch()

    dist.notebook_launcher(tell)
    assert len(list(tmp_path.iterdir())) == usable_cores()


def test_a_failure_is_raised_and_ends_the_others(tmp_path):
    def fail():
        with dist.process_group():
            if dist.get_rank() == 1:
                raise KeyError("the reason")
            dist.barrier()

    with pytest.raises(ProcessRaisedException, match="KeyError: 'the reason'") as told:
        dist.notebook_launcher(fail, (), 3)
    assert told.value.error_index == 1
    with pytest.raises(ProcessExitedException, match="exit code 5"):
        dist.notebook_launcher(os._exit, (5,), 1)


def is_joining():
    """Whether the main thread waits for ranks: what a signal raises before it does,
    around a fork, is ignored in places."""
    frame = sys._current_frames()[threading.main_thread().ident]
    while frame is not None and frame.f_code is not ProcessContext.join.__code__:
        frame = frame.f_back
    return frame is not None


def test_an_interrupted_cell_leaves_no_rank_behind(tmp_path, monkeypatch):
    monkeypatch.setattr(distlite.notebook, "GRACE", 0.2)

    def stay():
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        (tmp_path / os.environ["RANK"]).write_text(str(os.getpid()))
        threading.Event().wait()

    def interrupt():
        files = [tmp_path / str(rank) for rank in range(2)]
        while not all(f.exists() and f.read_text() for f in files) or not is_joining():
            stopped.wait(0.01)
        os.kill(os.getpid(), signal.SIGINT)

    stopped = threading.Event()
    thread = threading.Thread(target=interrupt)
    thread.start()
    with pytest.raises(KeyboardInterrupt):
        dist.notebook_launcher(stay, (), 2)
    thread.join()
    pids = [file.read_text() for file in tmp_path.iterdir()]
    assert len(pids) == 2
    assert not any(os.path.exists(f"/proc/{pid}") for pid in pids)


def test_what_cannot_be():
    with pytest.raises(ValueError, match="^num_processes must be 1 or more, not 0$"):
        dist.notebook_launcher(print, (), 0)
    for port in (65536, -1, "x"):
        with pytest.raises(ValueError, match=f"^use_port must be .* not {port!r}$"):
            dist.notebook_launcher(print, (), 1, use_port=port)
    with dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False) as store:
        taken = store.port
        with pytest.raises(OSError, match=f"^.*cannot listen on 127.0.0.1:{taken}: "):
            dist.notebook_launcher(print, (), 1, use_port=taken)
    with dist.process_group(store=dist.HashStore(), rank=0, world_size=1):
        with pytest.raises(ValueError, match="which forked ranks cannot share"):
            dist.notebook_launcher(print, (), 1)
        assert dist.is_initialized()
