# SPDX-License-Identifier: BSD-3-Clause
"""The object code of the reductions: ranks may have processors of different kinds."""

import platform
import re
import shutil
import subprocess

import pytest

from distlite import _C

# a * b + c with one rounding, in the assemblers' words.
JOINED = re.compile(r"\b(?:vfn?m(?:add|sub)\w*|fn?m(?:add|sub)|fml[as])\b")


@pytest.mark.skipif(shutil.which("objdump") is None, reason="needs objdump")
@pytest.mark.skipif(
    platform.machine() not in ("x86_64", "aarch64"), reason="knows two assemblers"
)
def test_no_product_is_joined_with_the_sum_behind_it():
    assert JOINED.search("vfmaddsub231ps (%rdx),%zmm1,%zmm0")
    assert JOINED.search("fmla v0.4s, v1.4s, v2.4s")
    command = ["objdump", "-d", "--no-show-raw-insn", _C.__file__]
    listing = subprocess.run(command, capture_output=True, text=True, check=True)
    assert len(listing.stdout) > 1_000_000
    joined = [line for line in listing.stdout.splitlines() if JOINED.search(line)]
    assert joined == []
