# SPDX-License-Identifier: BSD-3-Clause
"""``distlite doctor``, on one host and under a launcher."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys

import pytest

from distlite.launch.command import main
from distlite.tools.diagnosis import Diagnosis
from distlite.tools.dump import write
from distlite.tools.facts import facts_of
from distlite.tools.links import connect, listen, pairs_of


def check(found: dict, size: int) -> None:
    assert set(found) == {"ranks", "links", "store", "errors", "warnings"}
    assert found["errors"] == []
    assert [facts["rank"] for facts in found["ranks"]] == list(range(size))
    for facts in found["ranks"]:
        assert facts["addresses"]["chosen"] and facts["addresses"]["why"]
        assert facts["open_files"] > 0
        assert facts["cores"] >= 1 and facts["ranks_here"] == size
    assert found["store"]["keys"] > 0 and found["store"]["clients"] >= 1
    links = {(link["from"], link["to"]): link for link in found["links"]}
    assert len(links) == size * (size - 1)
    for link in links.values():
        assert link["same_host"] and link["error"] is None
        assert 0 < link["connect_ms"] < 3000
        assert link["latency_us"] > 0 and link["mb_per_s"] > 0
    first, *others = (facts["libraries"] for facts in found["ranks"])
    assert first["NumPy"] and not any(others)


def test_on_this_host(tmp_path):
    path = tmp_path / "found.json"
    command = [sys.executable, "-m", "distlite.tools.doctor", "--json", "-o", str(path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stderr
    check(json.loads(path.read_text()), 2)


@pytest.mark.slow
def test_under_the_launcher(tmp_path):
    path = tmp_path / "found.json"
    command = [sys.executable, "-m", "distlite.run", "--nproc-per-node", "3"]
    command += ["-m", "distlite.tools.doctor", "--json", "-o", str(path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stderr
    check(json.loads(path.read_text()), 3)


def test_alone_it_has_no_links(capsys):
    assert main(["doctor", "--nproc-per-node", "1"]) == 0
    text = capsys.readouterr().out
    assert "Libraries" in text and "Links" not in text


def test_a_missing_rank_is_told(monkeypatch, capsys):
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setenv("MASTER_ADDR", "127.0.0.1")
    monkeypatch.setenv("MASTER_PORT", "1")
    assert main(["doctor", "--timeout", "0.3"]) == 1
    assert "rank 1 of 2: " in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "variables", "complaint"),
    [
        (["--timeout", "nan"], {}, "--timeout must be a number of seconds, not nan"),
        (["--timeout", "1e99"], {}, "--timeout must be a number of seconds, not 1e+99"),
        (["-n", "0"], {}, "--nproc-per-node 0: not 1 or more"),
        ([], {"RANK": "first", "WORLD_SIZE": "2"}, "RANK=first: not a number"),
        ([], {"LOCAL_WORLD_SIZE": "two"}, "LOCAL_WORLD_SIZE=two: not a number"),
    ],
)
def test_what_is_no_number_is_refused(monkeypatch, capsys, words, variables, complaint):
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(SystemExit) as caught:
        main(["doctor", *words])
    assert caught.value.code == 2
    assert complaint in capsys.readouterr().err


def test_a_dump_that_cannot_be_written_leaves_nothing(tmp_path):
    (tmp_path / "folder0").mkdir()
    with pytest.raises(IsADirectoryError):
        write(str(tmp_path / "folder0"), b"data")
    assert [path.name for path in tmp_path.iterdir()] == ["folder0"]


def made_up(rank: int, **changes: object) -> dict:
    facts = facts_of(rank, None, rank == 0)
    facts["addresses"] = {"chosen": "10.0.0.1", "interface": "eth0", "why": "so"}
    return facts | {"open_files": 4096, "cores": 4, "ranks_here": 2} | changes


def test_what_is_found():
    loopback = {"chosen": "127.0.0.1", "interface": "lo", "why": "so"}
    first = made_up(0, stack="a", addresses=loopback, open_files=64)
    second = made_up(1, stack="b", addresses={"chosen": None, "why": "no such eth9"})
    second["cores"] = 1
    second["versions"] = {**second["versions"], "python": "2.7"}
    refused = {"from": 0, "to": 1, "connect_ms": None, "error": "refused"}
    refused["same_host"] = False
    diagnosis = Diagnosis([first, second], [refused], "rank 1 is late")
    errors, warnings = "\n".join(diagnosis.errors()), "\n".join(diagnosis.warnings())
    assert "no group can be made: rank 1 is late" in errors
    assert "rank 0 to rank 1: refused" in errors
    assert (
        "would give other hosts the address 127.0.0.1; set GLOO_SOCKET_IFNAME" in errors
    )
    assert "has no address: no such eth9" in errors
    assert (
        "may open only 64 files" in warnings
        and "2 ranks of this host share 1 core(s):" in warnings
    )
    assert "different versions of python" in warnings
    text = io.StringIO()
    diagnosis.write(False, text)
    lines = text.getvalue().splitlines()
    assert any(line.startswith("0     1   other  failed") for line in lines)
    assert lines[-1].startswith("warning: ")


def test_nothing_is_made_up():
    facts = made_up(0)
    store = {"error": "not reached in 30 s, of 8.2 KiB"}
    diagnosis = Diagnosis([facts, made_up(1)], [], None, store)
    assert [*diagnosis.errors(), *diagnosis.warnings()] == []
    assert facts["pid"] == os.getpid()
    text = io.StringIO()
    diagnosis.write(False, text)
    assert "\nStore: not reached in 30 s, of 8.2 KiB\n" in text.getvalue()
    assert text.getvalue().endswith("\nNo problems were found.\n")


def test_connections():
    with listen("127.0.0.1") as listener:
        where = listener.getsockname()
        assert connect(where)["error"] is None
    assert "refused" in connect(where)["error"]
    assert listen("203.0.113.1") is listen(None) is None
    assert connect(None)["connect_ms"] is None


def test_pairs():
    assert pairs_of(3) == [(0, 1), (0, 2), (1, 2)]
    many = pairs_of(20)
    assert len(many) == 19 + 18
    assert all((0, rank) in many for rank in range(1, 20))
