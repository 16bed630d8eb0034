# SPDX-License-Identifier: BSD-3-Clause
"""torch's option structs: fields and defaults."""

from datetime import timedelta

import pytest

import distlite
from distlite import ReduceOp

ROOT = {"rootRank": 0}
ROOT_TENSOR = {"rootRank": 0, "rootTensor": 0}
REDUCTION = {"reduceOp": ReduceOp.SUM}
FIELDS = {
    "AllreduceOptions": REDUCTION,
    "AllreduceCoalescedOptions": REDUCTION,
    "ReduceScatterOptions": REDUCTION,
    "BroadcastOptions": ROOT_TENSOR,
    "ReduceOptions": REDUCTION | ROOT_TENSOR,
    "GatherOptions": ROOT,
    "ScatterOptions": ROOT,
    "AllgatherOptions": {},
    "AllToAllOptions": {},
    "BarrierOptions": {"device_ids": [], "device": None},
}


@pytest.mark.parametrize("name", FIELDS)
def test_fields_and_defaults(name):
    options = getattr(distlite, name)()
    expected = {"timeout": timedelta(milliseconds=-1), "asyncOp": True} | FIELDS[name]
    assert vars(options) == expected


def test_each_has_its_own():
    first, second = distlite.BarrierOptions(), distlite.BarrierOptions()
    first.device_ids.append(1)
    assert second.device_ids == []
