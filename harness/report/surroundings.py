"""The environment of a run, as rows of the page."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from functools import cache

from jinja2 import Environment, PackageLoader, StrictUndefined

from linkflap.harness.report.document import in_short
from linkflap.harness.report.series import Series
from linkflap.harness.rundir import RunReader


@cache
def environment_of() -> Environment:
    environment = Environment(
        loader=PackageLoader("linkflap.harness.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"short": in_short, "number": _number, "moment": _moment}
    return environment


def surroundings_of(reader: RunReader, shown: Series) -> Mapping[str, str]:
    """The environment of the run: versions, clusters and their settings, the mirror's options, host
    stalls."""
    run = reader.run
    found = {
        "linkflap": run.linkflap,
        **{name: str(value) for name, value in run.versions.items()},
        **run.environment,
    }
    for cluster in run.scenario.topology.clusters:
        brokers = f"{cluster.brokers} broker{'s' if cluster.brokers != 1 else ''}"
        found[f"cluster {cluster.name}"] = (
            f"Kafka {cluster.kafka}, {brokers}, {_settings(cluster.config)}"
        )
    topics, mirror = run.scenario.topics, run.scenario.mirror
    found["topics"] = (
        f"{topics.partitions} partitions, {topics.replicas} replicas at most, "
        f"{_settings(topics.config)}"
    )
    for number, each in enumerate(run.scenario.workloads, start=1):
        found[f"workload {number}"] = (
            f"{each.clients} {each.kind} at {each.home}, {_settings(each.options)}"
        )
    for name, value in (mirror.resolved or mirror.options).items():
        found[f"{mirror.kind} {name}"] = f"{value}" + (
            " (set)" if name in mirror.options else " (default)"
        )
    stalls = [mark.label for mark in shown.marks if mark.kind == "host-stall"]
    found["host stalls"] = "; ".join(stalls) or "none was seen"
    return found


def _settings(given: Mapping[str, object]) -> str:
    """Those that were set: all others are defaults."""
    return (
        ", ".join(f"{name}={value}" for name, value in given.items())
        or "no settings but those of linkflap"
    )


def _number(value: float | None, unit: str = "") -> str:
    if value is None:
        return "unknown"
    text = f"{value:,.2f}" if isinstance(value, float) else f"{value:,}"
    return f"{text} {unit}".strip()


def _moment(nanoseconds: int) -> str:
    """UTC, to the second; a time outside the calendar, as a number."""
    try:
        return (
            datetime.fromtimestamp(nanoseconds / 1e9, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
            if nanoseconds
            else "never"
        )
    except (OverflowError, OSError, ValueError):
        return f"{nanoseconds:.4g} ns after 1970, which is in no calendar"
