"""The user's own application and mirror, both started by command, in one run."""

from __future__ import annotations

from pathlib import Path

import psutil
import pytest

import linkflap
from linkflap.harness.model.events import ProgramStarted
from linkflap.harness.rundir import RunReader

pytestmark = pytest.mark.spark
EXAMPLES = Path(__file__).resolve().parents[2] / "docs" / "examples"
BOTH = f"""
schema = 1
name = "both"
topology = "A->B"
duration = 3.0

[mirror]
kind = "command"
options = {{ manifest = "{EXAMPLES / "replicator" / "mirror.toml"}" }}

[[workload]]
kind = "transactional"
home = "A"

[[workload]]
kind = "readers"
home = "A"

[[workload]]
command = ["python3", "payments.py"]
folder = "{EXAMPLES / "application"}"
home = "A"
reads = ["orders"]
writes = ["payments"]
[workload.options]
group = "payments"

[[fault]]
id = "pause"
fault = "program-pause"
target = "A"
at = 0.5
duration = 0.5

[[fault]]
id = "kill"
fault = "client-kill"
target = "A"
when = "after:pause"
[fault.options]
workload = "command"

[[fault]]
id = "crash"
fault = "mirror-kill"
target = "A->B"
at = 1.0
duration = 0.2

[[fault]]
id = "failover"
fault = "failover-planned"
target = "A->B"
when = "after:kill,crash"

[minimums]
afterwards = 100
aborted = 0
"""


@pytest.mark.nightly
def test_an_application_and_a_mirror_by_command_are_killed_and_fail_over(tmp_path: Path) -> None:
    scenario = tmp_path / "both.toml"
    scenario.write_text(BOTH)
    judged = linkflap.run(scenario, folder=tmp_path / "run", seed=13)
    assert judged.valid, judged.why
    assert judged.checks["fault-bite"].examined == {"run/faults": 4}
    assert judged.checks["lost-write"].examined["B/native"] > 0
    events, _ = RunReader(tmp_path / "run").events()
    assert [e.cluster for e in events if isinstance(e, ProgramStarted)] == ["A", "A", "B"]
    pids = [e.pid for e in events if isinstance(e, ProgramStarted)]
    assert not [pid for pid in pids if psutil.pid_exists(pid)]
