"""What a crash costs each of three copiers; the scenario and the manifests are the files beside
this folder."""

from pathlib import Path

import pytest

import linkflap

HERE = Path(__file__).resolve().parent.parent


@pytest.fixture
def crashed(tmp_path):
    """Runs crash.toml with another manifest; `destination` is the fault that B suffers
    meanwhile."""

    def run(manifest, destination="broker-kill"):
        scenario = tmp_path / "crash.toml"
        text = (HERE / "crash.toml").read_text()
        scenario.write_text(
            text.replace("mirror.toml", str(HERE / manifest)).replace("broker-kill", destination)
        )
        return linkflap.run(scenario, folder=tmp_path / "run")

    return run


@pytest.mark.long
def test_the_copier_loses_nothing_and_repeats_only_around_the_crash(crashed):
    judged = crashed("mirror.toml")
    assert judged.valid, judged.why


def test_a_position_that_is_committed_before_the_write_loses_records(crashed):
    judged = crashed("early.toml")
    assert judged.checks["lost-write"].verdict == "invalid", judged.why
    assert judged.found("lost-write")


@pytest.mark.long
def test_a_copier_that_promises_exactly_once_is_found_repeating(crashed):
    # what it sent is written when B goes on
    judged = crashed("promises-too-much.toml", destination="broker-pause")
    assert judged.checks["duplicate"].verdict == "invalid", judged.why
    assert judged.found("mirrored-duplicate")


@pytest.mark.long
def test_what_comes_back_is_all_of_the_new_owner_s(tmp_path):
    judged = linkflap.run(HERE / "failback.toml", folder=tmp_path / "run")
    assert judged.valid, judged.why
    assert judged.checks["order-equality"].examined["A/mirrored"] > 0
