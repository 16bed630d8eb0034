# SPDX-License-Identifier: BSD-3-Clause
"""A store that passes requests on, for tests that change some of them."""

from typing import Any

import distlite


class Wrapped(distlite.Store):
    def __init__(self, below: distlite.Store) -> None:
        super().__init__()
        self.below = below

    def set(self, key: str, value: Any) -> None:
        self.below.set(key, value)

    def get(self, key: str) -> bytes:
        return self.below.get(key)

    def add(self, key: str, amount: int) -> int:
        return self.below.add(key, amount)

    def compare_set(self, key: str, expected: Any, desired: Any) -> bytes:
        return self.below.compare_set(key, expected, desired)

    def check(self, keys: list[str]) -> bool:
        return self.below.check(keys)

    def delete_key(self, key: str) -> bool:
        return self.below.delete_key(key)
