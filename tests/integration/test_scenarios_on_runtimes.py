"""Every scenario with every mirror on every runtime, judged: nothing above the runtimes depends on
which one it is.

The main job on containers runs in CI; on child processes it does so in `test_scenarios`, and
everything else is nightly.
"""

from __future__ import annotations

import itertools
import secrets
from collections.abc import Iterator

import pytest
from _pytest.mark import ParameterSet

from linkflap.api.fixtures import FixtureRun
from linkflap.chaos.scenarios import SCENARIOS, ScenarioRequest, scenario
from linkflap.harness.mirrors import MIRRORS
from linkflap.harness.model.errors import InputError
from linkflap.recording.run import check
from tests.cells import topology
from tests.on_runtimes import EVERY, skip_without

pytestmark = pytest.mark.spark
IN_CI = {("link-flap", "shadow", "docker"), ("baseline", "mm2", "docker")}


def possible(name: str, mirror: str) -> bool:
    """MirrorMaker 2 cannot be reversed."""
    try:
        check(scenario(name, ScenarioRequest(seed=1, mirror=mirror)), "process")
    except InputError:
        return False
    return True


def cells() -> Iterator[ParameterSet]:
    for name, mirror, runtime in itertools.product(SCENARIOS, sorted(MIRRORS), EVERY):
        if not possible(name, mirror):
            continue
        in_ci = (name, mirror, runtime) in IN_CI
        seed = 1279 if in_ci else secrets.randbits(32)
        marks = [
            pytest.mark.linkflap(
                scenario=name,
                topology=topology(name, ""),
                mirror=mirror,
                runtime=runtime,
                seed=seed,
            ),
        ]
        yield pytest.param(
            runtime,
            id=f"{name}-{mirror}-{runtime}",
            marks=marks if in_ci else [*marks, pytest.mark.nightly],
        )


@pytest.fixture
def available(request: pytest.FixtureRequest) -> None:
    skip_without(request.param)


@pytest.mark.parametrize("available", list(cells()), indirect=True)
def test_a_scenario_is_valid_whatever_mirrors_and_whatever_brokers_run_in(
    available: None, linkflap_run: FixtureRun
) -> None:
    assert linkflap_run.verdict == "valid", linkflap_run.why
