# SPDX-License-Identifier: BSD-3-Clause
"""Whether objects may be pickled: what DISTLITE_OBJECTS says, and who the ranks are.

Loading a pickle runs code that its sender chose, so the sender has to be a rank of this
job.  A rank is proved if it runs as the same user on this host, or has proved the job's
token.
"""

from __future__ import annotations

from .. import _C
from .._C import DistBackendError
from .._environment import OBJECTS_VARIABLE, objects_setting
from .object_headers import PROVED, SAFE, Call
from .object_message import failure

__all__ = ["judge"]

# Objects go through the CPU backend, whose ranks have proved the token.
WITH_TOKEN = ("cpu", "gloo", "mpi", "nccl")
REMEDY = (
    "DISTLITE_OBJECTS=safe sends data only, and DISTLITE_OBJECTS=pickle is for "
    "networks on which everybody is trusted"
)

_has_warned = False


def judge(call: Call, is_safe: bool, peer: int) -> None:
    """Chooses how the objects of a call travel, and refuses the call if they may not.

    Args:
        call: It gets its kind, and a refusal, which the caller tells the other ranks.
        is_safe: Whether the call asks for safe mode.
        peer: The rank that the objects come from or go to; -1: all ranks.
    """
    global _has_warned
    setting = objects_setting()
    if is_safe or setting == "safe":
        call.kind = SAFE
        if not is_safe:
            call.refusal = failure(
                ValueError(
                    f"{call.where()}: {OBJECTS_VARIABLE}=safe allows no pickle, which "
                    "this call or set_safe_objects(False) asks for"
                )
            )
        return
    if setting == "proved":
        call.kind = PROVED
    elif setting == "pickle" or _has_warned:
        return
    if call.group._is_proved(peer):
        return
    if setting == "proved":
        text = f"{OBJECTS_VARIABLE}=proved refuses pickles: {_reason(call, peer)}"
        call.refusal = failure(DistBackendError(f"{call.where()}: {text}"), text)
    elif peer >= 0 or call.rank == 0:
        # Of a collective's ranks only rank 0 warns, whose log is usually read.
        _has_warned = True
        _C._log_warning(
            f"{call.where()}: {_reason(call, peer)}, and loading a pickle runs code "
            f"that its sender chose; {REMEDY}"
        )


def _reason(call: Call, peer: int) -> str:
    backend = call.group.name()
    if backend not in WITH_TOKEN and ":" not in backend:
        return f"backend {backend} cannot prove that a rank is one of this job"
    who = "the ranks on other hosts" if peer < 0 else f"rank {peer} on another host"
    return (
        f"nothing proves that {who} {'are' if peer < 0 else 'is'} of this job: set "
        "DISTLITE_TOKEN on all of its processes"
    )
