# SPDX-License-Identifier: BSD-3-Clause
"""What the C library of the wheels' platform, glibc 2.28, does not have."""

from __future__ import annotations

import re

import pytest
from c_source import Source, csrc_files

_NEWER = re.compile(
    r"\b(pthread_cond_clockwait|pthread_mutex_clocklock|pthread_clockjoin_np|sem_clockwait"
    r"|gettid|tgkill|getcpu|close_range|closefrom|pidfd_\w+|epoll_pwait2|process_madvise"
    r"|arc4random\w*|strlcpy|strlcat|sigabbrev_np|sigdescr_np|strerror\w+_np|_Fork"
    r"|posix_spawn_file_actions_addclosefrom_np|timespec_getres)\s*\("
)
# Their clock is an attribute: base/thread.h.
_CONDITION = re.compile(
    r"\bPTHREAD_COND_INITIALIZER\b|\bpthread_cond_(init|timedwait)\s*\("
)


def _errors(source: Source, pattern: re.Pattern[str]) -> list[str]:
    return [
        f"{source.path}:{number} {line.strip()}"
        for number, line in enumerate(source.code.split("\n"), 1)
        if pattern.search(line)
    ]


def test_no_function_is_newer_than_the_wheels_platform() -> None:
    assert [e for source in csrc_files() for e in _errors(source, _NEWER)] == []


def test_conditions_are_made_in_one_place() -> None:
    files = [s for s in csrc_files() if s.path != "csrc/base/thread.c"]
    assert [e for source in files for e in _errors(source, _CONDITION)] == []


@pytest.mark.parametrize(
    "text",
    ["pthread_cond_clockwait(&a, &b, CLOCK_MONOTONIC, &c);", "int id = gettid();"],
)
def test_a_newer_function_is_found(text: str) -> None:
    assert _errors(Source("csrc/x.c", text), _NEWER) != []


@pytest.mark.parametrize(
    "text",
    ["pthread_cond_init(&a, NULL);", "pthread_cond_t a = PTHREAD_COND_INITIALIZER;"],
)
def test_a_condition_of_another_clock_is_found(text: str) -> None:
    assert _errors(Source("csrc/x.c", text), _CONDITION) != []
