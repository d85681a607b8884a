"""Hypothesis strategies for what stands in run directories: well formed, and of extreme values.

A document has the fields that its type declares (msgspec's description of it), with values at the
edges of their ranges and sometimes beyond: counts, offsets near 2^63, negative sizes, huge texts,
deep nesting, NaN, keys that are there twice. A batch has a right CRC and any header.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from crc32c import crc32c
from hypothesis import strategies as st
from msgspec import inspect

from linkflap.harness.model.events import KINDS
from linkflap.harness.model.history import Bounds, GroupOffset, Operation, Poll, Watermark
from linkflap.harness.rundir import Run
from tests.kafka_log import varint

Strategy = st.SearchStrategy[Any]
EDGES: Final = (
    0, 1, 2, 3, 9, 60, 127, 2**15, 2**24, 2**31 - 1, 2**31, 2**53, 2**62 - 1, 2**62, 2**63 - 1,
    2**63, 2**64, 10**40,
)  # fmt: skip
NAMES: Final = (
    "A", "B", "A.orders", "A.invoices", "A->B", "A/1", "B->A", "1-end", "", "__transaction_state",
    "__consumer_offsets", "__share_group_state", "__cluster_metadata", "shadow", "link-cut",
    "unclean-election", "../..", "a/b", "\0", "\x1b[2J", "\u202e", "x" * 100_000, "\U0001f600",
    "-1",
)  # fmt: skip
_DEEP: Final = "a deep value"
_PLAIN: Final[Mapping[type, Sequence[Any]]] = {
    inspect.FloatType: (0.0, -1.0, 0.5, 1e9, 1e308, float("inf"), float("nan"), 10**30),
    inspect.StrType: NAMES,
    inspect.BoolType: (True, False),
    inspect.NoneType: (None,),
}
_ROWS: Final[Mapping[str, type]] = {
    "operations": Operation,
    "polls": Poll,
    "watermarks": Watermark,
    "groups": GroupOffset,
}


def of(kind: object, times: Sequence[int] = ()) -> Strategy:
    """JSON values of a type: what it allows, and now and then what it does not. Fields that are
    called as times are have one of `times`."""
    return _of(inspect.type_info(kind), times)


def _of(info: inspect.Type, times: Sequence[int]) -> Strategy:
    match info:
        case inspect.IntType(ge=low, le=high):
            return _ints(low, high)
        case inspect.LiteralType(values=values):
            return st.sampled_from(values)
        case inspect.UnionType(types=types):
            return st.one_of([_of(each, times) for each in types])
        case inspect.TupleType(item_types=items):
            return st.tuples(*(_of(each, times) for each in items))
        case inspect.VarTupleType(item_type=item) | inspect.ListType(item_type=item):
            return st.lists(_of(item, times), max_size=3)
        case inspect.DictType(value_type=value):
            return st.dictionaries(st.sampled_from(NAMES), _of(value, times), max_size=3)
        case inspect.DataclassType(fields=fields) | inspect.StructType(fields=fields):
            return _fields(fields, times)
    return st.sampled_from(_PLAIN.get(type(info), (None, 0, "x", [], {}, 2**62, _DEEP)))


def _ints(low: int | None, high: int | None) -> Strategy:
    edges = [*EDGES, *(-each for each in EDGES)]
    legal = [e for e in edges if (low is None or e >= low) and (high is None or e <= high)]
    legal += [edge for edge in (low, high) if edge is not None]
    return st.one_of(*[st.sampled_from(legal)] * 6, st.sampled_from(edges))


def _fields(fields: Sequence[inspect.Field], times: Sequence[int]) -> Strategy:
    made: dict[str, Strategy] = {}
    for each in fields:
        named = each.encode_name in ("time", "returned", "ended_at", "started", "ended")
        made[each.encode_name] = (
            st.one_of(*[st.sampled_from(times)] * 6, st.sampled_from(EDGES))
            if named and times
            else _of(each.type, times)
        )
    needed = {each.encode_name: made[each.encode_name] for each in fields if each.required}
    return st.fixed_dictionaries(
        needed, optional={name: each for name, each in made.items() if name not in needed}
    )


def rows(part: str, times: Sequence[int]) -> Strategy:
    """Lines of one part of a history."""
    return st.lists(_written(of(_ROWS[part], times)), min_size=1, max_size=6)


def events(times: Sequence[int]) -> Strategy:
    """Lines of events.jsonl: of any kind, with its data."""
    return st.lists(
        _written(st.sampled_from(sorted(KINDS)).flatmap(lambda kind: _event(kind, times))),
        min_size=1, max_size=6,
    )  # fmt: skip


def _event(kind: str, times: Sequence[int]) -> Strategy:
    info = inspect.type_info(KINDS[kind])
    assert isinstance(info, inspect.StructType)
    data = _fields([f for f in info.fields if f.encode_name not in ("time", "subject")], times)
    return st.fixed_dictionaries(
        {
            "time": st.sampled_from(times),
            "kind": st.just(kind),
            "subject": st.sampled_from(NAMES),
            "data": data,
        }
    )


def documents(name: str, before: Any, times: Sequence[int]) -> Strategy:
    """bounds.json with entries of extreme values, or run.json with one part of it replaced."""
    if name == "bounds.json":
        return _written(st.lists(of(Bounds), max_size=4).map(lambda made: [*before, *made]))
    info = inspect.type_info(Run)
    assert isinstance(info, inspect.DataclassType)
    return _written(_with_a_part(before, info, times))


def _with_a_part(before: Any, info: inspect.Type, times: Sequence[int]) -> Strategy:
    """The value with a field of it, or of what is below, replaced by any of its type."""
    if not isinstance(info, inspect.DataclassType | inspect.StructType) or not before:
        return _of(info, times)

    def replaced(field: inspect.Field) -> Strategy:
        name, kind = field.encode_name, field.type
        inner = before.get(name)
        parts = inspect.VarTupleType
        if isinstance(kind, parts) and isinstance(inner, list) and inner:
            changed = _with_a_part(inner[0], kind.item_type, times).map(lambda v: [v, *inner[1:]])
        else:
            changed = _with_a_part(inner, kind, times)
        return st.one_of(changed, _of(kind, times)).map(lambda value: before | {name: value})

    return st.sampled_from(info.fields).flatmap(replaced)


def _written(values: Strategy) -> Strategy:
    """As JSON; some with a key twice, some deep."""

    def encoded(value: Any, twist: int) -> bytes:
        text = json.dumps(value)
        if twist == 0 and text.startswith("{"):
            text = f"{text[:-1]}, {text[1:-1] or chr(34) + 'a' + chr(34) + ':1'}}}"
        deep = "[" * 100_000 + "]" * 100_000
        return text.replace(json.dumps(_DEEP), deep).encode()

    return st.builds(encoded, values, st.integers(0, 9))


_HEADER: Final[Sequence[tuple[str, int]]] = (
    (">i", 12), (">h", 21), (">i", 23), (">q", 27), (">q", 35), (">q", 43), (">h", 51), (">i", 53),
    (">i", 57),
)  # fmt: skip
_OFFSETS: Final = (0, 1, 30, 2**31, 2**62, 2**63 - 2**31, 2**63 - 1, -1, -(2**63))


def batches() -> Strategy:
    """A batch with a right CRC, extreme header fields, and records whose varints are extreme."""
    number = st.one_of(st.sampled_from(EDGES), st.sampled_from(EDGES).map(lambda each: -each))
    body = st.one_of(
        st.binary(max_size=60),
        st.lists(number, max_size=30).map(
            lambda found: b"".join(varint(each, 64) for each in found)
        ),
    )
    fields = st.lists(st.tuples(st.sampled_from(_HEADER), number), max_size=4)
    return st.builds(_batch, st.sampled_from(_OFFSETS), fields, body)


def _batch(offset: int, fields: Sequence[tuple[tuple[str, int], int]], body: bytes) -> bytes:
    head = struct.pack(">qiibIhiqqqhii", offset, 0, 0, 2, 0, 0, 0, 1, 1, -1, -1, -1, 1)
    made = bytearray(head + body)
    struct.pack_into(">i", made, 8, len(made) - 12)
    for (form, at), value in fields:
        size = struct.calcsize(form)
        made[at : at + size] = (value % (1 << 8 * size)).to_bytes(size, "big")
    struct.pack_into(">I", made, 17, crc32c(bytes(made[21:])))
    return bytes(made)


Change = Callable[[bytes], bytes]


def changes(name: str, content: bytes, times: Sequence[int]) -> Strategy:
    """The possible contents of one file of a run directory."""
    folder, last = name.split("/")[0], name.split("/")[-1]
    if last.endswith(".log"):
        return st.lists(batches(), min_size=1, max_size=3).map(
            lambda made: content + b"".join(made)
        )
    if folder in _ROWS or name == "events.jsonl":
        lines = events(times) if name == "events.jsonl" else rows(folder, times)
        return lines.map(lambda made: content + b"".join(line + b"\n" for line in made))
    return documents(last, json.loads(content), times)
