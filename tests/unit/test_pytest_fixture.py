"""The marker's arguments and what `linkflap_run` gives a test, without any cluster: in pytest, on a
project of one file."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from linkflap.api.fixtures import FixtureRun, Policy
from linkflap.harness.model.verdict import CheckResult, Verdict

pytest_plugins = ["pytester"]

_WRONG = {
    '"baselin"': "there is no scenario 'baselin' (did you mean 'baseline'?)",
    '"baseline", "A->B"': "the marker linkflap names more than one scenario",
    '"baseline", scenario="baseline"': "the marker linkflap names more than one scenario",
    '"baseline", scenaro="x"': (
        "the marker linkflap has no argument 'scenaro' (did you mean 'scenario'?)"
    ),
    '"baseline", tasks=3': "mirror shadow has no option 'tasks'",
    '"baseline", seed=-1': "seed is -1; it must be a whole number from 0 to 4294967295",
    '"baseline", seed="x"': "seed is 'x'; it must be a whole number",
    '"baseline", seed=True': "seed is True; it must be a whole number",
    '"baseline", duration=-4': "duration is -4; it must be a number of seconds from 1 to 86400",
    '"baseline", duration=float("nan")': "duration is nan; it must be a number of seconds",
    '"baseline", topology=3': "topology is 3; it must be a text like A->B",
    '"baseline", mirror=["mm2"]': "mirror is ['mm2']; it must be the name of a mirror",
    '"baseline", runtime=1': "runtime is 1; it must be process or docker",
    '"baseline", producer_ids=["keep"]': (
        "option producer_ids is ['keep']; it must be a text, a number, True or False"
    ),
    '"baseline", judge=False': "judge of the marker linkflap is for tests with linkflap_world",
    '"baseline", record="wired"': "record is 'wired' (did you mean 'wire'?); it must be wire or",
    '"baseline", record="none"': "record (--record) applies to programs of your own, and baseline",
    "3": "scenario is 3; it must be the name of a scenario",
}


def test_every_wrong_argument_is_one_sentence_said_once(pytester: pytest.Pytester) -> None:
    tests = [
        f"@pytest.mark.linkflap({given})\ndef test_{n}(linkflap_run): pass\n"
        for n, given in enumerate(_WRONG)
    ]
    tests += [
        '@pytest.mark.linkflap(topolgy="A->B")\ndef test_deployment(linkflap_deployment): pass\n'
    ]
    tests += ['@pytest.mark.linkflap("baseline")\ndef test_world(linkflap_world): pass\n']
    pytester.makepyfile("import pytest\n" + "\n".join(tests))
    done = pytester.runpytest_inprocess("-p", "no:cacheprovider")
    done.assert_outcomes(errors=len(_WRONG) + 2)
    text = done.stdout.str()
    assert "Traceback" not in text
    assert "During handling" not in text
    body = text.partition("= ERRORS =")[2].partition("short test summary")[0]
    others = {
        "the marker linkflap has no argument 'topolgy' (did you mean 'topology'?)",
        (
            "the marker linkflap has no argument 'scenario'; it has topology, topics, mirror, "
            "mirror_options,"
        ),
    }
    for sentence in {*_WRONG.values(), *others}:
        twice = sentence == "the marker linkflap names more than one scenario"
        assert body.count(f"linkflap: {sentence}") == 1 + twice, sentence
    assert not list(pytester.path.glob("**/*.run"))


def test_a_test_that_judges_nothing_fails_unless_it_says_so(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    @contextmanager
    def deploy(topology: str, folder: Path, runtime: str) -> Iterator[SimpleNamespace]:
        yield SimpleNamespace(judged=False)

    monkeypatch.setattr("linkflap.api.deploy.deploy", deploy)
    pytester.makepyfile("""
        import pytest

        def test_nothing(linkflap_world): pass
        def test_judged(linkflap_world): linkflap_world.judged = True
        @pytest.mark.linkflap(judge=False)
        def test_said(linkflap_world): pass
        def test_failed(linkflap_world): assert False
        def test_skipped(linkflap_world): pytest.skip()
    """)
    done = pytester.runpytest_inprocess("-p", "no:cacheprovider")
    done.assert_outcomes(passed=3, errors=1, failed=1, skipped=1)
    done.stdout.fnmatch_lines(["*at teardown of test_nothing*", "*passed and judged nothing*"])


def run(verdict: Verdict, *, again: Verdict = Verdict.VALID) -> FixtureRun:
    """A run with this result, and with another when it is repeated."""
    check = CheckResult(
        name="lost-write",
        verdict=verdict,
        examined={},
        anomalies=0,
        allowed=0,
        reason="for a reason",
    )
    first = FixtureRun(
        folder=Path("x.run"), verdict=verdict, checks={"lost-write": check}, anomalies=(),
        failovers=(),
        document={"cause": "B lost record 3 of A.orders-0 @ 12."},
        again=lambda: replace(first, verdict=again),
        made_by="pytest test_it.py::test_it",
    )  # fmt: skip
    return first


def test_a_valid_run_is_returned() -> None:
    valid = run(Verdict.VALID)
    assert valid.require_valid() is valid
    assert valid.require_valid(unknown="skip") is valid


@pytest.mark.parametrize("unknown", ["fail", "skip", "run-again"])
def test_an_invalid_run_fails_the_test_and_names_the_cause_and_the_command(unknown: Policy) -> None:
    with pytest.raises(pytest.fail.Exception) as failed:
        run(Verdict.INVALID).require_valid(unknown=unknown)
    said = str(failed.value)
    assert (
        "linkflap: invalid: B lost record 3 of A.orders-0 @ 12.\nsee it: linkflap explain x.run 1"
        in said
    )
    assert "run directory: x.run\nrun again: pytest test_it.py::test_it" in said


def test_the_test_decides_about_an_unknown_run() -> None:
    with pytest.raises(pytest.fail.Exception, match="linkflap: unknown:"):
        run(Verdict.UNKNOWN).require_valid()
    with pytest.raises(pytest.skip.Exception, match="linkflap: unknown:"):
        run(Verdict.UNKNOWN).require_valid(unknown="skip")
    assert run(Verdict.UNKNOWN).require_valid(unknown="run-again").valid
    for verdict in (Verdict.UNKNOWN, Verdict.INVALID):
        with pytest.raises(pytest.fail.Exception, match=f"linkflap: {verdict}"):
            run(Verdict.UNKNOWN, again=verdict).require_valid(unknown="run-again")
    with pytest.raises(pytest.fail.Exception, match="give 'fail' or 'skip' or 'run-again'"):
        run(Verdict.UNKNOWN).require_valid(unknown=cast(Policy, "perhaps"))
