# SPDX-License-Identifier: BSD-3-Clause
"""`python -m distlite` is the command `distlite`."""

import sys

from distlite.launch.command import main

sys.exit(main())
