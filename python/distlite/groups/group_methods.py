# SPDX-License-Identifier: BSD-3-Clause
"""The operations of a ProcessGroup as its methods, which are torch's.

They take arrays, or lists with one array in it, then an option struct or its fields,
and return a Work.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any, Literal

from .. import _C
from .._C import ProcessGroup, Work
from ..futures import Future
from .group_devices import attributes
from .packing import (
    Coalesced,
    Target,
    gather_lists,
    gather_singles,
    reduce_all,
    reduce_scatter_singles,
)
from .reduce_op import ReduceOp


class CoalescedWork(Work):
    """Several works that are waited for as one."""

    def __init__(self, begun: Coalesced) -> None:
        super().__init__()
        self.works = begun.works
        self._begun = begun

    def __repr__(self) -> str:
        works = ", ".join(map(repr, vars(self).get("works", ())))
        return f"<distlite.CoalescedWork: [{works}]>"

    def wait(self, timeout: timedelta | float | None = None) -> Literal[True]:
        """Returns True once all works have succeeded; raises the first failure."""
        # Works that are written in Python may take no timeout.
        limit: tuple[timedelta | float, ...] = () if timeout is None else (timeout,)
        began = time.monotonic()
        for i, work in enumerate(self.works):
            # The first work gets the argument as it is, and refuses what is not a
            # timeout.
            if i and timeout is not None:
                limit = (_rest_of(timeout, began),)
            work.wait(*limit)
        self._begun.finish()
        return True

    def is_completed(self) -> bool:
        """Returns whether all works have ended, with or without success."""
        self.is_success()
        return all(work.is_completed() for work in self.works)

    def is_success(self) -> bool:
        """Returns whether all works have succeeded."""
        if not all(work.is_success() for work in self.works):
            return False
        self._begun.finish()
        return True

    def exception(self) -> BaseException | None:
        """Returns the exception of the first work that failed, or None."""
        found = (work.exception() for work in self.works)
        return next((error for error in found if error is not None), None)

    def result(self) -> list[Any]:
        """Returns the output arrays of all works."""
        self.is_success()
        return list(self._begun.outputs)

    def get_future(self) -> Future:
        """Returns a Future of result()."""
        from ..futures import collect_all

        def take(futures: Future) -> list[Any]:
            for each in futures.value():
                each.value()
            return self.result()

        return collect_all([work.get_future() for work in self.works]).then(take)


def _rest_of(timeout: timedelta | float, began: float) -> timedelta | float:
    """Returns the rest of a timeout; 0 and negative ones mean no limit and are kept."""
    took = time.monotonic() - began
    if isinstance(timeout, timedelta):
        left = max(timedelta(milliseconds=1), timeout - timedelta(seconds=took))
        return left if timeout > timedelta(0) else timeout
    return max(0.001, timeout - took) if timeout > 0 else timeout


class _Form:
    """How a call of torch's method becomes a call of the module's function.

    `slots` has a word for each parameter, "function's name=method's name|another one".
    `how` is the function's parameter for an `opts` that is not an option struct.  `one`
    is the parameter whose array may be in a list of one; the list `many` then is in
    such a list as well.
    """

    def __init__(
        self,
        function: str,
        slots: str,
        how: str = "timeout",
        one: str = "",
        many: str = "",
    ) -> None:
        self.function = getattr(_C, function)
        self.slots = [
            (target, (names or target).split("|"))
            for target, _, names in (slot.partition("=") for slot in slots.split())
        ]
        self.how, self.one, self.many = how, one, many

    def signature(self) -> str:
        """Returns the source of a function that does nothing and has the method's
        parameters."""
        words = [names[0] + _DEFAULTS.get(target, "") for target, names in self.slots]
        return f"lambda self, {', '.join(words)}: None"


_DEFAULTS = {
    "input_split_sizes": "=None",
    "op": "=None",
    "opts": "=None",
    "output_split_sizes": "=None",
    "tag": "=0",
    "timeout": "=None",
}

_FORMS = {
    "allreduce": _Form(
        "all_reduce", "tensor=tensors|tensor opts=opts|op timeout", "op", "tensor"
    ),
    "broadcast": _Form(
        "broadcast",
        "tensor=tensors|tensor opts=opts|root timeout",
        "group_src",
        "tensor",
    ),
    "reduce": _Form(
        "reduce",
        "tensor=tensors|tensor opts=opts|root op timeout",
        "group_dst",
        "tensor",
    ),
    "allgather": _Form(
        "all_gather",
        "tensor_list=output_tensors tensor=input_tensors|input_tensor "
        "opts=opts|timeout",
        "timeout",
        "tensor",
        "tensor_list",
    ),
    "gather": _Form(
        "gather",
        "gather_list=output_tensors tensor=input_tensors|input_tensor "
        "opts=opts|root timeout",
        "group_dst",
        "tensor",
        "gather_list",
    ),
    "scatter": _Form(
        "scatter",
        "tensor=output_tensors|output_tensor scatter_list=input_tensors "
        "opts=opts|root timeout",
        "group_src",
        "tensor",
        "scatter_list",
    ),
    "reduce_scatter": _Form(
        "reduce_scatter",
        "output=output_tensors|output input_list=input_tensors|input "
        "opts=opts|op timeout",
        "op",
        "output",
        "input_list",
    ),
    "all_gather_single": _Form(
        "all_gather_single",
        "output_tensor=output|output_tensor input_tensor=input|input_tensor "
        "opts=opts|timeout",
    ),
    "reduce_scatter_single": _Form(
        "reduce_scatter_single",
        "output=outputTensor|output input=inputTensor|input opts=opts|op timeout",
        "op",
    ),
    "alltoall": _Form(
        "all_to_all",
        "output_tensor_list=output_tensors input_tensor_list=input_tensors "
        "opts=opts|timeout",
    ),
    "all_to_all_single": _Form(
        "all_to_all_single",
        "output input output_split_sizes input_split_sizes opts=opts|timeout",
    ),
    "barrier": _Form("barrier", "opts=opts|timeout"),
    "send": _Form("isend", "tensor=tensors|tensor group_dst=dstRank tag", "", "tensor"),
    "recv": _Form("irecv", "tensor=tensors|tensor group_src=srcRank tag", "", "tensor"),
    "recv_anysource": _Form("irecv", "tensor=tensors|tensor tag", "", "tensor"),
}

_ALIASES = {
    "_allgather_base": "all_gather_single",
    "_reduce_scatter_base": "reduce_scatter_single",
    "alltoall_base": "all_to_all_single",
}


def _take(name: str, form: _Form, args: Any, named: dict[str, Any]) -> dict[str, Any]:
    """Returns the arguments by the parameters of the module's function and "opts"."""
    if len(args) > len(form.slots):
        raise TypeError(
            f"{name}() takes at most {len(form.slots)} arguments ({len(args)} given)"
        )
    values = {slot[0]: value for slot, value in zip(form.slots, args, strict=False)}
    for word, value in named.items():
        target = next((t for t, names in form.slots if word in names), None)
        if target is None:
            raise TypeError(
                f"{name}() got an unexpected keyword argument '{word}'; it takes "
                f"torch's arguments and returns a Work. distlite."
                f"{form.function.__name__}(..., group=group) is the module's function"
            )
        if target in values:
            raise TypeError(f"{name}() got two values for argument '{word}'")
        values[target] = value
    return {target: value for target, value in values.items() if value is not None}


def _spread_options(form: _Form, values: dict[str, Any]) -> None:
    """Replaces "opts" by the fields of the option struct, or by what was given in its
    place."""
    how = values.pop("opts", None)
    if hasattr(how, "asyncOp"):
        if root := getattr(how, "rootTensor", 0):
            values["root_tensor"] = root
        values["timeout"] = how.timeout
        if hasattr(how, "reduceOp"):
            values["op"] = how.reduceOp
        how = getattr(how, "rootRank", None)
    if how is not None:
        values[form.how] = how
    if form.how.startswith("group_"):
        values.setdefault(form.how, 0)


# What torch's errors call the lists that hold `one` and `many`, by the name of `many`.
_LISTS = {
    "": ("tensor", ""),
    "gather_list": ("input tensor", "output"),
    "input_list": ("output tensor", "input"),
    "scatter_list": ("output tensor", "input"),
    "tensor_list": ("input tensor", "output"),
}


def _unwrap(form: _Form, values: dict[str, Any]) -> None:
    """Replaces lists of one array by that array."""
    if (root := values.pop("root_tensor", 0)) != 0:
        raise ValueError(f"invalid root tensor: {root}, of 1")
    if not isinstance(values.get(form.one), (list, tuple)):
        return
    for target, side in zip((form.one, form.many), _LISTS[form.many], strict=True):
        # Ranks that are not the root pass an empty list of lists.
        if target == form.many and not values.get(target):
            continue
        if len(values[target]) != 1:
            raise ValueError(
                f"{target}: {form.function.__name__} requires a single-element {side} "
                f"list, not one of {len(values[target])}"
            )
        values[target] = values[target][0]


def _run(name: str, form: _Form, group: ProcessGroup, args: Any, named: Any) -> Work:
    values = _take(name, form, args, named)
    if form.how:
        _spread_options(form, values)
    _unwrap(form, values)
    for word in ("gather_list", "scatter_list"):
        if word in values and not values[word]:
            del values[word]
    if form.how:
        values["async_op"] = True
    limit = _target(group, values.pop("timeout", None)).limit
    work: Work = form.function(group=group, **limit, **values)
    return work


def _target(group: ProcessGroup, timeout: Any) -> Target:
    is_unset = isinstance(timeout, timedelta) and timeout.days < 0
    return Target(group, True, None if is_unset else timeout)


_AS_TORCH = """{}({})

Begins the operation, as torch's method of this name, and returns a Work.

The arguments are arrays, then an object of options, or what it would hold: the
reduction, a rank in the group, a timeout.
"""


def _method(name: str, form: _Form) -> Callable[..., Any]:
    def method(self: ProcessGroup, *args: Any, **named: Any) -> Any:
        return _run(name, form, self, args, named)

    method.__name__ = name
    # inspect.signature() reads this; a Signature would need the import of inspect.
    method.__wrapped__ = eval(form.signature())  # type: ignore[attr-defined]
    words = ", ".join("|".join(names) for _, names in form.slots)
    method.__doc__ = _AS_TORCH.format(name, words)
    return method


def allreduce_coalesced(
    self: ProcessGroup, tensors: Sequence[Any], opts: Any = None
) -> CoalescedWork:
    """Combines each array of a list with those of all ranks, in place."""
    op, target = _reduction_and_target(_FORMS["allreduce"], self, opts)
    return CoalescedWork(reduce_all(tensors, op, target))


def allgather_coalesced(
    self: ProcessGroup,
    output_lists: Sequence[Sequence[Any]],
    input_list: Sequence[Any],
    opts: Any = None,
) -> CoalescedWork:
    """Collects each array of a list from all ranks.

    `output_lists[rank][i]` is array i of a rank.
    """
    _, target = _reduction_and_target(_FORMS["allgather"], self, opts)
    return CoalescedWork(gather_lists(output_lists, input_list, target))


def all_gather_single_coalesced(
    self: ProcessGroup, outputs: Sequence[Any], inputs: Sequence[Any], opts: Any = None
) -> CoalescedWork:
    """Collects arrays as `all_gather_single` does, one for each pair."""
    _check_pairs(outputs, inputs)
    _, target = _reduction_and_target(_FORMS["all_gather_single"], self, opts)
    return CoalescedWork(gather_singles(outputs, inputs, target))


def reduce_scatter_single_coalesced(
    self: ProcessGroup, outputs: Sequence[Any], inputs: Sequence[Any], opts: Any = None
) -> CoalescedWork:
    """Combines arrays as `reduce_scatter_single` does, one for each pair."""
    _check_pairs(outputs, inputs)
    op, target = _reduction_and_target(_FORMS["reduce_scatter_single"], self, opts)
    return CoalescedWork(reduce_scatter_singles(outputs, inputs, op, target))


def _reduction_and_target(
    form: _Form, group: ProcessGroup, opts: Any
) -> tuple[Any, Target]:
    """Returns the reduction, if there is one, and where the call goes."""
    values = {} if opts is None else {"opts": opts}
    _spread_options(form, values)
    return values.get("op", ReduceOp.SUM), _target(group, values.get("timeout"))


def _check_pairs(outputs: Sequence[Any], inputs: Sequence[Any]) -> None:
    if len(outputs) != len(inputs):
        raise ValueError(f"there are {len(outputs)} outputs, but {len(inputs)} inputs")


def _methods() -> dict[str, Callable[..., Any]]:
    made = {name: _method(name, form) for name, form in _FORMS.items()}
    for alias, name in _ALIASES.items():
        made[alias] = _method(alias, _FORMS[name])
    made["allreduce_coalesced"] = allreduce_coalesced
    made["allgather_coalesced"] = allgather_coalesced
    made["all_gather_single_coalesced"] = all_gather_single_coalesced
    made["reduce_scatter_single_coalesced"] = reduce_scatter_single_coalesced
    for name, each in made.items():
        each.__qualname__ = f"ProcessGroup.{name}"
    for alias, name in (
        ("allgather_into_tensor_coalesced", "all_gather_single_coalesced"),
        ("reduce_scatter_tensor_coalesced", "reduce_scatter_single_coalesced"),
    ):
        made[alias] = made[name]
    return made


_C._add_group_methods({**attributes, **_methods()})
