# SPDX-License-Identifier: BSD-3-Clause
"""One store of every kind: a test that takes `store` runs once for each, and one that
takes `uses_libuv` with both servers of TCPStore."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from store_kinds import KINDS, Kind, kind_of

from distlite import Store

WITH_QUEUES = [name for name, kind in KINDS.items() if kind.has_queues]


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Kind]:
    with kind_of(request.param, tmp_path) as kind:
        yield kind


@pytest.fixture
def store(kind: Kind) -> Store:
    return kind.open()


@pytest.fixture
def peer(kind: Kind, store: Store) -> Store:
    """The same data as another process would see it."""
    return kind.open()


@pytest.fixture(params=WITH_QUEUES)
def queue_kind(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Kind]:
    with kind_of(request.param, tmp_path) as kind:
        yield kind


@pytest.fixture
def queue_store(queue_kind: Kind) -> Store:
    return queue_kind.open()


@pytest.fixture
def queue_peer(queue_kind: Kind, queue_store: Store) -> Store:
    return queue_kind.open()


@pytest.fixture(params=[name for name in KINDS if name not in WITH_QUEUES])
def kind_without_queues(
    request: pytest.FixtureRequest, tmp_path: Path
) -> Iterator[Kind]:
    with kind_of(request.param, tmp_path) as kind:
        yield kind


@pytest.fixture(params=[False, True], ids=["epoll", "libuv"])
def uses_libuv(request: pytest.FixtureRequest) -> bool:
    return request.param
