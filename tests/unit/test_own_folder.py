# SPDX-License-Identifier: BSD-3-Clause
"""Temporary folders of the tests."""

import os
import subprocess
import sys

from own_folder import own_folder


def test_a_folder_goes_with_its_block_or_if_that_is_killed_with_the_next(tmp_path):
    source = (
        "import os; from own_folder import own_folder\n"
        f"with own_folder('test-', {str(tmp_path)!r}): os.kill(os.getpid(), 9)"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    subprocess.run([sys.executable, "-c", source], env=environment, check=False)
    [left] = tmp_path.iterdir()
    with own_folder("test-", str(tmp_path)) as folder:
        assert not left.exists()
        with own_folder("test-", str(tmp_path)):
            assert os.path.isdir(folder)
    assert not list(tmp_path.iterdir())
