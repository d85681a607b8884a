"""The built-in scenarios: files of the format that users write, and a few functions (`coded`)."""

from __future__ import annotations

import inspect
import re
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Final

from linkflap.chaos.scenarios import coded
from linkflap.chaos.scenarios.coded import Builder, ScenarioRequest
from linkflap.harness.model.errors import InputError
from linkflap.harness.model.scenario import Scenario, with_library
from linkflap.harness.model.texts import nearest
from linkflap.topologies.notation import arrows

FILES: Final = Path(__file__).parent


def _of_file(name: str, request: ScenarioRequest) -> Scenario:
    """The scenario of a file in this folder, with the user's options."""
    # Here, because completion and `list` need only the names.
    from linkflap.chaos import scenario_file

    made = scenario_file.read(
        FILES / f"{name}.toml", seed=request.seed, chosen=True, topology=request.topology
    )
    return replace(made, mirror=request.mirrored_by(), duration=request.duration or made.duration)


CODED: Final[Mapping[str, Builder]] = {
    "link-flap": coded.link_flap,
    "half-open": coded.half_open,
    "chain-flap": coded.chain_flap,
    "region-loss": coded.region_loss,
    "broker-loss": coded.broker_loss,
}
_NEED_A_LINK: Final = ("link-flap", "chain-flap", "region-loss")
"""Functions that need a link; a file needs one where it names one."""
SCENARIOS: Final[Mapping[str, Builder]] = MappingProxyType(
    {**CODED, **{path.stem: partial(_of_file, path.stem) for path in sorted(FILES.glob("*.toml"))}}
)


def about(name: str) -> str:
    """The description of a scenario in one line: the first paragraph of its function's docstring,
    or of the comment at the top of its file."""
    if name in CODED:
        text = inspect.getdoc(CODED[name]) or ""
    else:
        text = re.sub(r"(?m)^# ?", "", (FILES / f"{name}.toml").read_text())
    return " ".join(text.partition("\n\n")[0].split())


def scenario(name: str, request: ScenarioRequest) -> Scenario:
    """The scenario `name` with the user's options. Raises InputError if there is none."""
    if name not in SCENARIOS:
        raise InputError(
            f"there is no scenario {name!r}{nearest(name, SCENARIOS)}; known: "
            f"{', '.join(SCENARIOS)}"
        )
    if request.topology is not None and not request.topology.links and name in _NEED_A_LINK:
        raise InputError(
            f"scenario {name} needs a link, and topology {arrows(request.topology)} has none; "
            "write for example A->B"
        )
    made = SCENARIOS[name](request)
    if request.clients is not None:
        made = replace(made, workloads=with_library(made.workloads, request.clients))
    return _stalled(made) if request.stall_source else made


def _stalled(made: Scenario) -> Scenario:
    """The scenario with half-open sources at its forced failovers. Raises InputError if it has no
    forced failover."""
    if not any(fault.name.forced for fault in made.schedule):
        raise InputError(
            f"--stall-source is about forced failovers, and scenario {made.name} has none; leave "
            "it out"
        )
    return replace(
        made,
        schedule=tuple(
            (
                replace(fault, options={**fault.options, "source": "stalled"})
                if fault.name.forced
                else fault
            )
            for fault in made.schedule
        ),
    )


__all__ = ["SCENARIOS", "ScenarioRequest", "about", "scenario"]
