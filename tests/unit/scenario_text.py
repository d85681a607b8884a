"""A valid scenario file, and the command that reads it."""

from __future__ import annotations

from pathlib import Path

from linkflap.cli.commands import linkflap

GOOD = """\
schema = 1
name = "mine"
topology = "A:3->B"
duration = 5.0

[mirror]
kind = "shadow"
options = { producer_ids = "keep" }

[topics]
partitions = 3
[topics.config]
"cleanup.policy" = "compact"

[cluster.A.config]
"transaction.max.timeout.ms" = 30000
"auto.create.topics.enable" = true

[[workload]]
kind = "transactional"
home = "A"
clients = 2
[workload.options]
rate = 5.0

[[workload]]
kind = "readers"
home = "A"

[[fault]]
id = "slow"
fault = "link-latency"
target = "A->B"
at = 1.0
duration = 2.0
[fault.options]
latency = 100

[[fault]]
id = "failover"
fault = "failover-forced"
target = "A->B"
when = "after:slow and open-transactions"

[budgets]
rpo_records = 100
"""


def made(tmp_path: Path, text: str = GOOD) -> Path:
    path = tmp_path / "mine.toml"
    path.write_text(text)
    return path


def run(*arguments: str | int | Path) -> object:
    return linkflap.main(["run", *map(str, arguments)], standalone_mode=False)
