"""Concurrent tasks: all results, and the first error: as soon as there is one, or in order."""

from __future__ import annotations

import threading

import pytest

from linkflap.harness.model.side_by_side import all_side_by_side, side_by_side


def test_all_run_at_once() -> None:
    together = threading.Barrier(3)
    side_by_side([lambda: together.wait(30)] * 3)


def test_nothing_to_do() -> None:
    side_by_side([])


def test_the_first_error_does_not_wait_for_tasks_that_hang() -> None:
    release, hung = threading.Event(), []

    def hang() -> None:
        hung.append(threading.current_thread())
        release.wait(60)

    def fail() -> None:
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        side_by_side([hang, fail])
    assert hung[0].is_alive()
    assert hung[0].daemon
    release.set()


def test_where_several_fail_the_same_error_is_raised_each_time() -> None:
    later = threading.Event()

    def first() -> None:
        later.wait(60)
        raise ValueError("first")

    def second() -> None:
        later.set()
        raise ValueError("second")

    with pytest.raises(ValueError, match="first"):
        all_side_by_side([first, second])
    all_side_by_side([later.set, later.set])
