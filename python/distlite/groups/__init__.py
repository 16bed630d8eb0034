# SPDX-License-Identifier: BSD-3-Clause
"""Process groups: making and leaving them, their backends, and calls made of others.

lifecycle           the default group, from init_process_group to its end
check_in            all ranks of a job have come, and agree on its size
world               this process's groups, and what is asked about them
subgroups           new_group and its kin
regroup             groups out of a group: parts, and what is left without lost ranks
shrink_check        which ranks may be left out
backends            the names of backends, and what serves which devices
dispatch            groups with a backend of its own for some kinds of devices
custom              groups whose operations are written in Python
group_methods       methods of ProcessGroup beside those of the extension
group_devices       those of its devices
options             torch's option structs
process_group_gloo  torch's class of that name
nccl, mpi           what these backends need in Python
reduce_op           ReduceOp
collectives         collectives made of others
coalescing          calls collected by a context manager
packing             coalesced calls as one operation over packed data
p2p                 batches of sends and receives
compat, internals   rare and private names of torch.distributed
"""
