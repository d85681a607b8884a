"""The command line's own part: values, exit codes and error texts; and `linkflap list`."""

from __future__ import annotations

import errno
import json
from collections.abc import Callable

import click
import pytest
from click.testing import CliRunner

from linkflap.chaos.catalogue import catalogue
from linkflap.chaos.scenarios import ScenarioRequest, scenario
from linkflap.chaos.schedule import check
from linkflap.harness import runtimes
from linkflap.harness.cli import commands
from linkflap.harness.cli.commands import linkflap
from linkflap.harness.cli.mirror_options import option_value
from linkflap.harness.mirrors import BY_COMMAND, MIRRORS, resolve
from linkflap.harness.model.errors import DeadlineExceeded, InputError
from linkflap.harness.model.scenario import FaultSpec, MirrorSpec
from linkflap.harness.recording.unexpected_exits import ends_broker, ends_mirror
from linkflap.topologies import parse


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("delivery=exactly-once", ("delivery", "exactly-once")),
        ("tasks=4", ("tasks", 4)),
        ("share=0.5", ("share", 0.5)),
        ("sync=true", ("sync", True)),
        ("groups=", ("groups", "")),
        ("groups=a=b", ("groups", "a=b")),
    ],
)
def test_values_of_options(text: str, value: tuple[str, str | int | float]) -> None:
    assert option_value(text) == value


@pytest.mark.parametrize("text", ["delivery", "=exactly-once", ""])
def test_an_option_not_of_the_form_name_value_is_refused(text: str) -> None:
    with pytest.raises(InputError, match="not of the form name=value"):
        option_value(text)


@pytest.mark.parametrize(
    ("error", "code", "says"),
    [
        (InputError("no such thing"), 254, "no such thing"),
        (DeadlineExceeded("waited 5 s"), 255, "waited 5 s"),
        (click.UsageError("No such option"), 254, "No such option"),
        (KeyboardInterrupt(), 130, "interrupted"),
        (click.Abort(), 130, "interrupted"),
        (
            OSError(errno.ENOSPC, "No space left on device", "/full/run.json"),
            255,
            "/full/run.json: No space left on device",
        ),
        (KeyError("x"), 255, "linkflap failed: KeyError: 'x'"),
    ],
)
def test_every_end_has_its_code_and_its_sentence(
    error: BaseException, code: int, says: str
) -> None:
    got, sentence = commands._exit_of(error)
    assert got == code
    assert says in sentence
    assert "\n" not in sentence


def test_the_error_about_an_unknown_option_names_where_options_are_listed() -> None:
    run = commands.linkflap.get_command(click.Context(commands.linkflap), "run")
    assert run
    with pytest.raises(click.NoSuchOption) as raised:
        run.make_context("linkflap run", ["link-flap", "--kafka", "4.3.1"])
    code, sentence = commands._exit_of(raised.value)
    assert code == 254
    assert sentence == "No such option '--kafka'; linkflap run --help lists the options"


def test_everything_with_a_name_has_a_description() -> None:
    for title, entries in catalogue().items():
        assert entries, title
        for name, about in entries.items():
            assert len(about) > 10, f"{title}: {name}"
            assert "InputError" not in about


def fault(kind: str, target: str) -> FaultSpec:
    return FaultSpec(id="x", fault=kind, target=target, at=0, duration=0)


@pytest.mark.parametrize(
    ("spec", "broker", "mirror"),
    [
        (fault("broker-kill", "A/1"), True, False),
        (fault("broker-kill", "A/2"), False, False),
        (fault("failover-forced", "A->B"), True, True),
        (fault("failover-forced", "B->A"), False, False),
        (fault("mirror-kill", "A->B"), False, True),
        (fault("link-cut", "A->B"), False, False),
    ],
)
def test_which_fault_explains_which_death(spec: FaultSpec, broker: bool, mirror: bool) -> None:
    assert ends_broker(spec, "A/1") is broker
    assert ends_mirror(spec, "A->B") is mirror


@pytest.mark.parametrize(
    ("refuse", "says"),
    [
        (
            lambda: scenario("link-flop", ScenarioRequest(seed=1)),
            "no scenario 'link-flop' (did you mean 'link-flap'?)",
        ),
        (lambda: scenario("ROUND_TRIP", ScenarioRequest(seed=1)), "(did you mean 'round-trip'?)"),
        (lambda: resolve(MirrorSpec(kind="mm3")), "no mirror 'mm3' (did you mean 'mm2'?)"),
        (
            lambda: resolve(MirrorSpec(kind="mm2", options={"task": 1})),
            "no option 'task' (did you mean 'tasks'?)",
        ),
        (
            lambda: resolve(MirrorSpec(kind="shadow", options={"bond": 1})),
            "no option 'bond' (did you mean 'bound'?)",
        ),
        (
            lambda: parse("round-trap"),
            "no topology named 'round-trap' (did you mean 'round_trip'?)",
        ),
        (
            lambda: check([fault("link-cat", "A->B")], parse("A->B")),
            "unknown kind 'link-cat' (did you mean 'link-cut'?)",
        ),
        (
            lambda: runtimes.check("proces", parse("A->B")),
            "no runtime 'proces' (did you mean 'process'?)",
        ),
        (
            lambda: linkflap.main(["list", "mirrrors"], standalone_mode=False),
            "no list of 'mirrrors' (did you mean 'mirrors'?)",
        ),
    ],
)
def test_the_error_about_an_unknown_name_suggests_the_nearest(
    refuse: Callable[[], object], says: str
) -> None:
    with pytest.raises(InputError) as refused:
        refuse()
    assert says in str(refused.value)


def test_every_option_of_every_mirror_is_listed_with_its_values_and_default() -> None:
    for kind, options in {
        name: mirror.about for name, mirror in MIRRORS.items() if name != BY_COMMAND
    }.items():
        resolved = resolve(MirrorSpec(kind=kind)).resolved
        assert {name: option.default for name, option in options.items()} == dict(resolved)
        for name, option in options.items():
            assert option.about
            assert option.values
            for value in option.choices:
                assert resolve(MirrorSpec(kind=kind, options={name: value})).resolved[name] == value
    said = CliRunner().invoke(linkflap, ["list", "mirrors"]).output
    assert (
        "  producer_ids                 jump | keep | negate | complement | region | reset (default"
        " jump)\n" in said
    )
    said = CliRunner().invoke(linkflap, ["list", "options", "--json"]).output
    assert json.loads(said)["options"]["fault link-half-open"]["stalled"]["choices"] == [
        "responses",
        "requests",
    ]
