"""The clients' sends to a partition and reads from it, one for each operation and poll.

Many sends are kept as columns: some hundred bytes less per operation than one object for each.
`Sends` is a sequence of `Send`. Each is made on access, so that a kernel may look at one and work
with the columns of all. A selection shares the arrays of offsets with its original.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from itertools import groupby
from operator import attrgetter
from typing import Any, Final, overload

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]


@dataclass(frozen=True, slots=True, kw_only=True)
class Send:
    """One send group of one operation, invoke and return joined. Outcome info: never returned, or
    unknown.

    `returned` is -1 if it never did; `ended_at` is then 0 even if the ending had been requested.
    `offsets[i]` is the acknowledged offset of uid `first_uid + i`, -1 where there was no
    acknowledgement; `refused[i]` where the client knows for certain that it was not written. If its
    records have inputs, `inputs[i]` is the offset of record i's input in the partition
    (`input_topic`, `input_partition`) of the same cluster, `input_uids[i]` the input's payload id,
    and `position` the offset to commit for `group` in the same transaction. `error` is the name of
    the error that it returned with. `sequence`, `crc` and `by_leader` (0 or 1) are those of a batch
    that was recorded on the wire (`harness.model.history.SendGroup`).
    """

    number: int
    client: str
    process: int
    cluster: str
    kind: str
    ending: str
    outcome: str
    transactional_id: str
    invoked: int
    ended_at: int
    returned: int
    producer_id: int
    producer_epoch: int
    first_uid: int
    group: str = ""
    input_topic: str = ""
    input_partition: int = -1
    position: int = -1
    error: str = ""
    sequence: int = -1
    crc: int = -1
    by_leader: int = 0
    offsets: Ints
    refused: Bools
    inputs: Ints = field(default_factory=lambda: np.empty(0, np.int64))
    input_uids: Ints = field(default_factory=lambda: np.empty(0, np.int64))


@dataclass(frozen=True, slots=True, kw_only=True)
class Read:
    """The records of one poll in this partition. `uids` and `offsets` are in the order of the poll.
    For a member of a share group: its action (`harness.model.history.ShareKind`); for acquired
    records, `position` is the delivery count, and `lock_ms` the duration of their lock if that was
    recorded on the wire, else 0. `crcs`: where it was recorded on the wire, the CRC of the batch of
    each record.
    """

    reader: str
    process: int
    cluster: str
    isolation: str
    kind: str
    group: str
    time: int
    returned: int
    position: int
    uids: Ints
    offsets: Ints
    crcs: Ints = field(default_factory=lambda: np.empty(0, np.int64))
    lock_ms: int = 0


def consumers(reads: Iterable[Read]) -> Iterator[list[Read]]:
    """The rows of each consumer, in the order of their return."""
    ordered = sorted(reads, key=attrgetter("reader", "process", "returned"))
    return (list(rows) for _, rows in groupby(ordered, attrgetter("reader", "process")))


NUMBERS: Final = tuple(each.name for each in fields(Send) if each.type == "int")
WORDS: Final = tuple(each.name for each in fields(Send) if each.type == "str")
ARRAYS: Final[Mapping[str, str]] = {
    each.name: "?" if each.type == "Bools" else "<i8"
    for each in fields(Send)
    if each.type in ("Ints", "Bools")
}
_AT_ONCE: Final = 4096


class Sends(Sequence[Send]):
    """Columns of sends; `numbers`, codes of words with what each stands for, and spans of arrays of
    all sends together."""

    __slots__ = ("_codes", "_numbers", "_spans", "_values", "_words")

    def __init__(
        self,
        numbers: Mapping[str, Ints],
        codes: Mapping[str, NDArray[np.int32]],
        words: Mapping[str, Sequence[str]],
        values: Mapping[str, NDArray[Any]],
        spans: Mapping[str, Ints],
    ) -> None:
        """`spans` are (start, end) of each send in `values`, one line each."""
        self._numbers, self._codes = numbers, codes
        self._words, self._values = words, values
        self._spans = spans

    @staticmethod
    def of(sends: Iterable[Send]) -> Sends:
        """The columns of any sends; of columns, themselves."""
        if isinstance(sends, Sends):
            return sends
        every = list(sends)
        words = {name: dict.fromkeys(getattr(s, name) for s in every) for name in WORDS}
        codes_by_word = {
            name: dict(zip(mine, range(len(mine)), strict=True)) for name, mine in words.items()
        }
        return Sends(
            {name: np.array([getattr(s, name) for s in every], np.int64) for name in NUMBERS},
            {
                name: np.array([mine[getattr(s, name)] for s in every], np.int32)
                for name, mine in codes_by_word.items()
            },
            {name: list(mine) for name, mine in words.items()},
            {
                name: np.concatenate([np.zeros(0, kind), *(getattr(s, name) for s in every)])
                for name, kind in ARRAYS.items()
            },
            {
                name: spans(np.array([len(getattr(s, name)) for s in every], np.int64))
                for name in ARRAYS
            },
        )

    def __len__(self) -> int:
        return len(self._numbers["number"])

    @overload
    def __getitem__(self, index: int) -> Send: ...

    @overload
    def __getitem__(self, index: slice) -> Sends: ...

    def __getitem__(self, index: int | slice) -> Send | Sends:
        if isinstance(index, slice):
            return self.take(np.arange(len(self))[index])
        values: dict[str, Any] = {
            name: int(column[index]) for name, column in self._numbers.items()
        }
        values |= {name: self._words[name][codes[index]] for name, codes in self._codes.items()}
        values |= {
            name: self._values[name][slice(*spans[index].tolist())]
            for name, spans in self._spans.items()
        }
        return Send(**values)

    def __iter__(self) -> Iterator[Send]:
        for start in range(0, len(self), _AT_ONCE):
            some = slice(start, start + _AT_ONCE)
            columns = [column[some].tolist() for column in self._numbers.values()]
            columns += [
                [self._words[name][code] for code in codes[some].tolist()]
                for name, codes in self._codes.items()
            ]
            columns += [
                [self._values[name][s:e] for s, e in spans[some].tolist()]
                for name, spans in self._spans.items()
            ]
            names = (*self._numbers, *self._codes, *self._spans)
            for row in zip(*columns, strict=True):
                yield Send(**dict(zip(names, row, strict=True)))

    def take(self, rows: Ints | Bools) -> Sends:
        """The sends at these places, or where the mask is true, in order."""
        return Sends(
            {name: column[rows] for name, column in self._numbers.items()},
            {name: column[rows] for name, column in self._codes.items()},
            self._words,
            self._values,
            {name: column[rows] for name, column in self._spans.items()},
        )

    def column(self, name: str) -> Ints:
        """A column of numbers."""
        return self._numbers[name]

    def says(self, name: str, *words: str) -> Bools:
        """Whether each send has one of these words."""
        wanted = [index for index, word in enumerate(self._words[name]) if word in words]
        return np.isin(self._codes[name], wanted)

    def words(self, name: str) -> set[str]:
        """Every word of a column."""
        return {self._words[name][code] for code in np.unique(self._codes[name]).tolist()}

    def codes(self, name: str) -> tuple[Ints, Sequence[str]]:
        """A column of words as numbers, and what they stand for."""
        return self._codes[name].astype(np.int64), self._words[name]

    @property
    def sizes(self) -> Ints:
        """How many records each has."""
        return self.sizes_of("offsets")

    def sizes_of(self, name: str) -> Ints:
        """How long the arrays of one name are."""
        return np.asarray(self._spans[name][:, 1] - self._spans[name][:, 0])

    def each(self, name: str) -> NDArray[Any]:
        """The arrays of one name, one after the other."""
        edges, values = self._spans[name], self._values[name]
        if np.array_equal(edges[1:, 0], edges[:-1, 1]):
            return values[edges[0, 0] : edges[-1, 1]] if len(edges) else values[:0]
        found, at = np.empty(self.sizes_of(name).sum(), values.dtype), 0
        for some in range(0, len(edges), _AT_ONCE):
            starts, ends = edges[some : some + _AT_ONCE].T
            sizes = ends - starts
            count = int(sizes.sum())
            found[at : at + count] = values[
                np.arange(count) + np.repeat(starts - (np.cumsum(sizes) - sizes), sizes)
            ]
            at += count
        return found

    def packed(self) -> Sends:
        """The same with arrays of its own, which follow each other."""
        values = {name: self.each(name) for name in self._values}
        edges = {name: spans(self.sizes_of(name)) for name in self._spans}
        return Sends(self._numbers, self._codes, self._words, values, edges)


def spans(sizes: Ints) -> Ints:
    """(start, end) of arrays of these sizes, one after the other."""
    ends = np.cumsum(sizes)
    return np.stack((ends - sizes, ends), axis=1)


class SendsBuilder:
    """Sends that come some at a time: columns are put together at the end."""

    def __init__(self) -> None:
        self._numbers: dict[str, list[Ints]] = {name: [] for name in NUMBERS}
        self._codes: dict[str, list[NDArray[np.int32]]] = {name: [] for name in WORDS}
        self._words: dict[str, dict[str, int]] = {name: {} for name in WORDS}
        self._values: dict[str, list[NDArray[Any]]] = {name: [] for name in ARRAYS}
        self._sizes: dict[str, list[Ints]] = {name: [] for name in ARRAYS}

    def numbers(self, name: str, values: Ints) -> None:
        self._numbers[name].append(values)

    def words(self, name: str, words: Sequence[str], codes: NDArray[Any]) -> None:
        """More of a column of words, as numbers that stand for these."""
        mine = self._words[name]
        known = np.array([mine.setdefault(word, len(mine)) for word in words], np.int32)
        self._codes[name].append(known[codes])

    def arrays(self, name: str, values: NDArray[Any], sizes: Ints) -> None:
        """More of a column of arrays: all of them together, and the size of each."""
        self._values[name].append(values)
        self._sizes[name].append(sizes)

    def sends(self) -> Sends:
        """All of them by time of invocation, then by number and first uid. Consumes the gathered
        rows."""
        numbers = {name: _together(parts, np.int64) for name, parts in self._numbers.items()}
        every = Sends(
            numbers,
            {name: _together(parts, np.int32) for name, parts in self._codes.items()},
            {name: list(words) for name, words in self._words.items()},
            {
                name: _together(parts, np.dtype(ARRAYS[name]))
                for name, parts in self._values.items()
            },
            {name: spans(_together(parts, np.int64)) for name, parts in self._sizes.items()},
        )
        return every.take(
            np.lexsort((numbers["first_uid"], numbers["number"], numbers["invoked"]))
        ).packed()


def _together(parts: list[NDArray[Any]], kind: np.dtype[Any] | type) -> NDArray[Any]:
    """The parts, which are used up, as one array."""
    whole = np.concatenate([np.zeros(0, kind), *parts])
    parts.clear()
    return whole
