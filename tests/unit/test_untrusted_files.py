"""What another user or program may have written is read without waiting, following or running out
of memory."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import msgspec
import pytest

from linkflap.harness.log.segments import LARGEST_FILE, map_segment
from linkflap.harness.machine import untrusted_files


def _fifo(path: Path) -> None:
    os.mkfifo(path)


def _link(path: Path) -> None:
    path.symlink_to("/etc/passwd")


def _loop(path: Path) -> None:
    path.symlink_to(path)


def _folder(path: Path) -> None:
    path.mkdir()


def _socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))


MADE = {
    "a FIFO": _fifo,
    "a symbolic link": _link,
    "a folder": _folder,
    "a socket": _socket,
}


@pytest.mark.parametrize("what", MADE)
def test_only_regular_files_are_opened(tmp_path: Path, what: str) -> None:
    MADE[what](tmp_path / "x.log")
    with pytest.raises(OSError, match=f"is {what}, not a regular file"):
        untrusted_files.content(tmp_path / "x.log")
    with pytest.raises(OSError, match=f"is {what}, not a regular file"):
        untrusted_files.content(tmp_path / "x.log", root=tmp_path)
    segment, damage = map_segment(tmp_path / "x.log")
    assert not len(segment.data)
    assert [d.detail for d in damage] == [f"is {what}, not a regular file"]


def test_devices_and_loops_are_not_opened(tmp_path: Path) -> None:
    _loop(tmp_path / "loop")
    for path in (tmp_path / "loop", Path("/dev/zero")):
        with pytest.raises(OSError, match="not a regular file"):
            untrusted_files.content(path)


def test_no_folder_below_the_root_may_be_a_link(tmp_path: Path) -> None:
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "file").write_text("theirs")
    root = tmp_path / "root"
    root.mkdir()
    (root / "inside").symlink_to(tmp_path / "outside")
    assert untrusted_files.content(root / "inside" / "file") == b"theirs"
    for path in (root / "inside" / "file", root / ".." / "outside" / "file", root / "a\0b" / "c"):
        with pytest.raises(OSError, match=r"Not a directory|leads out|null byte"):
            untrusted_files.content(path, root=root)
    assert untrusted_files.listed(root, root / "inside") == []
    assert [*untrusted_files.special_entries(root)] == [("inside", untrusted_files.A_LINK)]


def test_the_root_itself_may_be_reached_by_a_link(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "file").write_text("ours")
    (tmp_path / "latest").symlink_to(tmp_path / "run")
    latest = tmp_path / "latest"
    assert untrusted_files.content(latest / "file", root=latest) == b"ours"
    assert untrusted_files.listed(latest, latest) == [latest / "file"]


def test_a_file_has_a_largest_size(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(b"12345")
    assert untrusted_files.content(tmp_path / "x", most=5) == b"12345"
    with pytest.raises(OSError, match="more than"):
        untrusted_files.content(tmp_path / "x", most=4)


def test_a_segment_larger_than_kafka_writes_is_not_looked_through(tmp_path: Path) -> None:
    path = tmp_path / "00000000000000000000.log"
    path.touch()
    os.truncate(path, LARGEST_FILE + 1)  # sparse
    segment, damage = map_segment(path)
    assert not len(segment.data)
    assert damage[0].kind == "unreadable-file"


def test_a_line_that_is_too_long_is_torn_and_the_last(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(untrusted_files, "LONGEST_LINE", 8)
    path = tmp_path / "x"
    for content, expected in (
        (b"1\n2\n", [b"1\n", b"2\n"]),
        (b"1\n2", [b"1\n", b"2"]),
        (b"1\n" + b"x" * 30 + b"\n2\n", [b"1\n", b"x" * 8]),
        (b"1234567\n2\n", [b"1234567\n", b"2\n"]),
        (b"x" * 30, [b"x" * 8]),
    ):
        path.write_bytes(content)
        with untrusted_files.opened(path) as file:
            assert [*untrusted_files.lines(file)] == expected


@pytest.mark.parametrize(
    "document",
    [
        b'{"a":' * 100_000 + b"1" + b"}" * 100_000,
        b"[" * 100_000 + b"]" * 100_000,
        b'{"a":"\xff"}',
        b'"\\ud800"',
        b"",
        b"9" * 10_000,
    ],
)
def test_what_does_not_decode_is_one_kind_of_error(document: bytes) -> None:
    with pytest.raises(msgspec.DecodeError):
        untrusted_files.decoded(document, dict[str, int])
