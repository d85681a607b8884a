"""Makes a root file system from this machine's files, and an image of it, for machines that reach
no image registry. It has no shell: only the caller's files, and the shared objects that they
need."""

from __future__ import annotations

import re
import shutil
import subprocess
import tarfile
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final

from linkflap.harness.machine import cache
from linkflap.harness.model.errors import EnvironmentFailure, SetupError
from linkflap.harness.runtimes.docker import engine

# Loaded by name at run time, so that ldd does not list them: host name lookups, and dependencies of
# native codecs.
_BY_NAME: Final = (
    "libnss_dns.so.2",
    "libnss_files.so.2",
    "libresolv.so.2",
    "libgcc_s.so.1",
    "libstdc++.so.6",
)
_FOLDERS: Final = ("bin", "etc", "tmp", "proc", "sys", "dev", "opt", "usr/bin", "usr/local/bin")
_AT_ONCE: Final = 100


def image(tag: str, fill: Callable[[Path, Path], None], *, changes: Sequence[str]) -> None:
    """Makes an image of the files that `fill(root, scratch folder)` writes; `changes` are
    Dockerfile lines. Raises SetupError."""
    with tempfile.TemporaryDirectory(dir=cache.folder(), prefix=".root-") as scratch:
        root = Path(scratch) / "root"
        for folder in _FOLDERS:
            (root / folder).mkdir(parents=True)
        (root / "etc/passwd").write_text("root:x:0:0::/:/bin/false\n")
        (root / "etc/group").write_text("root:x:0:\n")
        (root / "etc/nsswitch.conf").write_text("hosts: files dns\n")
        fill(root, Path(scratch))
        archive = Path(scratch) / "root.tar"
        with tarfile.open(archive, "w") as tar:
            tar.add(root, arcname=".", filter=_plain)
        repository, _, version = tag.partition(":")
        with engine.asked(f"import {tag}", kind=SetupError):
            engine.client().api.import_image_from_file(
                str(archive), repository=repository, tag=version, changes=list(changes)
            )


def link(root: Path, binaries: Iterable[Path], *, inside: Path) -> None:
    """Copies the shared objects that `binaries` need into `root`, except those in `inside`, which
    are there already."""
    for library in sorted(set(_libraries(list(binaries), inside))):
        target = root / library.relative_to("/")
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(library, target)


def _libraries(binaries: Sequence[Path], inside: Path) -> Iterator[Path]:
    """This machine's shared objects for these programs, including the loader and those loaded by
    name."""
    found: set[Path] = set()
    for begin in range(0, len(binaries), _AT_ONCE):
        found |= _linked(binaries[begin : begin + _AT_ONCE], inside)
    yield from found
    for folder in {library.parent for library in found}:
        yield from (folder / by_name for by_name in _BY_NAME if (folder / by_name).exists())


def _linked(binaries: Sequence[Path], inside: Path) -> set[Path]:
    try:
        done = subprocess.run(
            ["ldd", *binaries], capture_output=True, text=True, timeout=60, check=False
        )
    except (OSError, subprocess.SubprocessError) as error:
        raise EnvironmentFailure(
            f"ldd {binaries[0]} failed ({error}); install it, or give images build a --base"
        ) from error
    paths = (
        Path(path) for path in re.findall(r"(?:=> |^\s+)(/\S+)(?= \(0x)", done.stdout, re.MULTILINE)
    )
    return {path for path in paths if not path.is_relative_to(inside)}


def _plain(entry: tarfile.TarInfo) -> tarfile.TarInfo:
    """Owned by root, readable by everyone, whoever made it."""
    entry.uid = entry.gid = 0
    entry.uname = entry.gname = "root"
    entry.mode = (
        0o1777
        if entry.name == "./tmp"
        else entry.mode | 0o444 | (0o111 if entry.isdir() or entry.mode & 0o100 else 0)
    )
    return entry
