# SPDX-License-Identifier: BSD-3-Clause
"""Starts the ranks of a job on one host and watches them until all have ended.

command        the command line ``distlite`` and its subcommands
arguments      the parser of the command line
options        one node's part of a job, made of what was parsed
cores          how many cores this process may use
numa           a rank's cores by the host's NUMA nodes
nodes          the launchers of the other nodes
open_nodes     the same where nodes come and go
rounds         the same where all ranks are restarted then
master         the addresses of the store
environment    the variables that each rank gets
errors         what a failed rank tells, and which one is the cause, also for spawn
output         merges the ranks' output into one
rank_process   what starting processes has in common, also for spawn and testing
worker         the process of one rank
signals        a pipe by which a loop polls for signals
attempt        the loop over the ranks, from their start to their end
supervisor     the job: attempts, until one succeeds or none is left
"""

from distlite.launch.errors import record

__all__ = ["record"]
