# SPDX-License-Identifier: BSD-3-Clause
"""The page of the manual that shows commands on two hosts: each is run there."""

from __future__ import annotations

import shutil
from pathlib import Path

import netns
import pytest
from pages import DOCS, run_page


@pytest.mark.slow
@pytest.mark.limit(300)
def test_the_page_of_several_hosts(tmp_path: Path) -> None:
    netns.skip_unless_possible()
    if shutil.which("nft") is None:
        pytest.skip("nft, to make a firewall, is not installed")
    programs = tmp_path / "programs"
    programs.mkdir()
    with netns.Network(2, cables=2) as network:
        network.name_hosts_as_debian(tmp_path)
        hosts = {host.name: host for host in network.hosts}
        assert run_page(DOCS / "tutorials/several-hosts.md", programs, hosts) == []
