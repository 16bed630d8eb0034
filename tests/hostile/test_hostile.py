# SPDX-License-Identifier: BSD-3-Clause
"""Each attack stays within its bound, on both servers; `make hostile` shows a table."""

from __future__ import annotations

import hostile
import pytest

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("kind", hostile.SERVERS)
@pytest.mark.parametrize("name", hostile.ATTACKS)
def test_an_attack_stays_within_its_bound(name: str, kind: str):
    cost = hostile.measure(name, kind)
    assert not cost.excess(hostile.ATTACKS[name][1]), hostile.line(name, kind, cost)
