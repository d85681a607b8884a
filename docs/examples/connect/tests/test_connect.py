"""What MirrorMaker 2 on Connect costs its clients; one of two has a checkpoint connector without
rights on the target."""

from pathlib import Path

import pytest

import linkflap

HERE = Path(__file__).resolve().parent.parent


def run(folder, name, manifest="mirror.toml"):
    """Runs a scenario of this folder with a manifest of it."""
    scenario = folder / name
    scenario.write_text((HERE / name).read_text().replace("mirror.toml", str(HERE / manifest)))
    return linkflap.run(scenario, folder=folder / "run")


def test_a_checkpoint_connector_without_rights_on_the_target_makes_groups_read_again(tmp_path):
    judged = run(tmp_path, "planned.toml", "without-rights.toml")
    assert judged.checks["group-offsets"].verdict == "invalid", judged.why
    assert judged.found("group-replay")


@pytest.mark.long
def test_no_group_reads_anything_again(tmp_path):
    judged = run(tmp_path, "planned.toml")
    assert judged.valid, judged.why
    assert judged.checks["group-offsets"].examined["B/mirrored"] > 0


@pytest.mark.long
def test_a_worker_that_was_killed_loses_nothing(tmp_path):
    judged = run(tmp_path, "crash.toml")
    assert judged.valid, judged.why
    assert judged.checks["order-equality"].examined["B/mirrored"] > 0
