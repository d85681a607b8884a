"""Entries of group coordinators, from bytes: commits, and whether a group has members."""

from __future__ import annotations

import struct

import pytest

from linkflap.harness.log.coordinators import (
    GroupCommit,
    GroupMembers,
    Undecodable,
    group_entry,
    transaction_state,
)
from linkflap.harness.log.reference import Record


def record(key: bytes, value: bytes | None) -> Record:
    return Record(offset=5, timestamp=0, key=key, value=value, headers=())


def text(word: str) -> bytes:
    return struct.pack(">h", len(word)) + word.encode()


def compact(word: str) -> bytes:
    return bytes([len(word) + 1]) + word.encode()


def classic(version: int, members: int, *, named: bool = True) -> bytes:
    """The beginning of a GroupMetadataValue; what follows the number of members is not decoded."""
    flexible = version >= 4
    word = compact if flexible else text
    null = b"\0" if flexible else struct.pack(">h", -1)
    value = struct.pack(">h", version) + word("consumer") + struct.pack(">i", 7)
    value += word("range") + word("m-1") if named else null + null
    value += struct.pack(">q", 1) if version >= 2 else b""
    return (
        value
        + (bytes([members + 1]) if flexible else struct.pack(">i", members))
        + b"whatever follows"
    )


CLASSIC = struct.pack(">h", 2) + text("g")


@pytest.mark.parametrize("version", range(5))
@pytest.mark.parametrize(("members", "named"), [(2, True), (0, True), (0, False)])
def test_a_classic_group_has_members_or_none(version: int, members: int, named: bool) -> None:
    found = group_entry(record(CLASSIC, classic(version, members, named=named)))
    assert found == GroupMembers(offset=5, group="g", member="", present=members > 0)


def test_a_group_that_was_deleted_has_no_members() -> None:
    assert group_entry(record(CLASSIC, None)) == GroupMembers(
        offset=5, group="g", member="", present=False
    )


@pytest.mark.parametrize(("value", "present"), [(b"\0\0", True), (None, False)])
def test_a_member_of_a_group_of_the_new_protocol_comes_and_goes(
    value: bytes | None, present: bool
) -> None:
    found = group_entry(record(struct.pack(">h", 5) + text("g") + text("m-1"), value))
    assert found == GroupMembers(offset=5, group="g", member="m-1", present=present)


def test_a_commit_and_one_that_is_taken_back() -> None:
    key = struct.pack(">h", 1) + text("g") + text("A.t") + struct.pack(">i", 3)
    commit = GroupCommit(offset=5, group="g", topic="A.t", partition=3, committed=42)
    assert group_entry(record(key, struct.pack(">hq", 4, 42) + b"rest")) == commit
    taken_back = group_entry(record(key, None))
    assert isinstance(taken_back, GroupCommit)
    assert taken_back.committed == -1


@pytest.mark.parametrize("kind", [3, 4, 6, 7, 8, 17])
def test_assignments_and_groups_of_other_kinds_are_left_out(kind: int) -> None:
    assert group_entry(record(struct.pack(">h", kind) + text("g"), b"\0\0")) is None


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (CLASSIC, struct.pack(">h", 5)),
        (CLASSIC, classic(3, 0)[:9]),
        (CLASSIC[:3], b""),
        (b"", b""),
        (struct.pack(">h", 5) + text("g"), b""),
    ],
    ids=["a newer version", "value ends early", "key ends early", "no key", "no member"],
)
def test_what_no_coordinator_writes_is_refused(key: bytes, value: bytes) -> None:
    with pytest.raises(Undecodable):
        group_entry(record(key, value))


def test_tagged_fields_are_passed_over() -> None:
    """A state of version 1 in which each topic has a tagged field of three bytes."""
    value = struct.pack(">hqhib", 1, 9, 0, 1000, 1) + bytes([3])
    for topic in ("t", "u"):
        value += compact(topic) + bytes([2]) + struct.pack(">i", 1) + bytes([1, 0, 3]) + b"xyz"
    value += struct.pack(">qq", 20, 10) + bytes([3, 1, 8]) + struct.pack(">q", 11)
    value += bytes([2, 2]) + struct.pack(">h", 2) + bytes([9, 1]) + b"?"
    found = transaction_state(record(struct.pack(">h", 0) + text("id"), value))
    assert found is not None
    assert found.partitions == (("t", 1), ("u", 1))
    assert (found.timeout, found.updated, found.started) == (1000, 20, 10)
    assert (found.previous_id, found.next_id, found.version) == (-1, 11, 2)
