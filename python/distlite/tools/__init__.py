# SPDX-License-Identifier: BSD-3-Clause
"""Looking at jobs from outside.  Nothing here is imported before it is used.

recording   what the recorder of a process holds, as objects
job         the ranks of a job together: who is in what, and who waits for whom
failure     what is written when an operation timed out or lost a peer
ps          ``distlite ps``
trace       ``distlite trace``
dump        recordings in files
doctor      ``distlite doctor``: facts, links, and in diagnosis what follows from them
text        tables for people

Of a process itself:

debugger         the debugger of distlite.breakpoint()
log_records      lines of the log as records of the logger "distlite"
profiler_events  operations as events of torch's profiler
"""
