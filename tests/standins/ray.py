# SPDX-License-Identifier: BSD-3-Clause
"""As much of Ray's interface as examples/ray_actors.py needs: actors are processes."""

from __future__ import annotations

import multiprocessing

SECONDS = 30
_actors: list[_Actor] = []


class util:
    """Of the package's submodule."""

    @staticmethod
    def get_node_ip_address() -> str:
        return "127.0.0.1"


def init(**_: object) -> None:
    """Nothing to start."""


def shutdown() -> None:
    for actor in _actors:
        actor.pipe.close()
        actor.process.join(SECONDS)
        actor.process.kill()


def remote(kind: type) -> _Kind:
    return _Kind(kind)


def get(awaited):
    if isinstance(awaited, list):
        return [get(each) for each in awaited]
    return awaited.value()


class _Kind:
    def __init__(self, kind: type) -> None:
        self.kind = kind

    def remote(self, *arguments: object) -> _Actor:
        _actors.append(_Actor(self.kind, arguments))
        return _actors[-1]


class _Actor:
    """A process that answers calls in their order."""

    def __init__(self, kind: type, arguments: tuple) -> None:
        context = multiprocessing.get_context("spawn")
        self.pipe, theirs = context.Pipe()
        self.process = context.Process(target=_serve, args=(theirs, kind, arguments))
        self.process.start()
        theirs.close()
        self.waiting: list[_Answer] = []

    def __getattr__(self, name: str) -> _Method:
        return _Method(self, name)


class _Method:
    def __init__(self, actor: _Actor, name: str) -> None:
        self.actor, self.name = actor, name

    def remote(self, *arguments: object) -> _Answer:
        self.actor.pipe.send((self.name, arguments))
        answer = _Answer(self.actor)
        self.actor.waiting.append(answer)
        return answer


class _Answer:
    def __init__(self, actor: _Actor) -> None:
        self.actor = actor
        self.found: tuple | None = None

    def value(self):
        while self.found is None:
            if not self.actor.pipe.poll(SECONDS):
                raise TimeoutError("an actor does not answer")
            self.actor.waiting.pop(0).found = self.actor.pipe.recv()
        is_good, value = self.found
        if not is_good:
            raise RuntimeError(value)
        return value


def _serve(pipe, kind: type, arguments: tuple) -> None:
    member = kind(*arguments)
    while True:
        try:
            name, words = pipe.recv()
        except EOFError:
            return
        try:
            pipe.send((True, getattr(member, name)(*words)))
        except Exception as error:
            pipe.send((False, repr(error)))
