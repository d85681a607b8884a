"""Folders whose content linkflap trusts: it runs, deletes or connects to what they name.

Such a folder belongs to this user or root, and nobody else can write in it, nor in any folder on
the way to it. A folder where everybody may make things, but nobody may replace another's (/tmp:
sticky), may be on the way: what follows must belong to this user or root. A symbolic link is
followed where nobody else can have put it there. A group may write if it is root's, or has nobody
but this user in it.
"""

from __future__ import annotations

import contextlib
import grp
import os
import pwd
import shutil
import stat
import tempfile
from functools import cache
from pathlib import Path
from typing import Final

_FLAGS: Final = os.O_CLOEXEC | os.O_DIRECTORY | getattr(os, "O_PATH", os.O_RDONLY)
_MOST_LINKS: Final = 40


class Untrusted(Exception):
    """Another user can change a file at a path, or could have put it there; the text names user and
    path."""


def check(path: Path, *, make: bool = False) -> None:
    """Raises Untrusted if others could have written into the folder, OSError if the path is no
    folder. With `make`, missing folders are created, for this user alone.
    """
    os.close(_opened(path, make=make))


def remove(path: Path) -> bool:
    """Removes a folder and its content. Returns whether it existed. Raises Untrusted instead of
    following a link that another user may have put in its place.
    """
    try:
        parent = _opened(path.parent, last=False)
    except OSError:
        return False
    try:
        status = os.stat(path.name, dir_fd=parent, follow_symlinks=False)
        _refuse_owner(status, path)
        shutil.rmtree(path.name, ignore_errors=True, dir_fd=parent)
        return True
    except FileNotFoundError:
        return False
    finally:
        os.close(parent)


def temporary() -> Path:
    """The directory for temporary files. Raises Untrusted where others can replace what this user
    makes in it."""
    path = Path(tempfile.gettempdir())
    os.close(_opened(path, last=False))
    return path


def _opened(path: Path, *, make: bool = False, last: bool = True) -> int:
    """Opens the folder step by step, each relative to the open parent, so that nobody can replace a
    step after it was checked. `last`: the folder itself must not be writable by everybody.
    """
    steps = [*reversed(path.absolute().parts[1:])]
    here, links, walked = os.open("/", _FLAGS), 0, Path("/")
    try:
        _refuse(os.fstat(here), walked, last=last and not steps)
        while steps:
            step = steps.pop()
            walked = walked / step
            if make:
                with contextlib.suppress(FileExistsError):
                    os.mkdir(step, 0o700, dir_fd=here)
            status = os.stat(step, dir_fd=here, follow_symlinks=False)
            if stat.S_ISLNK(status.st_mode):
                _refuse_owner(status, walked)
                links += 1
                if links > _MOST_LINKS:
                    raise Untrusted(f"{walked} leads through too many symbolic links")
                if who := _writers(os.fstat(here)):
                    raise Untrusted(f"{walked} is a symbolic link, where {who} can make one")
                target = Path(os.readlink(step, dir_fd=here))
                walked = Path("/") if target.is_absolute() else walked.parent
                steps += reversed(target.parts[1:] if target.is_absolute() else target.parts)
                before, here = here, os.open("/", _FLAGS) if target.is_absolute() else os.dup(here)
            else:
                before, here = here, os.open(step, _FLAGS | os.O_NOFOLLOW, dir_fd=here)
                _refuse(os.fstat(here), walked, last=last and not steps)
            os.close(before)
    except BaseException:
        os.close(here)
        raise
    return here


def _refuse(status: os.stat_result, path: Path, *, last: bool) -> None:
    _refuse_owner(status, path)
    if (who := _writers(status)) and (last or not status.st_mode & stat.S_ISVTX):
        raise Untrusted(f"{who} may write in {path}")


def _writers(status: os.stat_result) -> str:
    """Other users who may create entries in a folder, in words; empty if there are none."""
    if status.st_mode & stat.S_IWOTH:
        return "everybody"
    group = bool(status.st_mode & stat.S_IWGRP) and not _own_group(status.st_gid)
    return "a group" if group else ""


def _refuse_owner(status: os.stat_result, path: Path) -> None:
    if status.st_uid not in (0, os.geteuid()):
        raise Untrusted(f"{path} belongs to user {status.st_uid}")


@cache
def _own_group(number: int) -> bool:
    """Whether nobody but this user and root is in a group, as in the one that many systems make for
    each user."""
    if number == 0:
        return True
    try:
        user, group = pwd.getpwuid(os.geteuid()), grp.getgrgid(number)
    except KeyError:
        return False
    alone = group.gr_name == user.pw_name and number == user.pw_gid
    return alone and not {*group.gr_mem} - {user.pw_name}
