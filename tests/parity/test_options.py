# SPDX-License-Identifier: BSD-3-Clause
"""The option structs are torch's, field by field."""

import pytest

import distlite
from distlite.groups import options

distributed_c10d = pytest.importorskip("torch.distributed.distributed_c10d")


@pytest.mark.parametrize("name", options.__all__)
def test_fields_and_defaults(name):
    theirs, ours = getattr(distributed_c10d, name)(), getattr(distlite, name)()
    assert sorted(vars(ours)) == [each for each in dir(theirs) if each[0] != "_"]
    for field in set(vars(ours)) - {"reduceOp"}:
        assert getattr(ours, field) == getattr(theirs, field)
    if "reduceOp" in vars(ours):
        assert int(ours.reduceOp.op) == int(theirs.reduceOp.op)
