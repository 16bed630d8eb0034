# SPDX-License-Identifier: BSD-3-Clause
"""Starts the ranks of a job on one host and looks after them until all have ended.

command        the command line ``distlite`` and its subcommands
options        what ``distlite run`` was asked to do
cores          how many cores this process may use
environment    the variables that each rank finds set
output         how the ranks' output becomes one output
worker         one rank's process
guardian       ends the ranks when the launcher itself is killed
supervisor     the loop over all of it
report         what is said about a job that failed
"""
