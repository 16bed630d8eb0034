# SPDX-License-Identifier: BSD-3-Clause
"""Groups and stores over several hosts, each with a network stack of its own."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path

import collective_ranks
import hosts_ranks
import netns
import pytest
from workers import SOON, rank_outcomes, run_ranks


@pytest.fixture(autouse=True)
def _only_where_possible() -> None:
    netns.skip_unless_possible()


@pytest.fixture
def two() -> Iterator[list[netns.Host]]:
    """Ranks 0 and 1 on the first host, 2 and 3 on the second."""
    with netns.Network(2) as network:
        first, second = network.hosts
        yield [first, first, second, second]


def test_two_hosts_add_up(two):
    address = two[0].address
    results = run_ranks(hosts_ranks.just_join, 4, hosts=two, address=address)
    assert results == [6.0] * 4


@pytest.mark.slow
def test_all_operations_on_two_hosts(two):
    address = two[0].address
    found = run_ranks(
        hosts_ranks.all_operations, 4, hosts=two, address=address, timeout=180
    )
    assert all(bits == found[0] for bits in found)


@pytest.mark.slow
def test_all_operations_on_three_uneven_hosts():
    with netns.Network(3) as network:
        a, b, c = network.hosts
        hosts = [a, b, a, c, b, b]
        found = run_ranks(
            hosts_ranks.all_operations, 6, hosts=hosts, address=a.address, timeout=180
        )
    assert all(bits == found[0] for bits in found)


@pytest.mark.slow
def test_all_operations_with_a_rank_per_host():
    with netns.Network(2, ipv4=False) as network:
        first, second = network.hosts
        run_ranks(
            hosts_ranks.all_operations,
            2,
            hosts=[first, second],
            address=first.address6,
            timeout=120,
        )


@pytest.mark.slow
def test_every_form_of_movement_on_three_uneven_hosts():
    """As on one host, over IPv6."""
    with netns.Network(3, ipv4=False) as network:
        a, b, c = network.hosts
        found = run_ranks(
            collective_ranks.movement_grid,
            6,
            hosts=[a, b, a, c, b, b],
            init_method=f"tcp://[{a.address6}]:{hosts_ranks.PORT}",
            timeout=180,
        )
    assert found == [[]] * 6


@pytest.mark.slow
def test_every_reduction_on_three_uneven_hosts():
    """Where hosts are folded in the order in which the ranks of one host are: even the
    signs of zeros are the same."""
    with netns.Network(3) as network:
        a, b, c = network.hosts
        found = run_ranks(
            collective_ranks.reduction_grid,
            4,
            hosts=[a, a, b, c],
            init_method=f"tcp://{a.address}:{hosts_ranks.PORT}",
            timeout=180,
        )
    assert found == [[]] * 4


@pytest.mark.slow
def test_groups_over_hosts(two):
    results = run_ranks(hosts_ranks.groups, 4, hosts=two, address=two[0].address)
    assert results == [[3.0, 1.0], [6.0, 1.0], [6.0], [3.0, 6.0]]


def test_a_mismatch_between_hosts_is_told_everywhere(two):
    address = two[0].address
    results = run_ranks(hosts_ranks.mismatch, 4, hosts=two, address=address)
    for text, seconds in results:
        assert "broadcast(3 x float64, from rank 0)" in text
        assert "rank 3 called all_reduce(3 x float64, SUM)" in text
        assert seconds < SOON


@pytest.mark.slow
@pytest.mark.parametrize("victim", [0, 2, 3])
def test_a_killed_rank_is_named_on_all_hosts(two, victim):
    outcomes = rank_outcomes(
        hosts_ranks.die, 4, hosts=two, address=two[0].address, victim=victim
    )
    for outcome in outcomes:
        if outcome.rank != victim:
            assert outcome.is_good, outcome.describe()
            text, seconds = outcome.value
            assert f"rank {victim} (pid" in text
            assert "exited or was killed" in text or "exited, was killed" in text
            assert seconds < SOON


@pytest.mark.slow
def test_a_late_rank_is_named_on_all_hosts(two):
    results = run_ranks(
        hosts_ranks.late, 4, hosts=two, address=two[0].address, sleeper=3
    )
    for text, seconds in results[:3]:
        assert "rank 3 (pid" in text and "has not called it" in text
        assert seconds < 2 + SOON
    # The first to give up has waited; others may have come later.
    assert max(seconds for _, seconds in results[:3]) > 1.9


@pytest.mark.slow
@pytest.mark.parametrize("victim", [1, 3])
def test_a_stopped_rank_is_named_on_all_hosts(two, victim):
    results = run_ranks(
        hosts_ranks.stop, 4, hosts=two, address=two[0].address, victim=victim
    )
    for rank, (who, text) in enumerate(results):
        if rank != victim:
            assert "all_reduce #2 in group 0 timed out after 2000ms" in text, text
            assert f"{who}{two[victim].name})" in text, text


@pytest.mark.slow
@pytest.mark.parametrize(
    ("how", "victim", "late"),
    [("interrupt", 0, 1), ("interrupt", 3, 1), ("abort", 1, 3), ("abort", 3, 2)],
)
def test_who_gives_up_an_operation_is_named_on_all_hosts(two, how, victim, late):
    own = {"interrupt": "KeyboardInterrupt: ", "abort": "aborted"}[how]
    results = run_ranks(
        hosts_ranks.give_up,
        4,
        hosts=two,
        address=two[0].address,
        victim=victim,
        late=late,
        how=how,
    )
    for rank, (text, delay) in enumerate(results):
        assert (own if rank == victim else f"rank {victim} ") in text, text
        assert delay < (0.1 if rank == victim else 1), (rank, delay)


@pytest.mark.slow
def test_a_link_that_is_cut_is_a_timeout_that_names_the_rank(tmp_path: Path):
    flag = tmp_path / "running"
    with netns.Network(2) as network:
        first, second = network.hosts
        cutter = threading.Thread(target=_unplug_when, args=(flag, second))
        cutter.start()
        texts = run_ranks(
            hosts_ranks.cut,
            2,
            hosts=[first, second],
            address=first.address,
            flag=str(flag),
        )
        cutter.join()
    for rank, text in enumerate(texts):
        assert f"rank {1 - rank} (pid" in text, text
        assert "timed out" in text or "cannot be reached" in text


@pytest.mark.slow
@pytest.mark.parametrize("call", ["late", "recv", "large"])
def test_a_host_that_falls_silent_is_named_long_before_the_timeout(call, tmp_path):
    flag = tmp_path / "running"
    with netns.Network(2) as network:
        cutter = threading.Thread(target=_unplug_when, args=(flag, network.hosts[1]))
        cutter.start()
        texts = run_ranks(
            hosts_ranks.lose_host,
            2,
            hosts=network.hosts,
            address=network.hosts[0].address,
            flag=str(flag),
            call=call,
        )
        cutter.join()
    for rank, text in enumerate(texts):
        assert f"rank {1 - rank} (pid" in text, text
        assert "cannot be reached at 10." in text, text


@pytest.mark.slow
def test_a_process_that_is_stopped_is_not_a_silent_host():
    with netns.Network(2) as network:
        found = run_ranks(
            hosts_ranks.stop_for_long,
            2,
            hosts=network.hosts,
            address=network.hosts[0].address,
            env={"DISTLITE_HEARTBEAT_TIMEOUT": "1"},
            seconds=5,
        )
    assert found == [4.0, 4.0]


def _unplug_when(flag: Path, host: netns.Host) -> None:
    deadline = time.monotonic() + 60
    while not flag.exists() and time.monotonic() < deadline:
        time.sleep(0.02)
    host.unplug()


def test_loopback_between_hosts_is_told_with_a_table():
    with netns.Network(2) as network:
        first, second = network.hosts
        results = run_ranks(
            hosts_ranks.fail_to_join,
            2,
            hosts=[first, second],
            address=first.address,
            env={"GLOO_SOCKET_IFNAME": "lo"},
        )
    for text, seconds in results:
        assert "the ranks are on different hosts" in text
        assert "on host host1) at 127.0.0.1:" in text
        assert "on host host2) at 127.0.0.1:" in text
        assert seconds < SOON


@pytest.mark.slow
@pytest.mark.parametrize("wish", ["eth0", "10.77.0.0/16"])
def test_interfaces_are_chosen(wish):
    with netns.Network(2) as network:
        first, second = network.hosts
        results = run_ranks(
            hosts_ranks.just_join,
            2,
            hosts=[first, second],
            address=first.address,
            env={"GLOO_SOCKET_IFNAME": wish},
        )
    assert results == [1.0, 1.0]


@pytest.fixture
def debian(tmp_path: Path) -> Iterator[list[netns.Host]]:
    """Two hosts, each of which finds itself at loopback by its name."""
    with netns.Network(2) as network:
        network.name_hosts_as_debian(tmp_path)
        yield network.hosts


def test_a_host_s_own_name_may_be_loopback(debian):
    results = run_ranks(hosts_ranks.just_join, 2, hosts=debian, address=debian[0].name)
    assert results == [1.0, 1.0]


def test_rank_0_may_call_its_host_localhost(debian):
    results = run_ranks(
        hosts_ranks.join_by_own_words,
        2,
        hosts=debian,
        addresses=["localhost", debian[0].name],
        env={"LOCAL_WORLD_SIZE": "1"},
    )
    assert results == [1.0, 1.0]


@pytest.mark.slow
def test_a_name_that_becomes_known_later_is_waited_for(debian, tmp_path: Path):
    name = "master.example"
    results = run_ranks(
        hosts_ranks.join_by_own_words,
        2,
        hosts=debian,
        addresses=[name, name],
        lines={debian[n].hosts_file: f"{debian[0].address} {name}" for n in range(2)},
    )
    assert results == [1.0, 1.0]


@pytest.mark.slow
def test_a_failed_join_names_the_cause(debian):
    texts = run_ranks(
        hosts_ranks.fail_to_join_by_own_words,
        2,
        hosts=debian,
        addresses=["127.0.0.1", debian[0].name],
    )
    assert "the store listens at 127.0.0.1 only" in texts[0]
    assert "10.77.0.1:29500 Connection refused" in texts[1]
    assert "loopback on the master itself" in texts[1]


def test_what_was_sent_arrives_though_the_sender_is_gone(two):
    for host in two[1:3]:
        # So that the kernel cannot take the end of a message at once.
        for name in ("tcp_wmem", "tcp_rmem"):
            script = f"echo 4096 16384 16384 > /proc/sys/net/ipv4/{name}"
            host.run("sh", "-c", script)
    outcomes = rank_outcomes(
        hosts_ranks.exit_after_send, 2, hosts=two[1:3], address=two[0].address
    )
    assert outcomes[1].is_good, outcomes[1].describe()


def test_listed_interfaces_share_the_traffic():
    interfaces = ["eth0", "eth1"]
    with netns.Network(2, cables=2) as network:
        first, second = network.hosts
        results = run_ranks(
            hosts_ranks.count_traffic,
            2,
            hosts=[first, second],
            address=first.address,
            interfaces=interfaces,
            env={"GLOO_SOCKET_IFNAME": ",".join(interfaces)},
        )
    for before, reduced, sent in results:
        for start, end in ((before, reduced), (reduced, sent)):
            both = [stop - began for began, stop in zip(start, end, strict=True)]
            assert sum(both) > 32e6
            assert max(both) < 1.1 * min(both), both


def test_settings_that_cannot_be_had_are_an_error_on_one_host():
    for name, value in (("SOCKET_IFNAME", "eth7"), ("DEVICE_TRANSPORT", "UV")):
        results = run_ranks(
            hosts_ranks.fail_to_set_up, 2, variable=f"GLOO_{name}", value=value
        )
        for rank, text in enumerate(results):
            assert f"GLOO_{name}={value}" in text, text
            assert "rank 1 (pid" in text, (rank, text)


@pytest.mark.slow
def test_a_wrong_interface_is_told_with_those_there_are():
    with netns.Network(2) as network:
        first, second = network.hosts
        results = run_ranks(
            hosts_ranks.fail_to_join,
            2,
            hosts=[first, second],
            address=first.address,
            env={"GLOO_SOCKET_IFNAME": "eth7,lo"},
        )
    for text, _ in results:
        assert "rank 0 (pid" in text
        assert (
            "GLOO_SOCKET_IFNAME=eth7,lo: no interface that is up on this host" in text
        )
        assert "is named eth7" in text
        assert "eth0 10.77.0.1" in text


def test_messages_between_hosts(two):
    results = run_ranks(hosts_ranks.messages, 4, hosts=two, address=two[0].address)
    assert results[0] == 60


@pytest.mark.slow
def test_a_sender_that_died_is_named(two):
    address = two[0].address
    outcomes = rank_outcomes(hosts_ranks.lose_a_sender, 4, hosts=two, address=address)
    assert outcomes[0].is_good, outcomes[0].describe()
    assert "recv from rank 3 (pid" in outcomes[0].value
    assert "exited or was killed" in outcomes[0].value


@pytest.mark.parametrize("usurps", [False, True])
def test_only_clients_of_the_servers_host_take_its_unix_socket(two, usurps: bool):
    where = {"address": two[0].address, "usurps": usurps}
    found = run_ranks(hosts_ranks.count_in_store, 4, hosts=two, **where)
    assert [after - before for before, after in found] == [0, 1, 0, 0]
