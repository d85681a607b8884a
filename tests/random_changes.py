"""Random changes of run directories: of bytes, logs, JSON and files; each a function of its random
numbers."""

from __future__ import annotations

import contextlib
import json
import os
import random
import re
import shutil
import socket
import struct
import zlib
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import cramjam
import msgspec
import zstandard
from crc32c import crc32c

from linkflap.harness.log import layout
from linkflap.harness.rundir import inventory
from linkflap.spark_verify.read.plan import RunPlan

NUMBERS: Final = (
    0, 1, -1, -2, 127, 128, 2**15, 2**31 - 1, -(2**31), 2**31, 2**32, 2**53, 2**62, 2**63 - 1,
    -(2**63), 2**63, 2**64, 10**30,
)  # fmt: skip
TEXTS: Final = (
    "", "A", "B", "A->B", "../../../etc", "/etc/passwd", "a/b", ".", "..", "\0", "\x1b[2J\x1b[31m",
    "\u202e", "\n", "|", "`", "<script>", "&", "9" * 400, "x" * 70_000, "\ud800", "\U0001f600",
    "A.orders-0", "__transaction_state", "-1", "nan", "%s", "{}",
)  # fmt: skip


# --- changes of bytes ------------------------------------------------------------------------


def change_bytes(rng: random.Random, data: bytes) -> bytes:
    """One or a few changes, as a disk, a copy, or somebody with an editor makes them."""
    for _ in range(rng.choice((1, 1, 1, 2, 5))):
        data = rng.choice(_BYTES)(rng, data)
    return data


def _at(rng: random.Random, data: bytes) -> int:
    return rng.randrange(len(data) + 1)


def _span(rng: random.Random, data: bytes) -> tuple[int, int]:
    begin = _at(rng, data)
    return begin, min(len(data), begin + rng.choice((1, 4, 61, 1000, 100_000)))


def _flip(rng: random.Random, data: bytes) -> bytes:
    if not data:
        return b"\0"
    changed = bytearray(data)
    for _ in range(rng.choice((1, 1, 8))):
        changed[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
    return bytes(changed)


def _shorten(rng: random.Random, data: bytes) -> bytes:
    return data[: _at(rng, data)]


def _behead(rng: random.Random, data: bytes) -> bytes:
    return data[_at(rng, data) :]


def _remove(rng: random.Random, data: bytes) -> bytes:
    begin, end = _span(rng, data)
    return data[:begin] + data[end:]


def _double(rng: random.Random, data: bytes) -> bytes:
    begin, end = _span(rng, data)
    at = _at(rng, data)
    return data[:at] + data[begin:end] + data[at:]


def _swap(rng: random.Random, data: bytes) -> bytes:
    a, b, c = sorted(_at(rng, data) for _ in range(3))
    return data[:a] + data[b:c] + data[a:b] + data[c:]


def _noise(rng: random.Random, data: bytes) -> bytes:
    begin, end = _span(rng, data)
    put = rng.choice((rng.randbytes(end - begin), bytes(end - begin), b"\xff" * (end - begin)))
    return data[:begin] + put + data[end:]


def _insert(rng: random.Random, data: bytes) -> bytes:
    at = _at(rng, data)
    return data[:at] + rng.choice((b"\0" * 5000, rng.randbytes(7), b"\n", b"[" * 5000)) + data[at:]


def _number(rng: random.Random, data: bytes) -> bytes:
    at, form = _at(rng, data), rng.choice((">b", ">h", ">i", ">q"))
    size = struct.calcsize(form)
    put = struct.pack(form, (rng.choice(NUMBERS) + (1 << 63)) % (1 << (8 * size - 1)))
    return data[:at] + put + data[at + size :]


_BYTES: Final = (_flip, _shorten, _behead, _remove, _double, _swap, _noise, _insert, _number)


# --- changes of logs, under a right CRC ---------------------------------------------------------


def change_log(rng: random.Random, data: bytes) -> bytes:
    """A change of one batch, whose CRC then is right again: what is below it is read."""
    starts = list(_batches(data))
    if not starts or rng.random() < 0.2:
        return change_bytes(rng, data)
    begin = rng.choice(starts)
    end = begin + layout.LENGTH_ENDS + struct.unpack_from(">i", data, begin + layout.LENGTH_AT)[0]
    made = rng.choice((_header, _header, _body, _packed, _bomb))(rng, data[begin:end])
    sealed = bytearray(made)
    struct.pack_into(">i", sealed, layout.LENGTH_AT, len(made) - layout.LENGTH_ENDS)
    struct.pack_into(">I", sealed, layout.CRC_AT, crc32c(made[layout.CRC_FROM :]))
    return data[:begin] + bytes(sealed) + data[end:]


def _batches(data: bytes) -> Iterator[int]:
    at = 0
    while len(data) - at >= layout.HEADER_SIZE:
        (length,) = struct.unpack_from(">i", data, at + layout.LENGTH_AT)
        if length < layout.SMALLEST_LENGTH or at + layout.LENGTH_ENDS + length > len(data):
            return
        yield at
        at += layout.LENGTH_ENDS + length


def _header(rng: random.Random, batch: bytes) -> bytes:
    at, form = rng.choice(
        ((0, ">q"), (12, ">i"), (16, ">b"), (21, ">h"), (23, ">i"), (27, ">q"), (35, ">q"),
         (43, ">q"), (51, ">h"), (53, ">i"), (57, ">i"))
    )  # fmt: skip
    size = struct.calcsize(form)
    value = rng.choice((*NUMBERS, rng.getrandbits(8 * size), rng.randrange(64)))
    put = (value % (1 << (8 * size))).to_bytes(size, "big")
    return batch[:at] + put + batch[at + size :]


def _body(rng: random.Random, batch: bytes) -> bytes:
    return batch[: layout.HEADER_SIZE] + change_bytes(rng, batch[layout.HEADER_SIZE :])


_PACKERS: Final[Sequence[tuple[int, Callable[[bytes], bytes]]]] = (
    (1, lambda data: zlib.compress(data, 9, 31)),
    (2, lambda data: bytes(cramjam.snappy.compress_raw(data))),
    (2, lambda data: b"\x82SNAPPY\0" + struct.pack(">iii", 1, 1, len(data)) + data),
    (3, lambda data: bytes(cramjam.lz4.compress(data))),
    (4, zstandard.ZstdCompressor().compress),
    (7, bytes),
)


def _with_codec(batch: bytes, codec: int, body: bytes) -> bytes:
    (attributes,) = struct.unpack_from(">h", batch, layout.CRC_FROM)
    made = struct.pack(">h", attributes & ~layout.CODEC_MASK | codec)
    return batch[: layout.CRC_FROM] + made + batch[layout.LAST_DELTA_AT : layout.HEADER_SIZE] + body


def _packed(rng: random.Random, batch: bytes) -> bytes:
    codec, pack = rng.choice(_PACKERS)
    body = pack(batch[layout.HEADER_SIZE :])
    return _with_codec(batch, codec, change_bytes(rng, body) if rng.random() < 0.5 else body)


def _bomb(rng: random.Random, batch: bytes) -> bytes:
    if rng.random() > 0.02:  # each costs a tenth of a second
        return _body(rng, batch)
    codec, pack = rng.choice(_PACKERS)
    size = rng.choice((1 << 20, 80 << 20))
    part = rng.choice((b"\0", b"\x0c\0\0\0\x01\x01\0"))
    body = pack(part * (size // len(part))) if codec not in (2, 7) else b"\xff\xff\xff\xff\x0f"
    made = _with_codec(batch, codec, body * rng.choice((1, 3)))
    return made[:57] + struct.pack(">i", rng.choice((1, size // 7, 2**31 - 1))) + made[61:]


# --- changes of JSON ----------------------------------------------------------------------------


def change_json(rng: random.Random, data: bytes) -> bytes:
    """A change of one value of a document, or of one line of some."""
    if rng.random() < 0.2:
        return change_bytes(rng, data)
    try:
        lines = [json.loads(data)]
        by_line = False
    except (ValueError, RecursionError):
        lines, by_line = data.split(b"\n"), True
    if by_line:
        at = rng.randrange(len(lines))
        if rng.random() < 0.2:
            return b"\n".join(rng.choice(_LINES)(rng, lines, at))
        with contextlib.suppress(ValueError, RecursionError):
            lines[at] = _encoded(_changed(rng, json.loads(lines[at])))
        return b"\n".join(lines)
    return _encoded(_changed(rng, lines[0]))


def _encoded(value: Any) -> bytes:
    return json.dumps(value).encode() if value is not _DEEP else b"[" * 50_000 + b"]" * 50_000


_LINES: Final[Sequence[Callable[[random.Random, list[bytes], int], list[bytes]]]] = (
    lambda rng, lines, at: [*lines[:at], *lines[at + 1 :]],
    lambda rng, lines, at: [*lines[:at], lines[at], *lines[at:]],
    lambda rng, lines, at: rng.sample(lines, len(lines)),
    lambda rng, lines, at: [*lines[:at], b'{"a":' * 50_000, *lines[at:]],
    lambda rng, lines, at: [*lines[:at], lines[at] + b"\xff\xfe", *lines[at + 1 :]],
    lambda rng, lines, at: [*lines[:at], lines[at][:20]],
)
_DEEP: Final = object()


def _value(rng: random.Random) -> Any:
    return rng.choice(
        (*NUMBERS, *TEXTS, None, True, 0.5, 1e308, [], {}, [[]], {"a": 1}, [0] * 3000, _DEEP)
    )


def _changed(rng: random.Random, document: Any) -> Any:
    """The document with one value of it changed."""
    positions = list(_positions(document))
    if not positions:
        return _value(rng)
    holder, key = rng.choice(positions)
    match rng.randrange(5):
        case 0:
            del holder[key]
        case 1 if isinstance(holder, list):
            holder.insert(rng.randrange(len(holder) + 1), holder[key])
        case 2:
            other, position = rng.choice(positions)
            with contextlib.suppress(KeyError, IndexError):
                holder[key], other[position] = other[position], holder[key]
        case 3 if isinstance(holder[key], int) and not isinstance(holder[key], bool):
            holder[key] += rng.choice((1, -1, 1000, -1000))
        case _:
            value = _value(rng)
            if value is _DEEP:
                return _DEEP
            holder[key] = value
    return document


def _positions(value: Any) -> Iterator[tuple[Any, Any]]:
    waiting = [value]
    while waiting:
        holder = waiting.pop()
        if isinstance(holder, dict | list):
            keys = list(holder) if isinstance(holder, dict) else range(len(holder))
            for key in keys:
                yield holder, key
                waiting.append(holder[key])


def change_text(rng: random.Random, data: bytes) -> bytes:
    """A change of one word of a text, such as TOML."""
    if rng.random() < 0.5:
        return change_bytes(rng, data)
    words = re.split(rb"(\W+)", data)
    word = rng.choice((*map(str, NUMBERS), *TEXTS, "[" * 5000, "true", "1e400", "nan", "-inf"))
    words[rng.randrange(len(words))] = word.encode("utf-8", "surrogatepass")
    return b"".join(words)


def change_of(name: str) -> Callable[[random.Random, bytes], bytes]:
    if name.endswith(".log"):
        return change_log
    return change_json if name.endswith((".json", ".jsonl")) else change_text


# --- changes of files ---------------------------------------------------------------------------


@dataclass(slots=True)
class Directory:
    """A run directory that is changed and made good again, file by file."""

    root: Path
    files: dict[str, bytes] = field(default_factory=dict)
    touched: set[str] = field(default_factory=set)
    planned: RunPlan | None = None
    """The plan of the run without changes, and without a manifest."""

    @classmethod
    def of(cls, root: Path) -> Directory:
        every = sorted(path for path in root.rglob("*") if path.is_file())
        names = [str(path.relative_to(root)) for path in every]
        files = {n: (root / n).read_bytes() for n in names if not n.startswith("logs/")}
        return cls(root, files)

    def change(self, rng: random.Random) -> list[str]:
        """Changes some files, and says what was done. Mostly the manifest then says that this is
        what was recorded: what is not as recorded is not read."""
        done = [self._change(rng) for _ in range(rng.choice((1, 1, 1, 2, 4)))]
        sealed = (self.root / "run.json").exists() and "manifest.json" not in self.touched
        if sealed and rng.random() < 0.9:
            self.touched.add("manifest.json")
            seal(self.root)
        return done

    def _change(self, rng: random.Random) -> str:
        by_kind = defaultdict(list)
        for name in self.files:
            by_kind[name.split("/")[0]].append(name)
        name = rng.choice(by_kind[rng.choice(sorted(by_kind))])
        if (self.root / name).is_symlink() or not (self.root / name).is_file():
            return "nothing"  # of what was replaced already
        if (self.root / name).stat().st_size > 100 << 20:
            return "nothing"  # it is sparse already
        if rng.random() < 0.15:
            how = rng.choice(sorted(_FILES))
            with contextlib.suppress(OSError):
                _FILES[how](self, rng, name)
            return f"{how} {name}"
        path = self.root / name
        with contextlib.suppress(OSError):
            data = path.read_bytes()
            made = change_of(name)(rng, data)
            self.touched.add(name)
            path.write_bytes(made)
        return f"change {name}"

    def gone(self, name: str) -> Path:
        self.touched.add(name)
        (self.root / name).unlink()
        return self.root / name

    def restore(self) -> None:
        """As it was."""
        if "" in self.touched:  # its folders too
            shutil.rmtree(self.root)
            self.touched = set(self.files)
        for name in self.touched:
            path = self.root / name
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            elif os.path.lexists(path):
                path.unlink()
            if name in self.files:
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(self.files[name])
        self.touched = set()


def seal(root: Path) -> None:
    """The manifest says that what is there is what was recorded."""
    with contextlib.suppress(OSError, ValueError):
        recorded = json.dumps(msgspec.to_builtins(inventory(root)))
        (root / "manifest.json").write_text(recorded)


def _fifo(directory: Directory, rng: random.Random, name: str) -> None:
    os.mkfifo(directory.gone(name))


def _link(directory: Directory, rng: random.Random, name: str) -> None:
    target = rng.choice(("/dev/zero", "/etc/passwd", Path(name).name, "..", "/nowhere"))
    directory.gone(name).symlink_to(target)


def _folder(directory: Directory, rng: random.Random, name: str) -> None:
    directory.gone(name).mkdir()


def _socket(directory: Directory, rng: random.Random, name: str) -> None:
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(directory.gone(name)))


def _missing(directory: Directory, rng: random.Random, name: str) -> None:
    directory.gone(name)


def _renamed(directory: Directory, rng: random.Random, name: str) -> None:
    data = (directory.root / name).read_bytes()
    before = directory.gone(name)
    _put(directory, before.with_name(_odd_name(rng, before.name)), data)


def _copied(directory: Directory, rng: random.Random, name: str) -> None:
    before = directory.root / name
    _put(directory, before.with_name(_odd_name(rng, before.name)), before.read_bytes())


def _elsewhere(directory: Directory, rng: random.Random, name: str) -> None:
    other = rng.choice(sorted(directory.files))
    directory.touched.add(name)
    (directory.root / name).write_bytes(directory.files[other])


def _linked_folder(directory: Directory, rng: random.Random, name: str) -> None:
    folder = (directory.root / name).parent
    if folder != directory.root:
        directory.touched.add("")
        folder.rename(directory.root / "moved")
        folder.symlink_to(rng.choice((directory.root / "moved", folder, Path("/"))))


def _sparse(directory: Directory, rng: random.Random, name: str) -> None:
    directory.touched.add(name)
    os.truncate(directory.root / name, rng.choice((1 << 20, 1 << 28, 1 << 33)))


def _put(directory: Directory, path: Path, data: bytes) -> None:
    directory.touched.add(str(path.relative_to(directory.root)))
    path.write_bytes(data)


def _odd_name(rng: random.Random, name: str) -> str:
    stem, dot, ending = name.rpartition(".")
    number = rng.choice((0, 1, 2**62, 10**19, 10**20))
    return rng.choice(
        (f"{number:020}.log", f"x{dot}{ending}", f"{stem}\x1b[31m{dot}{ending}", f"{stem}\n.jsonl",
         f"{stem}\udcff{dot}{ending}", f"{'n' * 200}{dot}{ending}", ending, f"-1{dot}{ending}")
    )  # fmt: skip


_FILES: Final[dict[str, Callable[[Directory, random.Random, str], None]]] = {
    "FIFO": _fifo, "link": _link, "folder": _folder, "socket": _socket, "missing": _missing,
    "renamed": _renamed, "copied": _copied, "other file": _elsewhere,
    "linked folder": _linked_folder, "sparse": _sparse,
}  # fmt: skip
