# SPDX-License-Identifier: BSD-3-Clause
"""Collectives of objects, here and in torch: the same results and complaints."""

import object_parity_ranks
import pytest
from workers import run_ranks

pytest.importorskip("torch", reason="torch, to compare with, is not installed")

# torch is imported by every rank.
pytestmark = pytest.mark.slow

ENV = {"GLOO_SOCKET_IFNAME": "lo", "TORCH_CPP_LOG_LEVEL": "ERROR"}
SLOW_IMPORT = 120


@pytest.mark.limit(300)
@pytest.mark.parametrize("case", ["results", "complaints", "groups"])
def test_objects(case):
    function = getattr(object_parity_ranks, case)
    theirs, ours = (
        run_ranks(function, 2, library=library, env=ENV, timeout=SLOW_IMPORT)
        for library in ("torch.distributed", "distlite")
    )
    assert ours == theirs


def test_signatures():
    import inspect

    import torch.distributed as theirs

    import distlite as ours

    for name in object_parity_ranks.NAMES:
        wanted, found = (
            [
                (each.name, each.default)
                for each in inspect.signature(getattr(of, name)).parameters.values()
            ]
            for of in (theirs, ours)
        )
        assert found == [*wanted, ("safe", None)], name
