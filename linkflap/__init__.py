"""linkflap: breaks links between real Kafka clusters and proves, offset by offset, what survived. This module is the Python API.

    linkflap.run("link-flap", seed=7)       a scenario, by name or from a file, recorded and judged (`Judged`)
    linkflap.verify(folder)                 a recorded run, judged again

Names that this module exports keep their meaning from version to version; everything below is linkflap's own affair:

    linkflap.harness        records a run
    linkflap.chaos          what is broken, and when
    linkflap.topologies     clusters and links
    linkflap.spark_verify   judges what was recorded

These packages are the folders at the top of the repository, linked from here. The names of files in docs and docstrings are
relative to the repository: `harness.model.wait` is `linkflap.harness.model.wait`.

`import linkflap` imports nothing else: what a name needs is imported when the name is used first. See docs/api.md.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from linkflap.api.judged import Judged as Judged
    from linkflap.api.runs import run as run
    from linkflap.api.runs import verify as verify
    from linkflap.harness.model.errors import EnvironmentFailure as EnvironmentFailure
    from linkflap.harness.model.errors import FaultError as FaultError
    from linkflap.harness.model.errors import InputError as InputError
    from linkflap.harness.model.errors import LinkflapError as LinkflapError
    from linkflap.harness.model.verdict import Anomaly as Anomaly
    from linkflap.harness.model.verdict import CheckResult as CheckResult
    from linkflap.harness.model.verdict import Failover as Failover
    from linkflap.harness.model.verdict import Verdict as Verdict

_HOMES = {
    "Anomaly": "linkflap.harness.model.verdict",
    "CheckResult": "linkflap.harness.model.verdict",
    "EnvironmentFailure": "linkflap.harness.model.errors",
    "Failover": "linkflap.harness.model.verdict",
    "FaultError": "linkflap.harness.model.errors",
    "InputError": "linkflap.harness.model.errors",
    "Judged": "linkflap.api.judged",
    "LinkflapError": "linkflap.harness.model.errors",
    "Verdict": "linkflap.harness.model.verdict",
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
