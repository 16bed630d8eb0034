# SPDX-License-Identifier: BSD-3-Clause
"""Process groups: making and leaving them, their backends, and collectives.

lifecycle           making and leaving the default group
check_in            waits until all ranks of a job have come, and compares world sizes
world               this process's groups, and the functions that describe them
subgroups           new_group and new_subgroups
regroup             groups made from a group: its parts, or all but lost ranks
agreement           one answer for all members that live
shrink_check        compares which ranks the survivors leave out
backends            the names of backends, and the devices that they serve
dispatch            groups with a registered backend for some kinds of devices
custom              groups whose operations are written in Python
group_methods       methods of ProcessGroup beside those of the extension
group_devices       methods of ProcessGroup that are about devices
options             torch's option structs
process_group_gloo  torch's class of that name
nccl, mpi           what these backends need in Python
reduce_op           ReduceOp
reducers            reductions without a kernel: MINLOC, MAXLOC and functions
collectives         collectives made of others
coalescing          calls collected by a context manager
packing             coalesced calls as one operation over packed data
p2p                 probes, sendrecv, and batches of sends and receives
compat, internals   rare and private names of torch.distributed
"""
