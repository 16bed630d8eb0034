# SPDX-License-Identifier: BSD-3-Clause
"""How a process shows that it still has its rank."""

from __future__ import annotations

import os

from distlite.check_in import Presence


def test_a_presence_shows_until_it_is_closed():
    assert not Presence.shows("0123")
    presence = Presence("0123")
    assert Presence.shows("0123") and Presence.shows("0123")
    presence.close()
    assert not Presence.shows("0123")


def test_a_forked_child_does_not_keep_it():
    presence = Presence("4567")
    child = os.fork()
    if child == 0:
        os.read(0, 0)
        presence.close()
        os._exit(0 if Presence.shows("4567") else 1)
    assert os.waitpid(child, 0)[1] == 0
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(write)
        os.read(read, 1)
        os._exit(0)
    presence.close()
    assert not Presence.shows("4567")
    os.close(write)
    os.close(read)
    assert os.waitpid(child, 0)[1] == 0
