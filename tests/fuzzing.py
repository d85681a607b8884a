"""Feeds run directories that were changed at random to all that reads them.

    python -m tests.fuzzing --count 1000000             what reads: logs, rows, documents
    python -m tests.fuzzing --count 5000 judging        all checks, the verdict and the reports too
    python -m tests.fuzzing --count 20000 suites        suite directories: results, resuming, merge
    python -m tests.fuzzing --count 20000 copied        Kafka log directories, recorded and planned
    python -m tests.fuzzing --count 5000 shapes         rows and batches by hypothesis: well formed,
                                                        and of extreme values (tests.extremes)

What comes out is a verdict or a LinkflapError, which is one sentence: no other exception, no wait
beyond seconds, and at most 2 GiB of memory. The changes are a function of the seed and the number:
`--seed S --first N --count 1` does one again. The run directories are small faithful stories
(`tests.faithful`), or those that are given with `--runs`.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import re
import resource
import shutil
import signal
import socket
import struct
import sys
import tempfile
import time
import traceback
import zlib
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence, Set
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any, Final, Literal, cast

import click
import cramjam
import hypothesis
import msgspec
import pyarrow as pa
import zstandard
from crc32c import crc32c
from hypothesis import strategies as st

from linkflap.chaos import scenario_file
from linkflap.chaos.generator import GeneratorBounds, baseline
from linkflap.cli import suite, suite_work
from linkflap.harness.capture import folders
from linkflap.harness.capture.logs_named import LogsRequest
from linkflap.harness.log import layout
from linkflap.harness.model.errors import InputError, LinkflapError
from linkflap.harness.model.topology import LinkSpec
from linkflap.harness.rundir import inventory
from linkflap.judging import page
from linkflap.report import junit
from linkflap.report.table import show
from linkflap.spark_verify.checks.finding_rows import FINDINGS, FindingRow, damaged, parsed
from linkflap.spark_verify.read.log_rows import batch_rows
from linkflap.spark_verify.read.pieces import KEY, PARTS, Piece, bundles, history_rows, pieces
from linkflap.spark_verify.read.plan import UNFORESEEN, RunPlan, plan
from linkflap.spark_verify.spark.job import combiner, partition_judge, with_needed_records
from linkflap.spark_verify.verdict.judge import Judgement, judge
from linkflap.spark_verify.verify import checks_of, has_inputs, keep
from linkflap.suite import nights, regression
from linkflap.suite.explore import Suite
from linkflap.suite.folder import RunResult, SuiteFolder
from linkflap.suite.plan import Plan
from linkflap.suite.reports import REPORT, SMALLEST, FailureReport
from linkflap.suite.triage import CHOSEN, triage
from linkflap.suite.work import Finished, Task, Workers
from tests import extremes
from tests.faithful.spec import spec
from tests.faithful.stories import story

What = Literal["reading", "judging", "suites", "copied", "alone"]
WITHIN: Final = 30
"""Processor seconds for one input; ten times as many of the clock, for what waits."""
MOST_MEMORY: Final = 2 << 30
NUMBERS: Final = (
    0, 1, -1, -2, 127, 128, 2**15, 2**31 - 1, -(2**31), 2**31, 2**32, 2**53, 2**62, 2**63 - 1,
    -(2**63), 2**63, 2**64, 10**30,
)  # fmt: skip
TEXTS: Final = (
    "", "A", "B", "A->B", "../../../etc", "/etc/passwd", "a/b", ".", "..", "\0", "\x1b[2J\x1b[31m",
    "\u202e", "\n", "|", "`", "<script>", "&", "9" * 400, "x" * 70_000, "\ud800", "\U0001f600",
    "A.orders-0", "__transaction_state", "-1", "nan", "%s", "{}",
)  # fmt: skip


class TooSlow(BaseException):
    """One input took too long."""


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


def _change_of(name: str) -> Callable[[random.Random, bytes], bytes]:
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
            _seal(self.root)
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
            made = _change_of(name)(rng, data)
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


def _seal(root: Path) -> None:
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


# --- what reads ---------------------------------------------------------------------------------


def read_changed(root: Path, changed: Set[str]) -> RunPlan:
    """Plans a run, and reads the logs and rows of history that were changed, as Spark's tasks
    do."""
    planned = plan(root)
    parts = {name.split("/")[0] for name in changed}
    every = [
        Piece(
            replicas=[
                c for c in piece.replicas if changed & {os.path.relpath(p, root) for p in c.paths}
            ],
            parts=[part for part in piece.parts if part.part in parts],
        )
        for piece in pieces([planned])
    ]
    for piece in every:
        for _ in bundles(piece):
            pass
    return planned


def read_one(directory: Directory, planned: RunPlan, rng: random.Random) -> str:
    """Changes one file, and reads it alone: a log, rows of a history, or a document. What was
    done."""
    names = [name for name in directory.files if name != "manifest.json"]
    name = rng.choice(names)
    path = directory.root / name
    directory.touched.add(name)
    data = directory.files[name]
    path.write_bytes(_change_of(name)(rng, data))
    part = name.split("/")[0]
    if part in PARTS:
        for _ in history_rows(directory.root, part):
            pass
    elif name.endswith(".log"):
        for _ in batch_rows([c for c in planned.replicas if str(path) in c.paths]):
            pass
    else:
        plan(directory.root)
    return name


def judged(root: Path) -> Judgement:
    """What `verify` does, in this process and without Spark."""
    checks = [check for check in checks_of(root) if has_inputs(root, check)]
    planned = with_needed_records(plan(root), checks)
    groups: dict[tuple[Any, ...], list[pa.RecordBatch]] = defaultdict(list)
    for piece in pieces([planned]):
        for batch in bundles(piece):
            for row in range(len(batch)):
                key = tuple(batch[name][row].as_py() for name in KEY)
                groups[key].append(batch.slice(row, 1))
    kernels = partition_judge([planned], checks)
    rows = [damaged(planned.run, d.path, d.reason) for d in planned.damage]
    found: dict[tuple[Any, ...], list[pa.RecordBatch]] = defaultdict(list)
    for key, batches in groups.items():
        for batch in kernels(tuple(pa.scalar(part) for part in key), iter(batches)):
            for row in range(len(batch)):
                one = batch.slice(row, 1)
                found[tuple(one[n][0].as_py() for n in ("run", "check", "together"))].append(one)
    combine = combiner(checks)
    for key, batches in found.items():
        for batch in combine(tuple(pa.scalar(part) for part in key), iter(batches)):
            rows += [parsed(row) for row in pa.Table.from_batches([batch], FINDINGS).to_pylist()]
    return _kept(judge(root, rows, checks_of(root), planned=planned), rows, root)


SHARDS: Final = ("0-2", "1-2")


def suited(root: Path) -> None:
    """What `suite --resume`, `--after` and `suite merge` read of the shards of a suite; a replay is
    a run without a verdict."""
    for name in SHARDS:
        with contextlib.suppress(InputError):
            folder = suite.resumed_plan(root / name, allow_commands=False)
            with folder.held():
                Suite(folder=folder, works=cast(Workers, NoWorkers()), say=_nothing)._left_over()
                if folder.plan.replays < 100:
                    triage(folder, cast(Workers, NoWorkers()), _nothing)
                suite_work._said(folder, suite_work._came_to(folder), root / "junit.xml", "")
                nights.following(Plan(name="nightly", seed=7, seconds=60), folder)
    merged = root.with_name(root.name + "-merged")
    shutil.rmtree(merged, ignore_errors=True)
    suite_work.merge([root / name for name in SHARDS], merged, root / "junit.xml")


class NoWorkers:
    """Record nothing: every run ends at once, without a verdict."""

    def __init__(self) -> None:
        self._queue: list[Task] = []
        self.start = self._queue.append

    @property
    def idle(self) -> bool:
        return not self._queue

    room = True

    def step(self, *, more: object, done: Callable[[Finished], None]) -> None:
        if self._queue:
            task = self._queue.pop()
            done(Finished(task=task, document=None, error="", seconds=1.0, again=0))


def _nothing(text: str) -> None:
    pass


def copied(root: Path) -> RunPlan:
    """What `verify --logs` reads of two copied log directories, up to the checks."""
    run = root.with_name(root.name + "-run")
    shutil.rmtree(run, ignore_errors=True)
    asked = LogsRequest(
        logs={name: root / name for name in "AB"},
        links=[LinkSpec(source="A", destination="B")],
        promotions={},
    )
    folders.record(run, asked, "linkflap verify --logs")
    planned = plan(run)
    for piece in pieces([planned]):
        for _ in bundles(piece):
            pass
    return planned


def _kept(judgement: Judgement, rows: Sequence[FindingRow], root: Path) -> Judgement:
    out = root.with_name(root.name + "-verdict")
    kept = keep(judgement, rows, out)
    page.write(kept)
    junit.write(out / "junit.xml", [kept.document])
    with open(os.devnull, "w", encoding="utf-8") as nowhere:
        show(kept.document, root, stream=nowhere)
    return kept


@dataclass(slots=True)
class Outcome:
    """What came out of some inputs."""

    counts: Counter[str] = field(default_factory=Counter)
    crashed: Counter[str] = field(default_factory=Counter)
    failures: list[str] = field(default_factory=list)

    def take(self, directory: Directory, what: What, rng: random.Random | None) -> None:
        """Reads or judges what was changed; `alone`: changes one file, and reads that."""
        match what:
            case "alone":
                assert directory.planned is not None
                assert rng is not None
                self.counts["alone"] += 1
                read_one(directory, directory.planned, rng)
            case "judging":
                result = judged(directory.root)
                self.counts[result.verdict.value] += 1
                self.crashed.update(
                    f"{check.name}: {check.reason}"[:150]
                    for check in result.judged.checks
                    if "Error" in check.reason
                )
            case "suites":
                with (
                    open(os.devnull, "w", encoding="utf-8") as nowhere,
                    contextlib.redirect_stdout(nowhere),
                    contextlib.redirect_stderr(nowhere),
                ):
                    suited(directory.root)
                self.counts["merged"] += 1
            case "copied":
                self.counts["damaged" if copied(directory.root).damage else "read"] += 1
            case _:
                found = read_changed(directory.root, directory.touched)
                self.counts["damaged" if found.damage else "read"] += 1


def once(
    directory: Directory, seed: int, number: int, outcome: Outcome, what: What = "reading"
) -> None:
    """One input: changes a directory, reads or judges it, and makes it good again."""
    rng = random.Random(f"{seed}/{number}")
    if what == "reading" and directory.planned is not None and number % 10:
        _tried(directory, outcome, f"{seed}/{number}", "alone", rng)
    else:
        did = directory.change(rng)
        _tried(directory, outcome, f"{seed}/{number} {did}", what)


def _tried(
    directory: Directory, outcome: Outcome, name: str, what: What, rng: random.Random | None = None
) -> None:
    """Reads or judges what was changed, and makes it good again."""
    signal.setitimer(signal.ITIMER_PROF, WITHIN)
    signal.setitimer(signal.ITIMER_REAL, 10 * WITHIN)
    try:
        outcome.take(directory, what, rng)
    except LinkflapError as error:
        outcome.counts["refused"] += 1
        if not isinstance(error, InputError) or UNFORESEEN in str(error):
            outcome.failures.append(f"{name}: {type(error).__name__}: {error}")
    except (Exception, TooSlow) as error:  # noqa: BLE001  (what this program looks for)
        trace = "".join(traceback.format_exception(error)[-4:])
        outcome.failures.append(f"{name}:\n{trace[-1800:]}")
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.setitimer(signal.ITIMER_REAL, 0)
        directory.restore()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10
    if peak > MOST_MEMORY:
        outcome.failures.append(f"{name}: {peak >> 20} MiB")
        raise SystemExit("\n".join(outcome.failures))


def fuzz(
    roots: Sequence[Path], *, seed: int, numbers: Sequence[int], what: What = "reading",
    say: Callable[[str], None] = lambda _: None,
) -> Outcome:  # fmt: skip
    """All inputs of these numbers."""
    outcome, directories = Outcome(), [Directory.of(root) for root in roots]
    for directory in directories if what == "reading" else ():
        directory.gone("manifest.json")
        directory.planned = plan(directory.root)
        directory.restore()
    _watch()
    began = time.monotonic()
    for done, number in enumerate(numbers, start=1):
        directory = directories[number % len(directories)]
        before = len(outcome.failures)
        once(directory, seed, number, outcome, what)
        for text in outcome.failures[before:]:
            say(text)
        if done % 1000 == 0 or (what != "reading" and done % 50 == 0):
            rate = done / (time.monotonic() - began)
            say(f"{done}: {rate:.0f}/s, {dict(outcome.counts)}, {len(outcome.failures)} failures")
    return outcome


def shapes(
    roots: Sequence[Path], *, seed: int, count: int, say: Callable[[str], None] = lambda _: None
) -> Outcome:
    """As many inputs that hypothesis makes (`tests.extremes`): one file of a run, which is read."""
    outcome, directories = Outcome(), [Directory.of(root) for root in roots]
    _watch()

    @hypothesis.seed(seed)
    @hypothesis.settings(
        max_examples=count, database=None, deadline=None, phases=[hypothesis.Phase.generate],
        suppress_health_check=list(hypothesis.HealthCheck), print_blob=False,
    )  # fmt: skip
    @hypothesis.given(st.data())
    def one(data: st.DataObject) -> None:
        directory = data.draw(st.sampled_from(directories))
        run = json.loads(directory.files["run.json"])
        times = (
            run["started"],
            run["started"] + 1,
            (run["started"] + run["ended"]) // 2,
            run["ended"],
        )
        endings = (".log", ".jsonl", "run.json", "bounds.json")
        name = data.draw(st.sampled_from([n for n in directory.files if n.endswith(endings)]))
        made = data.draw(extremes.changes(name, directory.files[name], times))
        directory.touched.add(name)
        (directory.root / name).write_bytes(made)
        directory.touched.add("manifest.json")
        _seal(directory.root)
        what: What = "judging" if data.draw(st.integers(0, 19)) == 0 else "reading"
        _tried(directory, outcome, f"{seed} {name} {made[-300:]!r}", what)
        done = sum(outcome.counts.values())
        if done % 500 == 0:
            say(f"{done}: {dict(outcome.counts)}, {len(outcome.failures)} failures")

    one()
    return outcome


def _watch() -> None:
    for each in (signal.SIGALRM, signal.SIGPROF):
        signal.signal(each, _too_slow)


def _too_slow(number: int, frame: FrameType | None) -> None:
    raise TooSlow


def stories(folder: Path, seeds: Sequence[int] = (8, 17, 26, 44, 45)) -> list[Path]:
    """Small faithful run directories."""
    return [story(spec(seed)).write(folder / str(seed)) for seed in seeds]


def shards(folder: Path) -> list[Path]:
    """Two shards of a suite, of a soak, and of a regression, with failures and reports of them."""
    return [_shards(folder / name, name) for name in ("nightly", "soak", "regression", "given")]


def _shards(root: Path, name: str) -> Path:
    given = scenario_file.render(baseline(7, GeneratorBounds())) if name == "given" else ""
    for shard in (0, 1):
        plan = Plan(
            name="file" if given else name, seed=7, seconds=60, jobs=2, shard=(shard, 2),
            given=given, replays=1, shrink_seconds=1.0, reach=("commit-in-flight",), alike=2,
        )  # fmt: skip
        made = SuiteFolder.create(root / SHARDS[shard], plan)
        for number in (shard, shard + 2, shard + 4):
            failed = number == shard + 2
            made.write_scenario(number, baseline(7, GeneratorBounds()))
            made.run_path(number).mkdir()
            (made.run_path(number) / "verdict.json").write_text(json.dumps(_VERDICT))
            made.append(
                RunResult(
                    number=number, verdict="invalid" if failed else "valid",
                    kinds=("lost-write:lost-write",) if failed else (),
                    cells=("strike/link-cut/plain", "on/shadow/A->B", "clients/shadow/librdkafka"),
                    missed=("cut: A->B behind",), outcomes={"link-cut": 1}, seconds=3.0, ended=9.0,
                )
            )  # fmt: skip
            if not failed:
                made.prune(number)
        _failure(made, shard + 2)
        if name == "soak":
            (made.root / "rounds").mkdir()
            size = {"round": 1, "age": 3.0, "disk": 1 << 20, "memory": 1 << 20}
            (made.root / "rounds" / f"{shard:04d}.json").write_text(json.dumps(size))
        if name == "regression":
            regression.write_entries(made)
    return root


_VERDICT: Final = {
    "verdict": "invalid", "reason": "lost", "cause": "", "causes": [],
    "checks": [
        {"name": "lost-write", "verdict": "invalid", "reason": "", "kinds": {"lost-write": 1}}
    ],
    "anomalies": [
        {"check": "lost-write", "kind": "lost-write", "cluster": "A", "topic": "A.t",
         "partition": 0, "offset": 3, "allowed": False, "evidence": {}}
    ],
    "eras": [
        {"cluster": "A", "topic": "A.t", "partition": 0, "start": 0, "end": None,
         "origin": "native", "truncated": False}
    ],
}  # fmt: skip


def _failure(made: SuiteFolder, number: int) -> None:
    own = made.root / "failures" / "lost-write-lost-write"
    own.mkdir()
    report = FailureReport(
        kind="lost-write:lost-write", found=(number,), reproduced=True, original="", era="native",
        replayed="1 of 1", faults=("link-cut on A->B",), rate="1 of 1", steps=1, command="",
        mirror="shadow",
    )  # fmt: skip
    if number % 2:  # the other shard's was being shrunk when it was killed
        (own / REPORT).write_bytes(msgspec.json.encode(report))
    (own / SMALLEST).write_text(scenario_file.render(made.scenario(number)))
    (own / CHOSEN).write_text(f"{number}\n")
    row = {"scenario": "0" * 12, "kinds": report.kind, "verdict": "invalid", "seconds": 1.0}
    (own / "tries.jsonl").write_text(json.dumps(row | {"kinds": [report.kind]}) + "\n")


def log_directories(folder: Path) -> list[Path]:
    """Kafka log directories of two clusters, with the notes of their brokers."""
    return [_log_directories(run, folder / f"{run.name}-logs") for run in stories(folder, (8, 44))]


def _log_directories(run: Path, root: Path) -> Path:
    for name in "AB":
        moment = sorted((run / "captures").glob(f"*/{name}"))[-1]
        shutil.copytree(moment, root / name)
        for broker in (root / name).iterdir():
            partitions = sorted(path.name for path in broker.iterdir() if path.is_dir())
            lines = [" ".join((*each.rsplit("-", 1), "0")) for each in partitions]
            for note in ("replication-offset", "log-start-offset", "cleaner-offset"):
                text = "\n".join(["0", str(len(lines)), *lines, ""])
                (broker / f"{note}-checkpoint").write_text(text)
            (broker / "meta.properties").write_text(
                f"version=1\ncluster.id={name}\nnode.id={broker.name}\n"
            )
    return root


_MADE: Final[dict[str, Callable[[Path], list[Path]]]] = {
    "reading": stories, "judging": stories, "suites": shards, "copied": log_directories,
}  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=10_000)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("what", nargs="?", choices=[*_MADE, "shapes"], default="reading")
    parser.add_argument("--runs", nargs="+", type=Path, help="run directories: they are copied")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(dir="/dev/shm" if Path("/dev/shm").is_dir() else None) as name:
        folder = Path(name)
        if given.what == "shapes":
            outcome = shapes(stories(folder), seed=given.seed, count=given.count, say=click.echo)
        else:
            roots = [
                Path(shutil.copytree(run, folder / str(n)))
                for n, run in enumerate(given.runs or ())
            ]
            outcome = fuzz(
                roots or _MADE[given.what](folder), seed=given.seed, what=given.what,
                numbers=range(given.first, given.first + given.count), say=click.echo,
            )  # fmt: skip
    for text, count in outcome.crashed.most_common():
        click.echo(f"a check could not: {count} x {text}")
    click.echo("\n\n".join(outcome.failures[:50]))
    click.echo(f"{dict(outcome.counts)}, {len(outcome.failures)} failures")
    sys.exit(bool(outcome.failures))


if __name__ == "__main__":
    main()
