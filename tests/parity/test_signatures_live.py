# SPDX-License-Identifier: BSD-3-Clause
"""The recorded signatures are those of the torch that is installed."""

import json

import pytest
import test_signatures

torch = pytest.importorskip("torch", reason="torch, to compare with, is not installed")

pytestmark = pytest.mark.filterwarnings("ignore")


def test_the_table_is_torch_s():
    table = json.loads(test_signatures.TABLE.read_text())
    names = table.pop("names")
    assert test_signatures.names_of(torch.distributed) == names
    assert test_signatures.record(torch.distributed) == table
