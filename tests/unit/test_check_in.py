# SPDX-License-Identifier: BSD-3-Clause
"""How a process shows that it still has its rank."""

from __future__ import annotations

import os

import pytest

from distlite.groups.check_in import Presence
from distlite.groups.members import MemberId, is_known_dead


def test_a_presence_shows_until_it_is_closed():
    assert not Presence.shows("0123")
    presence = Presence("0123")
    assert Presence.shows("0123") and Presence.shows("0123")
    presence.close()
    assert not Presence.shows("0123")


def test_a_process_that_has_often_been_looked_for_has_not_ended():
    member, other = MemberId(), MemberId()
    nonce = member.text.rpartition(":")[2]
    while Presence.shows(nonce):  # each check takes a place in the socket's queue
        pass
    assert Presence.shows(nonce, if_full=True)
    assert not is_known_dead(member.text, other.text)
    member.close()
    assert not Presence.shows(nonce, if_full=True)
    assert is_known_dead(member.text, other.text)
    other.close()


def test_a_forked_child_does_not_keep_it():
    presence = Presence("4567")
    begun, child_begun = os.pipe()
    child_end, end = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(end)
        os.write(child_begun, b"!")
        os.read(child_end, 1)
        os._exit(0)
    assert os.read(begun, 1) == b"!"
    assert Presence.shows("4567")
    presence.close()
    assert not Presence.shows("4567")
    os.close(end)
    assert os.waitpid(child, 0)[1] == 0
    for fd in (begun, child_begun, child_end):
        os.close(fd)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_a_presence_of_another_user_does_not_count():
    taken, taking = os.pipe()
    child_end, end = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(end)
        os.setuid(65534)
        Presence("89ab")
        os.write(taking, b"!")
        os.read(child_end, 1)
        os._exit(0)
    assert os.read(taken, 1) == b"!"
    assert not Presence.shows("89ab")
    os.close(end)
    assert os.waitpid(child, 0)[1] == 0
    for fd in (taken, taking, child_end):
        os.close(fd)
