# SPDX-License-Identifier: BSD-3-Clause
"""batch(): the operations on devices of a block, in a process without devices."""

from __future__ import annotations

import pytest

from distlite import _C, DistBackendError
from distlite.groups.nccl import batch


def test_the_body_s_exception_comes_before_that_of_the_batch(monkeypatch):
    def end(group, is_dropped):
        assert is_dropped
        raise DistBackendError("NCCL has failed")

    monkeypatch.setattr(_C, "_batch_begin", lambda group: None)
    monkeypatch.setattr(_C, "_batch_end", end)
    with pytest.raises(ZeroDivisionError), batch(None):
        raise ZeroDivisionError
