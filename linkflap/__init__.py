"""linkflap: breaks links between real Kafka clusters and proves, offset by offset, what survived.
This module is the Python API.

    linkflap.run("link-flap", seed=7)       a scenario, by name or from a file, recorded and judged
                                            (`Judged`)
    linkflap.verify(folder)                 a recorded run, judged again
    with linkflap.deploy("A:3->B") as world:    clusters and links for a block, which breaks them
                                                and writes with
        linkflap.Producer, linkflap.Consumer    confluent-kafka's clients, whose history is written
                                                down and judged; AIOProducer and AIOConsumer
                                                for asyncio

Names that this module exports keep their meaning from version to version; everything below is
linkflap's own affair:

    linkflap.cli, .api, .suite      what a user starts
    linkflap.recording, .judging    a run, recorded and judged; linkflap.report: its report
    linkflap.chaos                  what is broken, and when
    linkflap.topologies             clusters and links
    linkflap.harness                real clusters, mirrors and clients
    linkflap.spark_verify           judges what was recorded

The last four are the folders at the top of the repository, linked from here. The names of files in
docs and docstrings are relative to the repository: `harness.model.wait` is
`linkflap.harness.model.wait`.

`import linkflap` imports nothing else: what a name needs is imported when the name is used first.
See docs/api.md.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from linkflap.api.aio import AIOConsumer as AIOConsumer
    from linkflap.api.aio import AIOProducer as AIOProducer
    from linkflap.api.consumer import Consumer as Consumer
    from linkflap.api.deploy import deploy as deploy
    from linkflap.api.faults import Window as Window
    from linkflap.api.producer import Producer as Producer
    from linkflap.api.runs import Judged as Judged
    from linkflap.api.runs import run as run
    from linkflap.api.runs import verify as verify
    from linkflap.api.world import World as World
    from linkflap.harness.model.errors import EnvironmentFailure as EnvironmentFailure
    from linkflap.harness.model.errors import FaultError as FaultError
    from linkflap.harness.model.errors import InputError as InputError
    from linkflap.harness.model.errors import LinkflapError as LinkflapError
    from linkflap.harness.model.scenario import Scenario as Scenario
    from linkflap.harness.model.scenario import WorkloadSpec as WorkloadSpec
    from linkflap.harness.model.verdict import Anomaly as Anomaly
    from linkflap.harness.model.verdict import CheckResult as CheckResult
    from linkflap.harness.model.verdict import Failover as Failover
    from linkflap.harness.model.verdict import Verdict as Verdict

_HOMES = {
    "AIOConsumer": "linkflap.api.aio",
    "AIOProducer": "linkflap.api.aio",
    "Anomaly": "linkflap.harness.model.verdict",
    "CheckResult": "linkflap.harness.model.verdict",
    "Consumer": "linkflap.api.consumer",
    "EnvironmentFailure": "linkflap.harness.model.errors",
    "Failover": "linkflap.harness.model.verdict",
    "FaultError": "linkflap.harness.model.errors",
    "InputError": "linkflap.harness.model.errors",
    "Judged": "linkflap.api.runs",
    "LinkflapError": "linkflap.harness.model.errors",
    "Producer": "linkflap.api.producer",
    "Scenario": "linkflap.harness.model.scenario",
    "Verdict": "linkflap.harness.model.verdict",
    "Window": "linkflap.api.faults",
    "WorkloadSpec": "linkflap.harness.model.scenario",
    "World": "linkflap.api.world",
    "deploy": "linkflap.api.deploy",
    "run": "linkflap.api.runs",
    "verify": "linkflap.api.runs",
}
"""Where each public name is defined; held against the imports above by a test."""


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module 'linkflap' has no attribute {name!r}")
    from importlib import import_module

    value = globals()[name] = getattr(import_module(_HOMES[name]), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES})
