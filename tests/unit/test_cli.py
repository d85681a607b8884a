"""The command line's own part: values, exit codes and sentences; and what `linkflap list` says of everything."""

from __future__ import annotations

import errno

import click
import pytest

from linkflap.chaos.catalogue import catalogue
from linkflap.harness.cli import commands
from linkflap.harness.cli.run import option_value
from linkflap.harness.mirrors import MIRRORS, OPTIONS
from linkflap.harness.model.errors import DeadlineExceeded, InputError
from linkflap.harness.model.scenario import FaultSpec
from linkflap.harness.recording.unexpected_exits import ends_broker, ends_mirror


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
def test_values_of_options(text, value):
    assert option_value(text) == value


@pytest.mark.parametrize("text", ["delivery", "=exactly-once", ""])
def test_what_is_no_option(text):
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
        (OSError(errno.ENOSPC, "No space left on device", "/full/run.json"), 255, "/full/run.json: No space left on device"),
        (KeyError("x"), 255, "linkflap failed: KeyError: 'x'"),
    ],
)
def test_every_end_has_its_code_and_its_sentence(error, code, says):
    told, sentence = commands._exit_of(error)
    assert told == code
    assert says in sentence
    assert "\n" not in sentence


def test_everything_that_has_a_name_says_what_it_is():
    for title, entries in catalogue().items():
        assert entries, title
        for name, about in entries.items():
            assert len(about) > 10, f"{title}: {name}"
            assert "InputError" not in about


def test_every_mirror_has_its_options_read_before_anything_starts():
    assert OPTIONS.keys() == MIRRORS.keys()


def fault(kind, target):
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
def test_which_fault_explains_which_death(spec, broker, mirror):
    assert ends_broker(spec, "A/1") is broker
    assert ends_mirror(spec, "A->B") is mirror
