# SPDX-License-Identifier: BSD-3-Clause
"""Ranks of several hosts prove to each other, and to nobody else, that they belong to
the job: by its token or by certificates, over plain links and over those with TLS."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest
import token_ranks
from ports import reserve_port
from token_ranks import TOKEN
from workers import SOON, rank_outcomes, run_ranks

# Hosts are simulated by hints; their links go over loopback.
LOOPBACK = {"GLOO_SOCKET_IFNAME": "lo"}


@pytest.mark.parametrize("names", ["AAB", "ABC", "AAA"])
def test_ranks_with_one_token_find_each_other(names):
    tokens = [TOKEN] * 3
    results = run_ranks(token_ranks.join, 3, env=LOOPBACK, names=names, tokens=tokens)
    assert [total for total, _ in results] == [3.0] * 3


@pytest.mark.parametrize(
    ("token", "by_others", "by_itself"),
    [
        (
            "another",
            "was not written with this job's token",
            "was not written with this job's token",
        ),
        (
            None,
            "was written without this job's token",
            "was written with a token, and this process has none",
        ),
    ],
)
@pytest.mark.parametrize("names", ["AAB", "AAA"])
def test_a_rank_with_another_token_is_told_everywhere(
    names, token, by_others, by_itself
):
    tokens = [TOKEN, TOKEN, token]
    results = run_ranks(token_ranks.join, 3, env=LOOPBACK, names=names, tokens=tokens)
    for text, seconds in results[:2]:
        assert f"rank 2: its record in the store {by_others}" in text
        assert "DISTLITE_TOKEN" in text
        assert seconds < SOON
    text, seconds = results[2]
    assert f"rank 0: its record in the store {by_itself}" in text
    assert seconds < SOON
    assert not any(TOKEN in text for text, _ in results)


@pytest.mark.parametrize("token", ["another", None])
def test_who_waits_for_a_rank_that_the_store_turns_away_is_told(token):
    url = f"tcp://127.0.0.1:{reserve_port()}"
    limit = timedelta(seconds=3)
    (waited, _), (refused, seconds) = run_ranks(
        token_ranks.join,
        2,
        init_method=url,
        names="AA",
        tokens=[TOKEN, token],
        limit=limit,
    )
    assert "DISTLITE_TOKEN" in refused
    assert seconds < limit.total_seconds()
    assert "waiting for rank 1, which has not joined" in waited
    assert "turned away 1 connection without the job's token or TLS" in waited


@pytest.mark.parametrize("is_passed", [False, True])
def test_strangers_are_refused_and_harm_nobody(is_passed, tmp_path):
    results = run_ranks(
        token_ranks.strangers,
        3,
        env=LOOPBACK,
        names="AAB",
        path=str(tmp_path / "store"),
        is_passed=is_passed,
    )
    for told in results:
        assert len(told) == 3
        assert all("this rank asks for the job's token" in text for text in told)


@pytest.mark.parametrize("tls", ["off", "psk"])
@pytest.mark.parametrize(("names", "victim"), [("ABC", 2), ("AAB", 0), ("ABB", 1)])
def test_a_killed_rank_is_named_over_proved_links(names, victim, tls):
    outcomes = rank_outcomes(
        token_ranks.die,
        3,
        env={**LOOPBACK, "DISTLITE_TLS": tls},
        names=names,
        victim=victim,
    )
    for outcome in outcomes:
        if outcome.rank != victim:
            assert outcome.is_good, outcome.describe()
            text, seconds = outcome.value
            assert f"rank {victim} (pid" in text
            assert "exited or was killed" in text or "exited, was killed" in text
            assert seconds < SOON


@pytest.mark.parametrize("names", ["AAB", "ABC"])
def test_links_with_tls_carry_everything(names):
    env = {**LOOPBACK, "DISTLITE_TLS": "psk"}
    run_ranks(token_ranks.encrypted, 3, env=env, names=names)


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Certificates]:
    if shutil.which("openssl") is None:
        pytest.skip("the command openssl makes the certificates")
    yield Certificates(tmp_path_factory.mktemp("certificates"))


class Certificates:
    """Two authorities, and a key and certificate of each."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        for name in ("ours", "theirs"):
            self._make(f"ca-{name}", "-x509")
            self._make(
                name, "-x509", "-CA", f"ca-{name}.pem", "-CAkey", f"ca-{name}.key"
            )

    def _make(self, name: str, *how: str) -> None:
        command = ["openssl", "req", "-new", "-newkey", "ec", "-nodes", "-days", "2"]
        command += ["-pkeyopt", "ec_paramgen_curve:P-256", "-subj", f"/CN={name}"]
        command += ["-keyout", f"{name}.key", "-out", f"{name}.pem", *how]
        subprocess.run(
            command, cwd=self._folder, check=True, capture_output=True, timeout=60
        )

    def settings(self, own: str, authority: str) -> dict[str, str]:
        prefix = "GLOO_DEVICE_TRANSPORT_TCP_TLS_"
        return {
            "GLOO_DEVICE_TRANSPORT": "TCP_TLS",
            f"{prefix}PKEY": str(self._folder / f"{own}.key"),
            f"{prefix}CERT": str(self._folder / f"{own}.pem"),
            f"{prefix}CA_FILE": str(self._folder / f"ca-{authority}.pem"),
        }


def join_with(settings: list[dict[str, str]]) -> list[tuple[float | str, float]]:
    found: list[tuple[float | str, float]] = run_ranks(
        token_ranks.join_with, 3, env=LOOPBACK, names="AAB", settings=settings
    )
    return found


@pytest.mark.parametrize("token", [None, TOKEN])
def test_certificates_prove_ranks_to_each_other(certificates, token):
    settings = certificates.settings("ours", "ours")
    if token is not None:
        settings["DISTLITE_TOKEN"] = token
    assert [total for total, _ in join_with([settings] * 3)] == [3.0] * 3


def test_tcp_tls_with_a_token_alone_takes_its_key():
    settings = {"GLOO_DEVICE_TRANSPORT": "TCP_TLS", "DISTLITE_TOKEN": TOKEN}
    assert [total for total, _ in join_with([settings] * 3)] == [3.0] * 3


def test_a_certificate_of_another_authority_is_told_everywhere(certificates):
    ours = certificates.settings("ours", "ours")
    for text, seconds in join_with(
        [ours, ours, certificates.settings("theirs", "theirs")]
    ):
        assert isinstance(text, str)
        assert "certificate" in text and "GLOO_DEVICE_TRANSPORT_TCP_TLS_CA" in text
        assert seconds < SOON


def test_a_missing_certificate_is_told_everywhere(certificates, tmp_path):
    ours = certificates.settings("ours", "ours")
    missing = {**ours, "GLOO_DEVICE_TRANSPORT_TCP_TLS_CERT": str(tmp_path / "none")}
    for text, seconds in join_with([ours, ours, missing]):
        assert isinstance(text, str)
        assert "rank 2 (pid " in text
        assert "GLOO_DEVICE_TRANSPORT_TCP_TLS_CERT=" in text and "none" in text
        assert seconds < SOON


@pytest.mark.parametrize(
    ("others", "own", "says"),
    [
        ({"DISTLITE_TLS": "psk"}, {}, 'rank 2 (pid {} "off"'),
        ({}, {"GLOO_DEVICE_TRANSPORT": "TCP_TLS"}, 'rank 2 (pid {} "psk"'),
    ],
)
def test_ranks_that_encrypt_differently_are_told_everywhere(others, own, says):
    token = {"DISTLITE_TOKEN": TOKEN}
    before, after = says.split(" {} ")
    for text, seconds in join_with([token | others] * 2 + [token | own]):
        assert isinstance(text, str)
        assert "needs the same DISTLITE_TLS and GLOO_DEVICE_TRANSPORT" in text
        assert before in text and text.index(before) < text.index(after)
        assert seconds < SOON


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"GLOO_DEVICE_TRANSPORT": "UV"}, "is not supported"),
        (
            {"GLOO_DEVICE_TRANSPORT": "TCP_TLS", "DISTLITE_TLS": "off"},
            "contradict each other",
        ),
        ({"GLOO_DEVICE_TRANSPORT": "TCP_TLS"}, "GLOO_DEVICE_TRANSPORT_TCP_TLS_PKEY"),
        ({"DISTLITE_TLS": "psk"}, "DISTLITE_TOKEN"),
    ],
)
def test_settings_that_cannot_be_are_told(settings, says):
    for text, seconds in join_with([settings] * 3):
        assert isinstance(text, str)
        assert says in text
        assert seconds < SOON
