"""Reads what another user, machine or program may have written: run directories, suites and copied
logs.

Only regular files are opened: opening a FIFO would block, a device never ends, and a symbolic link
may lead out of the given folder. The size of a document and the length of a line are limited.
Undecodable content raises DecodeError, also if the decoder itself fails.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from io import BufferedReader
from pathlib import Path
from typing import BinaryIO, Final, TypeVar

import msgspec

LARGEST_DOCUMENT: Final = 256 << 20
"""Bytes of a file that is decoded as one."""
LONGEST_LINE: Final = 64 << 20
_END: Final = 64 << 10
_LONGEST_NAME: Final = 255
_KINDS: Final = {
    stat.S_IFIFO: "a FIFO",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
    stat.S_IFDIR: "a folder",
    stat.S_IFLNK: "a symbolic link",
}
A_LINK: Final = "is a symbolic link, not a regular file"
_READ: Final = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
_Value = TypeVar("_Value")


def opened(path: Path, *, root: Path | None = None) -> BufferedReader:
    """Opens a regular file to be read, in pieces of any size. With `root`, no folder between it and
    the file may be a link either.

    Raises OSError, also for what is no regular file; its strerror then says what it is.
    """
    folder = None if root is None else _folder(root, path.parent)
    try:
        name = path if folder is None else path.name
        _refuse(os.stat(name, dir_fd=folder, follow_symlinks=False), path)
        file = os.fdopen(os.open(name, _READ, dir_fd=folder), "rb")
    except ValueError as error:  # a NUL in a name that was read from a file
        raise OSError(errno.EINVAL, str(error), str(path)) from None
    finally:
        if folder is not None:
            os.close(folder)
    try:
        _refuse(os.fstat(file.fileno()), path)  # it may have been replaced since
    except OSError:
        file.close()
        raise
    return file


def _folder(root: Path, inside: Path) -> int:
    """An open folder below `root`, reached through folders alone."""
    flags = os.O_RDONLY | os.O_CLOEXEC | os.O_DIRECTORY
    here = os.open(root, flags)
    for part in inside.relative_to(root).parts:
        before = here
        try:
            if part == "..":
                raise OSError(errno.EINVAL, "leads out of its folder", str(inside))
            here = os.open(part, flags | os.O_NOFOLLOW, dir_fd=before)
        except ValueError as error:
            raise OSError(errno.EINVAL, str(error), str(inside)) from None
        finally:
            os.close(before)
    return here


def _refuse(status: os.stat_result, path: Path) -> None:
    if not stat.S_ISREG(status.st_mode):
        raise OSError(errno.EINVAL, f"is {_what(status)}, not a regular file", str(path))


def special(path: Path) -> str:
    """The kind of file at a path in words, empty for a regular file. Raises OSError if there is
    none.
    """
    status = path.lstat()
    return "" if stat.S_ISREG(status.st_mode) else _what(status)


def _what(status: os.stat_result) -> str:
    return _KINDS.get(stat.S_IFMT(status.st_mode), "a file")


def listed(root: Path, folder: Path, ending: str = "") -> list[Path]:
    """The entries of a folder below `root`, by name. Empty if it is no folder, or is reached
    through a link. Names that are not UTF-8 are left out, because they cannot be written into a
    report.
    """
    try:
        here = _folder(root, folder)
    except OSError:
        return []
    try:
        names = os.listdir(here)
    finally:
        os.close(here)
    return [folder / name for name in sorted(names) if name.endswith(ending) and name.isprintable()]


def is_name(text: str) -> bool:
    """Whether a text that was read from a file can be one step of a path."""
    return (
        0 < len(text) <= _LONGEST_NAME
        and "/" not in text
        and "\0" not in text
        and text not in (".", "..")
    )


def special_entries(root: Path) -> Iterator[tuple[str, str]]:
    """Entries below a folder that are neither regular files nor folders: (path within the folder,
    kind in words). Links are not followed.
    """
    for folder, folders, files in os.walk(root):
        for name in sorted((*folders, *files)):
            path = Path(folder, name)
            try:
                status = path.lstat()
            except OSError:
                continue
            shown = str(path.relative_to(root))
            if not name.isprintable():
                yield ascii(shown)[1:-1], "has a name that cannot be printed"
            elif not (stat.S_ISREG(status.st_mode) or stat.S_ISDIR(status.st_mode)):
                yield shown, f"is {_what(status)}, not a regular file"


def content(path: Path, *, root: Path | None = None, most: int = LARGEST_DOCUMENT) -> bytes:
    """The bytes of a file that has at most `most`. Raises OSError."""
    with opened(path, root=root) as file:
        found = file.read(most + 1)
    if len(found) > most:
        raise OSError(errno.EFBIG, f"has more than {most >> 20} MiB", str(path))
    return found


def text(path: Path, *, most: int) -> str:
    """The content of a file as text; what is not UTF-8 is replaced. Raises OSError."""
    return content(path, most=most).decode(errors="replace")


def last_lines(path: Path, most: int) -> list[str]:
    """The last lines that a program printed, however much it printed. A line that begins before the
    last 64 KiB is left out. Raises OSError."""
    with opened(path) as file:
        longer = os.fstat(file.fileno()).st_size > _END
        if longer:
            file.seek(-_END, os.SEEK_END)
        found = file.read(_END).decode(errors="replace").splitlines()
    return (found[longer:] or ["(one line of more than 64 KiB)"] * longer)[-most:]


def lines(file: BinaryIO) -> Iterator[bytes]:
    """The lines of a file. One that is too long is the last, and does not end."""
    while line := file.readline(LONGEST_LINE):
        yield line
        if len(line) == LONGEST_LINE and not line.endswith(b"\n"):
            return


def decoded(document: bytes, kind: type[_Value] | msgspec.json.Decoder[_Value]) -> _Value:
    """A JSON document as a value of a type. Raises msgspec.DecodeError, and nothing else."""
    decoder = kind if isinstance(kind, msgspec.json.Decoder) else msgspec.json.Decoder(kind)
    try:
        return decoder.decode(document)
    except RecursionError:
        raise msgspec.DecodeError("it is nested too deeply") from None
    except UnicodeDecodeError as error:
        raise msgspec.DecodeError(f"it is not UTF-8: {error.reason}") from None
