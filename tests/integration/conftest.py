"""A recorded run that several modules damage copies of, each in its own way."""

from __future__ import annotations

from pathlib import Path

import pytest

from linkflap.chaos.scenarios import Wish, scenario
from linkflap.harness.recording.run import record
from linkflap.harness.report.progress import Progress
from linkflap.spark_verify.spark import session
from linkflap.topologies import parse


@pytest.fixture(scope="session")
def recorded(tmp_path_factory) -> Path:
    """A link-flap run on one broker and three, recorded with real clusters. Its users are in xdist_group("spark")."""
    folder = tmp_path_factory.mktemp("recorded") / "run"
    chosen = scenario("link-flap", Wish(seed=3, topology=parse("A->B:3"), mirror="mm2", duration=16.0))
    session.warm()
    with Progress() as progress:
        return record(chosen, runtime="process", folder=folder, command="pytest", progress=progress)
