"""topic-recreated on real clusters: the shadow reports that it gives such a topic up, MirrorMaker 2
copies both into one log."""

from __future__ import annotations

from pathlib import Path

import pytest

from linkflap.harness.model.events import FaultBite, FaultHeal, TopicGivenUp, of_kind
from linkflap.harness.rundir import RunReader
from tests.command_line import environment, linkflap

pytestmark = pytest.mark.spark
EXAMPLE = (
    Path(__file__).resolve().parents[2] / "docs" / "examples" / "faults" / "topic-recreated.toml"
)


def test_the_shadow_keeps_the_old_copy_and_says_so(tmp_path: Path) -> None:
    done = linkflap(
        "run",
        str(EXAMPLE),
        "--out",
        "run",
        env=environment(tmp_path / "ledger"),
        cwd=tmp_path,
        within=600,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    events, _ = RunReader(tmp_path / "run").events()
    assert {bite.id: bite.bit for bite in of_kind(events, FaultBite)} == {"cut": True, "open": True}
    assert all(
        "its mirror says: topic A.linkflap-recreated" in heal.checked[0]
        for heal in of_kind(events, FaultHeal)
    )
    assert {event.topic for event in of_kind(events, TopicGivenUp)} == {
        "A.linkflap-recreated.cut",
        "A.linkflap-recreated.open",
    }


def test_mirror_maker_makes_one_log_of_both_which_is_unknown(tmp_path: Path) -> None:
    (tmp_path / "mm2.toml").write_text(f'{EXAMPLE.read_text()}\n[mirror]\nkind = "mm2"\n')
    done = linkflap(
        "run",
        "mm2.toml",
        "--out",
        "run",
        env=environment(tmp_path / "ledger"),
        cwd=tmp_path,
        within=600,
    )
    assert done.returncode == 2, done.stdout + done.stderr
    said = " ".join(done.stdout.split())
    assert "20 records of the deleted topic and" in said, said[-3000:]
    assert "of the one made again, behind one another" in said, said[-3000:]
