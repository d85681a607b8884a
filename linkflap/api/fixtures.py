"""The work of the pytest fixtures: real clusters, and recorded and judged runs, in any project's
tests, also under `pytest -n`.

    @pytest.mark.linkflap(topology="A->B")
    def test_something(linkflap_deployment): ...             clusters and links, started and proven

    @pytest.mark.linkflap("link-flap", seed=7, producer_ids="jump")
    def test_failover(linkflap_run):
        linkflap_run.require_valid()

A failure in the setup of a fixture is an error of the environment, and pytest reports it as an
error. A violation is a failed assertion in the test. Ports and memory are leased, so that parallel
workers, and several pytest processes, do not collide. The fixtures themselves are in
`linkflap.pytest_plugin`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, fields
from inspect import signature
from itertools import count
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Any, Final, Literal, get_args

import pytest

from linkflap.api import runs
from linkflap.api.runs import Judged
from linkflap.harness.model.errors import InputError, LinkflapError
from linkflap.harness.model.protocols import Deployment
from linkflap.harness.model.texts import nearest
from linkflap.harness.model.verdict import Verdict
from linkflap.judging import verifier

if TYPE_CHECKING:
    from linkflap.api.shared import Pool, Shared
    from linkflap.api.world import World

PASSED: Final = pytest.StashKey[bool]()
"""Marks a test whose own part has passed."""
verifier.share()  # all workers of `pytest -n`, and several pytest at once, judge through one Spark
Policy = Literal["fail", "skip", "run-again"]
_ARGUMENTS: Final = (
    "scenario",
    "topology",
    "mirror",
    "seed",
    "duration",
    "clients",
    "runtime",
    "record",
)


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class FixtureRun(Judged):
    """A judged run that can be repeated; the value of `linkflap_run`."""

    again: Callable[[], Judged]
    made_by: str
    """The command that runs it again."""

    def require_valid(self, unknown: Policy = "fail") -> Judged:
        """Returns the valid run; ends the test if the run is not valid.

        An unknown run fails the test, skips it, or is repeated once (`unknown="run-again"`); the
        repeated run must be valid.
        """
        if unknown not in get_args(Policy):
            known = " or ".join(map(repr, get_args(Policy)))
            pytest.fail(
                f"linkflap: require_valid(unknown={unknown!r}) means nothing; give {known}",
                pytrace=False,
            )
        if self.verdict is Verdict.UNKNOWN and unknown == "skip":
            pytest.skip(f"linkflap: unknown: {self.why}")
        judged = (
            self.again() if self.verdict is Verdict.UNKNOWN and unknown == "run-again" else self
        )
        if not judged.valid:
            pytest.fail(
                f"linkflap: {judged.verdict}: {judged.why}\nrun again: {self.made_by}",
                pytrace=False,
            )
        return judged


def _wanted(
    request: pytest.FixtureRequest, known: Sequence[str] = _ARGUMENTS, *, with_options: bool = True
) -> dict[str, Any]:
    """The marker's arguments, nearest marker first: a class or module may give what a test leaves
    out. Raises InputError.

    They are those `known`, and with `with_options` the options of mirrors beside them.
    """
    wanted: dict[str, Any] = {}
    for marker in reversed(list(request.node.iter_markers("linkflap"))):
        if len(marker.args) > 1 or (marker.args and "scenario" in marker.kwargs):
            raise InputError(
                "the marker linkflap names more than one scenario; give it one, and other arguments"
                " by name"
            )
        wanted |= {"scenario": marker.args[0], **marker.kwargs} if marker.args else marker.kwargs
    _check_names(wanted, known, with_options=with_options)
    return wanted


def _check_names(wanted: Mapping[str, Any], known: Sequence[str], *, with_options: bool) -> None:
    """Raises InputError for a name that is neither the marker's own nor an option of a mirror."""
    from linkflap.harness.mirrors import MIRRORS

    options = (
        sorted({option for kind in MIRRORS.values() for option in kind.about})
        if with_options
        else []
    )
    for name in wanted:
        if name == "judge" and name not in known:
            raise InputError(
                "judge of the marker linkflap is for tests with linkflap_world; the other fixtures "
                "leave it out: linkflap_run always judges, and they never"
            )
        if name not in (*known, *options):
            also = f", and the options of mirrors: {', '.join(options)}" if options else ""
            near = nearest(name, (*known, *options))
            raise InputError(
                f"the marker linkflap has no argument {name!r}{near}; it has "
                f"{', '.join(known)}{also}"
            )
    of_mirror = wanted.get("mirror_options") or {
        name: value for name, value in wanted.items() if name in options
    }
    given = {name: wanted.get(name) for name in _ARGUMENTS}
    runs.check_arguments(**given, mirror_options=of_mirror)


def _runtime(wanted: Mapping[str, Any]) -> str:
    """The marker's `runtime`, else $LINKFLAP_RUNTIME, else process, so that the tests of another
    project build no images without being asked."""
    return str(wanted.get("runtime") or os.environ.get("LINKFLAP_RUNTIME") or "process")


def _folder(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    return tmp_path / (re.sub(r"[^A-Za-z0-9_.-]+", "-", request.node.name)[:60] + ".run")


@contextmanager
def one_sentence() -> Iterator[None]:
    """Shows an error of linkflap (of the environment or wrong arguments) as one sentence, without a
    traceback."""
    try:
        yield
    except LinkflapError as error:
        # or it would be printed twice
        raise pytest.fail.Exception(f"linkflap: {error}", pytrace=False) from None


@contextmanager
def deployment(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Deployment]:
    """The marker's `topology` (default `A->B`), running on its `runtime` (see `_runtime`); ended
    after the block."""
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
    """As `linkflap.deploy`, with the marker's arguments; its `folder` is the test's.

    Raises InputError after a test that passed and judged nothing, unless the marker says
    `judge=False`.
    """
    from linkflap.api.deploy import deploy

    known = [name for name in signature(deploy).parameters if name != "folder"]
    wanted = {"topology": "A->B", **_wanted(request, (*known, "judge"), with_options=False)}
    judge = wanted.pop("judge", True)
    if not isinstance(judge, bool):
        raise InputError(f"judge of the marker linkflap is {judge!r}; it must be True or False")
    folder = _folder(request, tmp_path)
    request.node.add_report_section("setup", "linkflap", f"run directory {folder}")
    with deploy(**{**wanted, "runtime": _runtime(wanted), "folder": folder}) as up:
        yield up
    if judge and not up.judged and request.node.stash.get(PASSED, False):
        raise InputError(
            "the test passed and judged nothing; end it with assert linkflap_world.verify().valid, "
            "or mark it with @pytest.mark.linkflap(judge=False)"
        )


@contextmanager
def shared(
    request: pytest.FixtureRequest, pools: Mapping[str, Callable[[], Pool]]
) -> Iterator[tuple[Shared, Sequence[str]]]:
    """A deployment of the marker's `topology` that other tests had before, and `reuse` says which
    ones: session or module.

    After the test linkflap checks that the deployment is unchanged. Otherwise it is ended, the next
    test gets a new one, and the report and the second value (empty until then) say so.
    """
    wanted = _wanted(request, ("topology", "runtime", "reuse"), with_options=False)
    reuse, topology = wanted.get("reuse", "session"), str(wanted.get("topology", "A->B"))
    if reuse not in pools:
        raise InputError(
            f"the marker linkflap cannot have reuse={reuse!r}{nearest(str(reuse), pools)}; give "
            f"{' or '.join(pools)}"
        )
    pool, runtime = pools[reuse](), _runtime(wanted)
    lent = pool.lend(topology, runtime, request.node.name)
    changes: list[str] = []
    try:
        yield lent, changes
    finally:
        if changed := pool.give_back(topology, runtime):
            text = (
                f"the clusters {topology} are replaced after {request.node.nodeid}: "
                f"{'; '.join(changed)}"
            )
            request.node.add_report_section("teardown", "linkflap", text)
            changes.append(text)


def new_pool(folder: Path) -> Pool:
    from linkflap.api.shared import Pool

    return Pool(folder)


def run(request: pytest.FixtureRequest, tmp_path: Path) -> FixtureRun:
    """The marker's `scenario` (default link-flap), run and judged; further arguments are options of
    the mirror."""
    from linkflap.api import runs

    wanted = _wanted(request)
    runtime = wanted.pop("runtime", None)
    name, seed = wanted.pop("scenario", "link-flap"), wanted.pop("seed", 1)
    names = ("topology", "mirror", "duration", "clients", "record")
    asked = {key: wanted.pop(key, None) for key in names}

    made_by = f"pytest {quote(request.node.nodeid)}"

    def once(folder: Path) -> Judged:
        request.node.add_report_section(
            "setup", "linkflap", f"run directory {folder}, seed {seed}; run again: {made_by}"
        )
        judged = runs.run(
            name,
            folder=folder,
            seed=seed,
            runtime=runtime,
            mirror_options=wanted,
            command=made_by,
            **asked,
        )
        request.node.user_properties += _properties(judged, made_by)
        return judged

    folder = _folder(request, tmp_path)
    judged = once(folder)
    numbers = count(2)
    return FixtureRun(
        **{field.name: getattr(judged, field.name) for field in fields(judged)},
        made_by=made_by,
        again=lambda: once(folder.with_name(f"{folder.stem}-{next(numbers)}.run")),
    )


def _properties(judged: Judged, made_by: str) -> list[tuple[str, str]]:
    """The JUnit properties of a run, whatever its test's outcome."""
    found = {"verdict": str(judged.verdict), "run": str(judged.folder), "again": made_by}
    if cause := judged.document.get("cause"):
        found["anomaly"] = str(cause)
    return [(f"linkflap-{name}", text) for name, text in found.items()]


def close() -> None:
    """Releases the verifier service, and ends Spark if a run has started it in this process."""
    verifier.close()
