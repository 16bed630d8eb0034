# SPDX-License-Identifier: BSD-3-Clause
"""Functional collectives give the kind of array that they are given."""

from __future__ import annotations

import functional_kinds_ranks
import pytest

from distlite.testing import run_ranks


def test_torch():
    pytest.importorskip("torch")
    run_ranks(functional_kinds_ranks.torch_tensors, 2)
    run_ranks(functional_kinds_ranks.torch_neighbours, 2)


def test_jax():
    pytest.importorskip("jax")
    run_ranks(functional_kinds_ranks.jax_arrays, 2)
    run_ranks(functional_kinds_ranks.without_wide_numbers, 2)
