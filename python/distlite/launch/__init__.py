# SPDX-License-Identifier: BSD-3-Clause
"""Starts the ranks of a job on one host and looks after them until all have ended.

command        the command line ``distlite`` and its subcommands
table          the options of ``distlite run``
options        what it was asked to do
arguments      the same as a parser, for programs that launch
cores          how many cores this process may use, and which are a rank's
numa           which are a rank's by the host's NUMA nodes
nodes          the launchers of the other nodes
place          where this node stands among them
environment    the variables that each rank finds set
files          the folder of the ranks' files
errors         what a rank writes down about its end
output         how the ranks' output becomes one output
worker         one rank's process
guardian       ends the ranks when the launcher itself is killed
attempt        the loop over the ranks, from their start to their end
supervisor     the job: as many attempts as it takes
report         what is said about a job that failed
"""

from distlite.launch.errors import record

__all__ = ["record"]


def __dir__() -> list[str]:
    return __all__
