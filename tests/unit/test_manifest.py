"""The manifest of a run directory: a file that differs from it is damage, and is not read."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from linkflap.harness.model.history import Poll
from linkflap.harness.rundir import Damage, RunReader
from linkflap.harness.rundir.manifest import MANIFEST, content
from tests.faithful.spec import spec
from tests.faithful.stories import story
from tests.run_copy import seal

Change = Callable[[Path], object]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return story(spec(1, shape="failover")).write(tmp_path_factory.mktemp("made") / "run")


@pytest.fixture
def run(made: Path, tmp_path: Path) -> Path:
    copied = shutil.copytree(made, tmp_path / "run")
    seal(copied, digests=True)
    return copied


def segment_in(run: Path) -> Path:
    return next(p for p in sorted(run.glob("captures/*/B/*/A.*/*.log")) if p.stat().st_size > 200)


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def replaced(by: Callable[[Path], object]) -> Change:
    def replace(path: Path) -> None:
        path.unlink()
        by(path)

    return replace


CHANGES: dict[str, Change] = {
    "cut": lambda path: path.write_bytes(path.read_bytes()[:100]),
    "emptied": lambda path: path.write_bytes(b""),
    "extended": lambda path: path.write_bytes(path.read_bytes() + b"\0"),
    "one bit": flip,
    "removed": Path.unlink,
    "a FIFO": replaced(os.mkfifo),
    "a directory": replaced(Path.mkdir),
    "a device": replaced(lambda path: path.symlink_to("/dev/zero")),
    "a link to itself": replaced(lambda path: path.symlink_to(path)),
    "a link to another": replaced(
        lambda path: path.symlink_to(next(p for p in path.parents[2].rglob("*.log") if p != path))
    ),
}
FILES: dict[str, Callable[[Path], Path]] = {
    "segment": segment_in,
    "bounds": lambda run: next(run.glob("captures/*/bounds.json")),
    "events": lambda run: run / "events.jsonl",
    "polls": lambda run: next(run.glob("polls/*.jsonl")),
}


def of_a_capture(name: str) -> bool:
    return name.startswith("captures/")


def damaged(run: Path) -> list[str]:
    return [damage.path for damage in RunReader(run).damage()]


def test_files_as_they_were_are_no_damage(run: Path) -> None:
    assert not damaged(run)


@pytest.mark.parametrize("file", FILES)
@pytest.mark.parametrize("change", CHANGES)
def test_a_changed_file_is_damage_and_is_not_read(run: Path, change: str, file: str) -> None:
    path = FILES[file](run)
    CHANGES[change](path)
    reader = RunReader(run)
    name = str(path.relative_to(run))
    assert [d.path for d in reader.damage()] == [name]
    moment = next(iter(reader.moments()), "") if "captures" not in name else name.split("/")[1]
    if file == "segment":
        assert path not in [p for b in reader.bounds(moment)[0] for p in reader.segments(moment, b)]
    elif file == "bounds":
        assert not reader.bounds(moment)[0]
    else:
        assert not (reader.events()[0] if file == "events" else [*reader.each(Poll, [])])


@pytest.mark.parametrize(
    "name", ["polls/again.jsonl", "operations/again.jsonl", "captures/{}/B/1/{}/{:020}.log"]
)
def test_a_file_that_was_not_there_is_damage_and_is_not_read(run: Path, name: str) -> None:
    there = segment_in(run).relative_to(run).parts
    added = run / name.format(there[1], there[4], 7)
    like = segment_in(run) if added.suffix == ".log" else next(added.parent.glob("*.jsonl"))
    added.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(like, added)
    reader = RunReader(run)
    assert damaged(run) == [str(added.relative_to(run))]
    assert not any(
        added in reader.segments(m, b) for m in reader.moments() for b in reader.bounds(m)[0]
    )


def test_two_segments_that_were_exchanged_are_both_damage(run: Path) -> None:
    one = segment_in(run)
    other = next(p for p in run.glob("captures/*/A/*/A.*/*.log") if content(p) != content(one))
    content_of_one = one.read_bytes()
    one.write_bytes(other.read_bytes())
    other.write_bytes(content_of_one)
    assert sorted(damaged(run)) == sorted(str(path.relative_to(run)) for path in (one, other))


@pytest.mark.parametrize("left", [-1, 7, None])
@pytest.mark.parametrize("of", ["segment", "captures"])
def test_a_file_whose_digest_is_gone_is_damage_and_is_not_read(
    run: Path, left: int | None, of: str
) -> None:
    path, manifest = segment_in(run), run / MANIFEST
    recorded = msgspec.json.decode(manifest.read_bytes())
    gone = [str(path.relative_to(run))] if of == "segment" else [*filter(of_a_capture, recorded)]
    kept = {name: was for name, was in recorded.items() if name not in gone}
    left_of = {} if left is None else dict.fromkeys(gone, left)
    manifest.write_bytes(msgspec.json.encode(kept | left_of))
    reader = RunReader(run)
    assert sorted(damaged(run)) == sorted(gone)
    assert path not in [
        p for m in reader.moments() for b in reader.bounds(m)[0] for p in reader.segments(m, b)
    ]


def test_a_link_is_damage_whatever_it_leads_to(run: Path, tmp_path: Path) -> None:
    path = segment_in(run)
    shutil.move(path, tmp_path / "elsewhere")
    path.symlink_to(tmp_path / "elsewhere")
    assert damaged(run) == [str(path.relative_to(run))]


@pytest.mark.parametrize("digests", [True, False])
def test_a_torn_manifest_is_damage_by_itself(run: Path, digests: bool) -> None:
    seal(run, digests=digests)
    path = run / MANIFEST
    path.write_bytes(path.read_bytes()[:-10])
    assert damaged(run) == [MANIFEST]
    path.unlink()
    assert damaged(run) == [MANIFEST]
    os.mkfifo(path)
    assert damaged(run) == [MANIFEST]


def test_directories_of_older_versions_have_no_digests(run: Path) -> None:
    seal(run)
    flip(segment_in(run))
    assert not damaged(run)
    segment_in(run).unlink()
    assert RunReader(run).damage() == [
        Damage(path=damaged(run)[0], reason="missing: it was there when the run ended")
    ]


def test_a_run_that_was_recorded_with_digests_has_them(run: Path) -> None:
    recorded = msgspec.json.decode((run / MANIFEST).read_bytes())
    assert RunReader(run).has_digests
    (run / MANIFEST).write_bytes(msgspec.json.encode(dict.fromkeys(recorded, -1)))
    assert {*damaged(run)} == {*recorded}
    path = run / "run.json"
    path.write_bytes(path.read_bytes().replace(b'"digests": true', b'"digests": false'))
    assert (damaged(run), RunReader(run).has_digests) == ([], False)
    (run / MANIFEST).write_bytes(b"{}")
    assert damaged(run) == [MANIFEST]


def test_of_a_killed_run_the_captures_that_were_finished_have_digests(run: Path) -> None:
    listed = msgspec.json.decode((run / MANIFEST).read_bytes())
    captured = {name: was for name, was in listed.items() if name.startswith("captures/")}
    (run / MANIFEST).write_bytes(msgspec.json.encode(captured))
    assert damaged(run) == [MANIFEST], "it ended, and its manifest does not have all"
    path = run / "run.json"
    path.write_text(path.read_text().replace('"finished"', '"running"'))
    segment = segment_in(run)
    flip(segment)
    assert damaged(run) == ["run.json", str(segment.relative_to(run))]
