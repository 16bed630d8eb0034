# SPDX-License-Identifier: BSD-3-Clause
"""Jobs of Slurm itself, on a cluster of two nodes that are both this host."""

import os
import re
import secrets
import shutil
import socket
import subprocess
import sys
import time
from contextlib import ExitStack
from pathlib import Path

import pytest
from ports import reserve_port

LAUNCHING = Path(__file__).resolve().parents[2] / "docs" / "launching.md"
LIMIT_SECONDS = 120

# Slurm's daemons lie where only root's PATH leads.
PATH = os.pathsep.join(
    [str(Path(sys.executable).parent), os.environ["PATH"], "/usr/sbin", "/sbin"]
)
DAEMONS = ("munged", "slurmctld", "slurmd")

pytestmark = [
    pytest.mark.slow,
    pytest.mark.limit(300),
    pytest.mark.skipif(
        os.geteuid() != 0
        or any(shutil.which(name, path=PATH) is None for name in (*DAEMONS, "srun")),
        reason="needs root and Slurm (apt install slurm-wlm munge)",
    ),
]

# Everything lies in one folder; no process group, memory or accounting of the host's.
# Nodes are sorted, and the name of the first has to lead to its address.
CONFIGURATION = """
ClusterName=test
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={ports[0]}
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
CredType=cred/munge
SlurmUser=root
SlurmdUser=root
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
MpiDefault=none
SwitchType=switch/none
JobAcctGatherType=jobacct_gather/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SlurmdParameters=config_overrides
ReturnToService=2
MailProg=/bin/true
NodeName={host} NodeAddr=127.0.0.1 Port={ports[1]} CPUs=8
NodeName={host}-2 NodeHostname={host} NodeAddr=127.0.0.1 Port={ports[2]} CPUs=8
PartitionName=all Nodes=ALL Default=YES
"""

TRAIN = """
import os, sys

import numpy as np

import distlite as dist

dist.init_process_group()
rank, size = dist.get_rank(), dist.get_world_size()
x = np.full(3, rank, dtype=np.float32)
dist.all_reduce(x, op=dist.ReduceOp.AVG)
node = os.environ["SLURMD_NODENAME"]
print(f"rank {rank} of {size} on {node} has the mean {x[0]}", flush=True)
if rank == 3 and "fail" in sys.argv:
    os._exit(3)
dist.all_reduce(x)
dist.destroy_process_group()
"""


class Cluster:
    def __init__(self, folder, stack):
        self.folder = folder
        self.host = socket.gethostname().partition(".")[0]
        self.stack = stack
        mine = ("SLURM_", "RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_")
        self.environment = {
            **{k: v for k, v in os.environ.items() if not k.startswith(mine)},
            "PATH": PATH,
            "SLURM_CONF": str(folder / "slurm.conf"),
        }

    def start(self, *command):
        log = self.stack.enter_context(
            (self.folder / f"{len(list(self.folder.iterdir()))}.log").open("w")
        )
        process = subprocess.Popen(
            [str(word) for word in command],
            env=self.environment,
            cwd=self.folder,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
        )
        self.stack.callback(process.wait, LIMIT_SECONDS)
        self.stack.callback(process.terminate)

    def logs(self):
        return "".join(log.read_text() for log in sorted(self.folder.glob("*.log")))

    def call(self, *command):
        return subprocess.run(
            [str(word) for word in command],
            env=self.environment,
            cwd=self.folder,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=LIMIT_SECONDS,
        )

    def until_idle(self):
        deadline = time.monotonic() + LIMIT_SECONDS
        while self.call("sinfo", "-h", "-o", "%D %t").stdout.strip() != "2 idle":
            assert time.monotonic() < deadline, self.logs()
            time.sleep(0.1)


@pytest.fixture(scope="module")
def running(tmp_path_factory):
    folder = tmp_path_factory.mktemp("slurm")
    # munged wants a path to its socket that everybody may follow.
    for above in (folder, folder.parent, folder.parent.parent):
        above.chmod(0o755)
    for name in ("state", "spool", "munge"):
        (folder / name).mkdir(mode=0o700)
    with ExitStack() as stack:
        cluster = Cluster(folder, stack)
        ports = [reserve_port() for _ in range(3)]
        text = CONFIGURATION.format(folder=folder, host=cluster.host, ports=ports)
        (folder / "slurm.conf").write_text(text)
        key = folder / "munge" / "key"
        key.touch(mode=0o400)
        key.write_bytes(secrets.token_bytes(32))
        (folder / "train.py").write_text(TRAIN)
        files = {"socket": folder / "munge.socket", "key-file": key}
        for name in ("pid-file", "log-file", "seed-file"):
            files[name] = folder / "munge" / name
        options = [f"--{name}={path}" for name, path in files.items()]
        cluster.start("munged", "--foreground", "--force", *options)
        deadline = time.monotonic() + LIMIT_SECONDS
        while not files["socket"].exists():
            assert time.monotonic() < deadline, cluster.logs()
            time.sleep(0.05)
        cluster.start("slurmctld", "-D")
        for node in (cluster.host, f"{cluster.host}-2"):
            cluster.start("slurmd", "-D", "-N", node)
        yield cluster


@pytest.fixture
def cluster(running):
    running.until_idle()
    return running


def sayings(output):
    return sorted(re.findall(r"rank \d of \d on \S+ has the mean \S+", output))


def test_srun_starts_ranks(cluster):
    done = cluster.call("srun", "-N2", "-n4", "python", "train.py")
    assert done.returncode == 0, done.stdout + done.stderr + cluster.logs()
    first, second = cluster.host, f"{cluster.host}-2"
    said = sayings(done.stdout)
    assert [line.split()[1] for line in said] == list("0123")
    assert all(line.endswith("the mean 1.5") for line in said)
    nodes = [line.split()[5] for line in said]
    assert nodes == sorted(nodes) and set(nodes) == {first, second}


def test_a_rank_that_fails_is_named(cluster):
    done = cluster.call("srun", "-N2", "-n4", "python", "train.py", "fail")
    assert done.returncode != 0
    assert re.search(r"DistBackendError: .*rank 3\b", done.stderr), done.stderr


@pytest.mark.parametrize("number", [0, 1])
def test_the_scripts_of_the_manual(cluster, number):
    blocks = re.findall(
        r"^```\n(#!/bin/bash\n#SBATCH.*?)^```", LAUNCHING.read_text(), re.M | re.S
    )
    script = blocks[number].replace("29400", str(reserve_port()))
    path = cluster.folder / f"job{number}"
    path.write_text(script)
    output = cluster.folder / f"output{number}"
    done = cluster.call("sbatch", "--wait", "-o", output, path)
    text = output.read_text() if output.exists() else cluster.logs()
    assert done.returncode == 0, text
    said = sayings(text)
    assert [line.split()[1] for line in said] == list("01234567")
    assert all(line.endswith("the mean 3.5") for line in said)
    assert {line.split()[5] for line in said} == {cluster.host, f"{cluster.host}-2"}
