# SPDX-License-Identifier: BSD-3-Clause
"""Each attack stays within its bound; `make hostile` shows a table."""

from __future__ import annotations

import hostile
import pytest

pytestmark = pytest.mark.slow


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        (name, kind)
        for name, (_, bound) in hostile.ATTACKS.items()
        for kind in bound.kinds
    ],
)
def test_an_attack_stays_within_its_bound(name: str, kind: str):
    cost = hostile.measure(name, kind)
    assert not cost.excess(hostile.ATTACKS[name][1]), hostile.line(name, kind, cost)
