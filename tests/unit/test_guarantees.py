"""What mirrors promise: declared once, written to run.json, and all that the verifier reads."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from linkflap.harness import mirrors
from linkflap.harness.guarantees import DECLARATIONS, declared
from linkflap.harness.model.errors import InputError
from linkflap.harness.model.guarantee import Guarantee
from linkflap.harness.model.scenario import MirrorSpec
from linkflap.harness.rundir import RunReader, RunWriter
from linkflap.spark_verify.read.plan import plan
from tests.unit.recorded_run import run

PROMISED = Guarantee(equality="records", offsets_kept=True, producer_ids="replaced")


def written(folder: Path, mirror: MirrorSpec) -> Path:
    """A run directory of a run with this mirror."""
    began = run()
    RunWriter(folder, replace(began, scenario=replace(began.scenario, mirror=mirror))).close(
        "finished"
    )
    return folder


@pytest.mark.parametrize("kind", sorted(mirrors.MIRRORS.keys() - {mirrors.BY_COMMAND}))
def test_every_mirror_declares_its_guarantee_and_all_of_its_options(kind: str) -> None:
    resolved = mirrors.resolve(MirrorSpec(kind=kind))
    assert resolved.guarantee == DECLARATIONS[kind]({})
    assert resolved.guarantee == DECLARATIONS[kind](resolved.resolved), (
        "defaults are what the guarantee takes them to be"
    )
    assert resolved.options == {}
    assert resolved.resolved


def test_a_guarantee_comes_back_from_run_json_as_it_was_declared(tmp_path: Path) -> None:
    promised = replace(PROMISED, group_offsets_by="its group task")
    spec = MirrorSpec(kind="another team's", options={"speed": 3}, declared=promised)
    assert RunReader(written(tmp_path / "run", spec)).run.scenario.mirror == spec
    assert plan(tmp_path / "run").facts.mirror.guarantee == promised


@pytest.mark.parametrize("options", [{"delivery": "exactly-once"}, {"delivery": "at-least-once"}])
def test_runs_from_before_guarantees_were_written_have_that_of_their_kind(
    tmp_path: Path, options: dict[str, str]
) -> None:
    mirror = RunReader(
        written(tmp_path / "run", MirrorSpec(kind="mm2", options=options))
    ).run.scenario.mirror
    assert mirror.guarantee.delivery == options["delivery"]
    assert mirror == declared(MirrorSpec(kind="mm2", options=options))


@pytest.mark.parametrize(
    ("kind", "by"),
    [("mm2", "MirrorCheckpointConnector"), ("shadow", None), ("another team's", None)],
)
def test_a_guarantee_from_before_it_named_what_carries_groups_has_that_of_its_kind(
    tmp_path: Path, kind: str, by: str | None
) -> None:
    mirror = RunReader(
        written(tmp_path / "run", MirrorSpec(kind=kind, declared=PROMISED))
    ).run.scenario.mirror
    assert mirror.guarantee == replace(PROMISED, group_offsets_by=by)


def test_a_mirror_that_is_not_known_and_declares_nothing_is_named(tmp_path: Path) -> None:
    folder = written(tmp_path / "run", MirrorSpec(kind="mine"))
    with pytest.raises(
        InputError, match=r"run\.json has the mirror .mine. without its guarantee.*add scenario"
    ):
        RunReader(folder)


def test_a_guarantee_that_cannot_be_is_no_guarantee(tmp_path: Path) -> None:
    folder = written(tmp_path / "run", MirrorSpec(kind="mine", declared=PROMISED))
    content = msgspec.json.decode((folder / "run.json").read_bytes())
    content["scenario"]["mirror"]["declared"]["equality"] = "roughly"
    (folder / "run.json").write_bytes(msgspec.json.encode(content))
    with pytest.raises(InputError, match="Invalid enum value 'roughly'"):
        RunReader(folder)


def test_the_verifier_names_no_kind_of_mirror() -> None:
    names = [*mirrors.MIRRORS, "cluster-mirroring", r"Mirror\w+Connector", r"\.internal"]
    kinds = re.compile(rf"""["']({"|".join(names)})["']""")
    sources = (Path(__file__).parents[2] / "spark_verify").rglob("*.py")
    assert [
        f"{path.name}: {found}" for path in sources for found in kinds.findall(path.read_text())
    ] == []
