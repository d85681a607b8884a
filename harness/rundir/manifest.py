"""manifest.json: the files of a run directory with their sizes and digests, and which of them are
not what they were.

It is written when a capture ends, for the captured files, and when the run ends, for all. A digest
is a CRC-32C: it is to find damage, and it costs little where every byte is read anyway (a tenth of
the time that BLAKE2 takes). Directories of older versions have sizes alone, and -1 for segments;
that a segment of theirs was shortened is not seen, and the verdict says so. (Their run.json does
not say that there are digests.)

A file that has not its recorded bytes is damage, and is not read: what it would show did not happen
in the run. The same goes for a file that was not there, and in a manifest with digests for a file
without one. A file that the directory only links to (`harness.capture.folders`) belongs to somebody
else, who may go on writing it, and has no digest.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Final

import msgspec
from crc32c import crc32c

from linkflap.harness.machine import untrusted_files
from linkflap.harness.rundir.files import Damage, write_whole

MANIFEST: Final = "manifest.json"
_AT_ONCE: Final = 1 << 20
_MOST_WITH_HOLES: Final = (1 << 31) - 1
"""A segment may have a hole where a copy left out zeros. A history has none, and a larger file of
holes alone takes hours to read."""
_READERS: Final = 4
"""Files that are read at the same time: a checksum does not hold Python's lock."""
_REMEMBERED: Final = 1 << 16
_HISTORIES: Final = ("events.jsonl", "run.json")
_FOLDERS: Final = ("operations", "polls", "watermarks", "groups")


@dataclass(frozen=True, slots=True, kw_only=True)
class Content:
    """The size of a file and the CRC-32C of its bytes."""

    bytes: int
    crc32c: int


Recorded = Mapping[str, int | Content]
"""Path -> what the file had; of older versions only its size, -1 if that was not recorded."""


def captured(root: Path, moment: str, before: Recorded) -> dict[str, int | Content]:
    """The manifest's entries of captured files: those of this moment read now, those of other
    moments taken from `before`.
    """
    folder = root / "captures" / moment
    others = {k: was for k, was in before.items() if not k.startswith(f"{_name(root, folder)}/")}
    return {**others, **_recorded(root, folder.rglob("*"))}


def inventory(root: Path) -> dict[str, int | Content]:
    """The manifest's entries of all files of a run directory that are judged."""
    linked = {
        _name(root, path): -1
        for path in root.glob("captures/*/*/*/*/*.log")
        if path.name.isprintable()  # others are not read, and cannot be written down
    }
    return {**linked, **_recorded(root, _judged_files(root))}


def write(root: Path, recorded: Recorded) -> None:
    """Writes the manifest. Raises OSError."""
    write_whole(root / MANIFEST, msgspec.json.encode(dict(sorted(recorded.items()))))


def _recorded(root: Path, paths: Iterable[Path]) -> dict[str, int | Content]:
    files = [path for path in paths if path.is_file()]
    with ThreadPoolExecutor(_READERS) as readers:
        return dict(
            zip((_name(root, path) for path in files), readers.map(content, files), strict=True)
        )


def _judged_files(root: Path) -> Iterator[Path]:
    """Existing files that a judgement reads. rglob does not follow links to folders."""
    yield from (root / name for name in _HISTORIES)
    for folder in _FOLDERS:
        yield from (root / folder).glob("*.jsonl")
    yield from (root / "captures").rglob("*")


def _name(root: Path, path: Path) -> str:
    return str(path.relative_to(root))


def content(path: Path) -> Content:
    """The present content of a file; read again only if the file changed. Raises OSError."""
    now = path.lstat()
    return _content(str(path), now.st_dev, now.st_ino, now.st_size, now.st_mtime_ns)


@lru_cache(maxsize=_REMEMBERED)
def _content(path: str, _device: int, _inode: int, _size: int, _modified: int) -> Content:
    buffer, sum_, size = memoryview(bytearray(_AT_ONCE)), 0, 0
    with untrusted_files.opened(Path(path)) as file:
        if _size > _MOST_WITH_HOLES and os.lseek(file.fileno(), 0, os.SEEK_HOLE) < _size:
            raise OSError(errno.EFBIG, "is larger than a segment, and has holes", path)
        file.seek(0)
        while count := file.readinto(buffer):
            sum_ = crc32c(buffer[:count], sum_)
            size += count
    return Content(bytes=size, crc32c=sum_)


class Manifest:
    """The manifest of a run directory, and the files as they are now. `digests`: the run was
    recorded with those of all files."""

    def __init__(self, root: Path, *, digests: bool = False) -> None:
        self._root = root
        self._recorded: Recorded = {}
        self._torn = ""
        path = root / MANIFEST
        self.there = os.path.lexists(path)
        try:
            self._recorded = untrusted_files.decoded(
                untrusted_files.content(path), dict[str, int | Content]
            )
        except (OSError, msgspec.DecodeError) as error:
            why = error.strerror if isinstance(error, OSError) else error
            self._torn = f"cannot be read: {why}"
        self._digests = {
            name.partition("/")[0]
            for name, was in self._recorded.items()
            if isinstance(was, Content)
        }
        self._ended = digests or _HISTORIES[0] in self._digests
        """Whether the manifest has the digests of all files, as those that this version writes at
        the end."""
        self.has_digests = self._ended or bool(self._digests)
        self._linked = {
            name.rpartition("/")[0] for name, was in self._recorded.items() if was == -1
        }

    def damage(self, *, of_ended: bool = False) -> list[Damage]:
        """Files that changed, that are missing, or that were added since the manifest was
        written.
        """
        if self._torn:
            return [Damage(path=MANIFEST, reason=self._torn)]
        if of_ended and _HISTORIES[0] not in self._recorded:
            return [Damage(path=MANIFEST, reason="it was written before the run ended")]
        names = [
            *self._recorded,
            *(
                name
                for name in (_name(self._root, path) for path in _judged_files(self._root))
                if name not in self._recorded and name.isprintable()
            ),
        ]
        with ThreadPoolExecutor(_READERS) as readers:
            reasons = readers.map(self._wrong, names)
            return [
                Damage(path=name, reason=reason)
                for name, reason in zip(names, reasons, strict=True)
                if reason
            ]

    def distrusts(self, path: Path) -> str:
        """Why a file must not be read; empty if it may be: it is as it was, or has no digest."""
        name = _name(self._root, path)
        was = self._recorded.get(name)
        never = isinstance(was, int) and not self._lost_digest(path, was)
        return "" if never else self._wrong(name)

    def _lost_digest(self, path: Path, was: int | Content) -> bool:
        return self._ended and isinstance(was, int) and not path.parent.is_symlink()

    def _wrong(self, name: str) -> str:
        path, was = self._root / name, self._recorded.get(name)
        if was is None:
            return self._unexpected(name, path)
        try:
            if kind := untrusted_files.special(path):
                return f"is {kind}; it was a file when the run ended"
            size = path.lstat().st_size
            if self._lost_digest(path, was):
                return f"has no digest in {MANIFEST}; it had one when the run ended"
            if was == -1 or size == was:
                return ""
            expected = was.bytes if isinstance(was, Content) else was
            if size != expected:
                return f"has {size} bytes, had {expected} when the run ended"
            if content(path) != was:
                return "has other bytes than when the run ended"
        except ValueError:
            return "no file can be called this"
        except OSError as error:
            if os.path.lexists(path):
                return f"cannot be read: {error.strerror}; it was a file when the run ended"
            return "missing: it was there when the run ended"
        return ""

    def _unexpected(self, name: str, path: Path) -> str:
        """Why a file without a digest is damage: the manifest has the digests of all other files
        of its kind. Empty if it is none."""
        first = name.partition("/")[0]
        complete = self._ended or (first == "captures" and first in self._digests)
        if (
            not complete
            or name.rpartition("/")[0] in self._linked
            or path.is_dir()
            or not os.path.lexists(path)
        ):
            return ""
        if self._torn:
            return f"nothing says what it had when the run ended: {MANIFEST} {self._torn}"
        return "was not there when the run ended"
