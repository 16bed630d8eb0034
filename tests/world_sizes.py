# SPDX-License-Identifier: BSD-3-Clause
"""Numbers of ranks: the smallest and the largest find most errors; the slow tests also
try those between."""

import pytest

_slow = pytest.mark.slow
WORLD_SIZES = [1, pytest.param(2, marks=_slow), pytest.param(3, marks=_slow), 4]
