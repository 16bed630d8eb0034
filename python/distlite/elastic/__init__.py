# SPDX-License-Identifier: BSD-3-Clause
"""Members: groups that lose, replace and gain processes while the program goes on.

A world is a name in a store. Its history is a row of epochs, each with one list of
members and one process group, and one record in the store: the key `epoch`, which
nobody writes but by compare_set on the record before. So there is one list for each
number, whoever proposes it, and a proposal that comes late changes nothing.

    key below elastic/NAME    written by
    epoch                     the record: whoever comes first, with an identity of the
                              store, and then members that propose, by compare_set
    arrivals/E                those that want to be in the epoch after E: a line each
    called/E, decided/E       the first member that arrives wakes those that wait as
                              newcomers, the proposer all
    asked/E                   newcomers: the members of E shall come
    finished                  a member: the work is done, nobody joins any more
    beat/ID                   those that wait, so that the dead are not taken
    group/E/...               the members of E, while they make its group

A member that has seen an error arrives, and leaves the old group, so that the others
see one, too. Those that have arrived wait for the other members of the last epoch,
except those that have left or whose process has ended (ledger.py), and no longer than
`settle` after the latest arrival. Then each of them proposes what it knows, and all
take the list that was first (ledger.py). A member of the last epoch that is not in it
is evicted: it learns so from the record at its next call, and the old group, which is
all that it has, has lost the others. The group of an epoch is made of keys of its own,
so no board, ring, link or window of an earlier one belongs to it.

A record also says which step was committed last. All members of an epoch have executed
the body of a step before any of them can have seen its flags, so if one of the
survivors has seen them, the step is committed for all of them, and else for none.

While the store is the same, its compare_set decides between survivors that do not see
each other. Where it was replaced (another identity, or a record older than a member's
own), nobody can know what became of the others, and a majority of the last epoch has to
come.
"""

from .jobs import Job, JobQueue
from .ledger import Evicted, Finished
from .member import Member, View, join

__all__ = ["Evicted", "Finished", "Job", "JobQueue", "Member", "View", "join"]
