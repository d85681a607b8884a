"""Questions to a process of clients: each has a number, by which its answer finds the caller."""

from __future__ import annotations

import queue
from typing import Final

from linkflap.harness.workloads.protocol import State

_MOST: Final = 8
Answer = queue.SimpleQueue[State | None]


class Questions:
    """The open questions of one process and its successors. Not thread-safe: its owner locks."""

    def __init__(self) -> None:
        self.last = 0
        """The number of the last question."""
        self._open: dict[int, Answer] = {}

    @property
    def too_many(self) -> bool:
        """Whether so many questions are open that no more are asked."""
        return len(self._open) >= _MOST

    def ask(self) -> tuple[int, Answer]:
        """The number of a new question, and the queue that receives its answer: None if the process
        ends without one."""
        self.last += 1
        answer = self._open[self.last] = Answer()
        return self.last, answer

    def unsent(self, number: int) -> None:
        """A question did not reach the process."""
        self._open.pop(number).put(None)

    def answered(self, state: State) -> None:
        """The process answered."""
        if (answer := self._open.pop(state.number, None)) is not None:
            answer.put(state)

    def gone(self) -> int:
        """The process has ended and answers nothing more. Returns the number that stands for its
        last answer."""
        for answer in self._open.values():
            answer.put(None)
        self._open.clear()
        self.last += 1
        return self.last
