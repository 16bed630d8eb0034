# SPDX-License-Identifier: BSD-3-Clause
"""Tools that show the state of jobs.  Nothing here is imported before it is used.

recording    reads the contents of a process's recorder as objects
job          the ranks of a job: what each does, and which ranks it waits for
table        the operations of a job's ranks as rows of text
failure      writes that table after a timeout, the loss of a peer or a different call
ps           ``distlite ps``
trace        ``distlite trace``
dump         writes recordings to files
doctor       ``distlite doctor``: collects facts, tests links and writes the diagnosis
facts        what a rank finds out about its host
links        whether pairs of ranks can connect, and how fast
diagnosis    problems in the facts of all ranks
store_facts  the statistics of the server of a job's store
worlds       the elastic worlds in a job's store
text         tables for terminals and files

In a process itself:

debugger         the debugger of distlite.breakpoint()
log_capture      lines of the log as records of the logger "distlite"
profiler_events  operations as events of torch's profiler
"""
