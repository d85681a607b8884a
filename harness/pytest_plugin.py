"""What the pytest fixtures do: real clusters, and whole judged runs, inside anybody's tests, also under `pytest -n`.

    @pytest.mark.linkflap(topology="A->B")
    def test_something(linkflap_deployment): ...             clusters and links, started and proven

    @pytest.mark.linkflap(scenario="link-flap", seed=7, producer_ids="jump")
    def test_failover(linkflap_run):
        assert linkflap_run.verdict == "valid", linkflap_run.why

What fails while a fixture is set up is an error of the environment, and pytest reports it as an error; a violation is a failed
assertion in the test. Ports and memory are leased, so that parallel workers, and several pytest at once, do not meet. The
fixtures themselves are in `linkflap.pytest_plugin`.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from linkflap.api.judged import Judged
from linkflap.harness.model.errors import LinkflapError
from linkflap.harness.model.protocols import Deployment

if TYPE_CHECKING:
    from linkflap.api.world import World


def _wanted(request: pytest.FixtureRequest) -> dict[str, Any]:
    """The marker's arguments, nearest marker first: a class or module may give what a test leaves out."""
    wanted: dict[str, Any] = {}
    for marker in reversed(list(request.node.iter_markers("linkflap"))):
        wanted |= marker.kwargs
    return wanted


def _runtime(wanted: Mapping[str, Any]) -> str:
    """The marker's `runtime`, else $LINKFLAP_RUNTIME, else process: tests of somebody else's build no images unasked."""
    return str(wanted.get("runtime") or os.environ.get("LINKFLAP_RUNTIME") or "process")


def _folder(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    return tmp_path / (re.sub(r"[^A-Za-z0-9_.-]+", "-", request.node.name)[:60] + ".run")


@contextmanager
def one_sentence() -> Iterator[None]:
    """An error of linkflap's (the environment, wrong arguments) as the sentence that it is, without a traceback."""
    try:
        yield
    except LinkflapError as error:
        pytest.fail(f"linkflap: {error}", pytrace=False)


@contextmanager
def deployment(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Deployment]:
    """The marker's `topology` (default `A->B`), running on its `runtime` (see `_runtime`); ended after the block."""
    from linkflap.harness import runtimes
    from linkflap.harness.rundir import EventLog
    from linkflap.topologies import parse

    wanted = _wanted(request)
    folder = _folder(request, tmp_path)
    folder.mkdir()
    deploy = runtimes.runtime(_runtime(wanted))
    with (
        closing(EventLog(folder / "events.jsonl")) as events,
        deploy(parse(wanted.get("topology", "A->B")), folder=folder, recorder=events) as up,
    ):
        yield up


@contextmanager
def world(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[World]:
    """As `linkflap.deploy`, with the marker's arguments; its `folder` is the test's."""
    from linkflap.api.world import deploy

    wanted = {"topology": "A->B", **_wanted(request)}
    folder = _folder(request, tmp_path)
    request.node.add_report_section("setup", "linkflap", f"run directory {folder}")
    with deploy(**{**wanted, "runtime": _runtime(wanted), "folder": folder}) as up:
        yield up


def run(request: pytest.FixtureRequest, tmp_path: Path) -> Judged:
    """The marker's `scenario` (default link-flap), run and judged; further arguments are options of the mirror."""
    from linkflap.api import runs

    wanted = _wanted(request)
    runtime = _runtime(wanted)
    wanted.pop("runtime", None)
    name, seed = wanted.pop("scenario", "link-flap"), wanted.pop("seed", 1)
    folder = _folder(request, tmp_path)
    request.node.add_report_section("setup", "linkflap", f"run directory {folder}, seed {seed}")
    asked = {key: wanted.pop(key, None) for key in ("topology", "mirror", "duration")}
    return runs.run(
        name, folder=folder, seed=seed, runtime=runtime, mirror_options=wanted, command=f"pytest {request.node.nodeid}", **asked
    )


def close() -> None:
    """Ends Spark, if a run has started it in this process."""
    session = sys.modules.get("linkflap.spark_verify.session")
    if session:
        session.close()
