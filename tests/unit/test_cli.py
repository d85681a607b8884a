"""The command line before anything starts and after a verdict: values, exit codes, error texts,
lists, and shell completion."""

from __future__ import annotations

import errno
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import click
import pytest
from click.testing import CliRunner

from linkflap.chaos.scenarios import SCENARIOS, ScenarioRequest, scenario
from linkflap.chaos.schedule import check
from linkflap.cli import commands
from linkflap.cli.commands import linkflap
from linkflap.cli.completion import catalogue
from linkflap.cli.exec_ import exit_of, to_repeat
from linkflap.cli.log_options import logs_request, option_value
from linkflap.cli.output import annotate, check_junit
from linkflap.harness import runtimes
from linkflap.harness.mirrors import BY_COMMAND, MIRRORS, resolve
from linkflap.harness.model.errors import DeadlineExceeded, InputError
from linkflap.harness.model.scenario import FaultSpec, MirrorSpec
from linkflap.harness.model.texts import for_terminal
from linkflap.harness.model.verdict import Anomaly, Document
from linkflap.judging import page
from linkflap.recording.unexpected_exits import ends_broker, ends_mirror
from linkflap.report import html
from linkflap.report.document import read
from linkflap.spark_verify.inspect import log_lanes
from linkflap.spark_verify.spark import masters
from linkflap.spark_verify.verdict.judge import Judgement
from linkflap.topologies import parse
from tests.command_line import ran
from tests.kafka_log import batch, record, segment
from tests.unit.recorded_run import Recorded
from tests.unit.recorded_verdict import document


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


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ([], "there is no command to run"),
        (["--topic", "orders"], "there is no command to run"),
        (["--topic", "my orders", "--", "true"], "'my orders'; name it in Kafka's characters"),
        (["--topic", "x" * 250, "--", "true"], "in Kafka's characters, 249 at most"),
        (["--topic", "__x", "--", "true"], "Kafka or mirrors use names like it for themselves"),
        (["--topology", "A<->B", "--", "true"], "links of A<->B lead back"),
        (["--topic", "orders", "--within", "soon", "--", "true"], "'soon' is not a time"),
        (["--topic", "orders", "--schedule", "flip", "--", "true"], "there is no scenario 'flip'"),
        (["--topic", "orders", "--schedule", "client-kill", "--", "true"], "cannot be played"),
        (["--topic", "orders", "--topology", "A{mtls}->B", "--", "true"], "cannot show cluster A"),
        (["--topic", "orders", "--", "./no-such"], "there is no program './no-such'"),
        (["--share-group", "g", "--record", "none", "--", "true"], "by what crossed the wire"),
        (["--group", "", "--", "true"], "--group is empty; name a group, or leave --group out"),
        (["--share-group", "", "--", "true"], "--share-group is empty"),
        (["--group", "g", "--share-group", "g", "--", "true"], "'g' cannot be a consumer group"),
    ],
)
def test_exec_refuses_what_it_could_not_run_or_judge(words: list[str], says: str) -> None:
    done = CliRunner().invoke(linkflap, ["exec", "--dry-run", *words], standalone_mode=False)
    assert isinstance(done.exception, InputError)
    assert says in str(done.exception)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ([], "is not judged: name the topics that the command writes: --topic orders"),
        (["--record", "none"], "is not judged: leave --record none out, and name the topics"),
        (["--topic", "orders"], ""),
    ],
)
def test_exec_says_how_its_own_readers_read_the_topics(words: list[str], says: str) -> None:
    words = ["exec", "--dry-run", *words, "--", "true"]
    said = CliRunner().invoke(linkflap, words, standalone_mode=False).output
    assert ("no reader reads A's records on B" in said) == bool(says)
    assert says in said
    assert "[[workload]]" not in said


def test_exec_knows_the_partitions_that_it_gives_a_topic(tmp_path: Path) -> None:
    file = tmp_path / "refused.toml"
    file.write_text(
        """schema = 1
name = "refused"
topology = "A"
[[fault]]
id = "refused"
fault = "program-refused"
target = "A"
at = 1.0
duration = 1.0
options = { topic = "orders", partition = 9 }
"""
    )
    words = ["exec", "--dry-run", "--topic", "orders", "--schedule", str(file)]
    for partitions, refused in (("10", False), ("9", True)):
        words = [*words, "--partitions", partitions]
        done = CliRunner().invoke(linkflap, [*words, "--", "true"], standalone_mode=False)
        assert ("names partition 9 of orders" in str(done.exception)) == refused
        assert refused or done.exception is None


def test_exit_of_a_command_is_that_of_a_shell() -> None:
    assert exit_of(0, "") == (0, "")
    assert exit_of(3, "") == (3, "the command ended with status 3")
    assert exit_of(-9, "SIGKILL") == (137, "SIGKILL ended the command (exit status 137)")


@pytest.mark.parametrize("dashes", [["--"], []])
def test_exec_runs_again_into_another_folder_with_its_seed(
    monkeypatch: pytest.MonkeyPatch, dashes: list[str]
) -> None:
    words = ["sh", "--out", "x", "--seed=1", "--"]
    own = ["--offline", "exec", "--out", "run", "--topic", "orders", "--seed=3"]
    monkeypatch.setattr(sys, "argv", ["linkflap", *own, *dashes, *words])
    again = "linkflap --offline exec --topic orders --seed 7 -- sh --out x --seed=1 --"
    assert to_repeat(words, 7) == again


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


def test_every_name_of_the_catalogue_has_a_description() -> None:
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
        (lambda: scenario("ROUND_TRIP", ScenarioRequest(seed=1)), "(did you mean 'round-trip'?)"),
        (
            lambda: resolve(MirrorSpec(kind="mm2", options={"task": 1})),
            "no option 'task' (did you mean 'tasks'?)",
        ),
        (
            lambda: resolve(MirrorSpec(kind="shadow", options={"bond": 1})),
            "no option 'bond' (did you mean 'bound'?)",
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


def said(*arguments: str) -> str:
    """The output of a dry run; raises its error."""
    done = CliRunner().invoke(linkflap, ["run", *arguments, "--dry-run"], standalone_mode=False)
    if done.exception:
        raise done.exception
    return done.output


def refused(*arguments: str) -> str:
    with pytest.raises(InputError) as error:
        said(*arguments)
    return str(error.value)


@pytest.fixture
def docker_scenario(tmp_path: Path) -> str:
    path = tmp_path / "mine.toml"
    said("baseline", "--runtime", "docker", "--save", str(path))
    assert 'runtime = "docker"' in path.read_text()
    return str(path)


def test_brokers_are_processes_unless_docker_is_asked_for(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("LINKFLAP_RUNTIME")
    assert "runtime process" in said("baseline", "--save", str(tmp_path / "one.toml"))
    assert "runtime =" not in (tmp_path / "one.toml").read_text()
    monkeypatch.setenv("LINKFLAP_RUNTIME", "docker")
    assert "runtime docker" in said("baseline")
    assert "runtime process" in said("baseline", "--runtime", "process")


def test_a_scenario_file_may_ask_for_docker(
    monkeypatch: pytest.MonkeyPatch, docker_scenario: str
) -> None:
    monkeypatch.delenv("LINKFLAP_RUNTIME")
    assert "runtime docker" in said(docker_scenario)
    assert "runtime process" in said(docker_scenario, "--runtime", "process")
    monkeypatch.setenv("LINKFLAP_RUNTIME", "process")
    assert "runtime process" in said(docker_scenario)


def test_every_forced_failover_has_a_variant_whose_source_is_half_open(tmp_path: Path) -> None:
    with_it = said("round-trip", "--stall-source", "--save", str(tmp_path / "one.toml"))
    assert with_it.count("failover-forced on") == with_it.count("{'source': 'stalled'}") == 1
    assert 'source = "stalled"' in (tmp_path / "one.toml").read_text()
    assert "stalled" not in said("round-trip")


def test_programs_are_recorded_on_the_wire_or_not(tmp_path: Path) -> None:
    docs = Path(__file__).resolve().parents[2] / "docs"
    examples = docs / "examples" / "clients"
    for how, times in (("wire", 1), ("none", 0)):
        saved = tmp_path / f"{how}.toml"
        said(str(examples / "copier.toml"), "--record", how, "--save", str(saved))
        assert saved.read_text().count('record = "wire"') == times
    assert "waits for 'after:flap and requested:Produce:20'" in refused(
        str(examples / "failover.toml"), "--record", "none"
    )
    assert "baseline has none whose topics are named" in refused("baseline", "--record", "wire")


def test_a_scenario_without_a_forced_failover_has_no_such_variant(tmp_path: Path) -> None:
    assert "has none" in refused("planned-failover", "--stall-source")
    said("baseline", "--save", str(tmp_path / "mine.toml"))
    assert "--stall-source changes a built-in scenario" in refused(
        str(tmp_path / "mine.toml"), "--stall-source"
    )


@dataclass(frozen=True)
class Judged:
    folder: Path
    document: Mapping[str, Any]
    judged: Document
    kept: Path
    anomalies: tuple[Anomaly, ...] = ()


def judged(root: Path, *renamed: tuple[str, str]) -> Judged:
    folder = Recorded(root / "run", seconds=1.0).write().close()
    text = (folder / "run.json").read_text()
    for old, new in renamed:
        assert old in text
        text = text.replace(old, new)
    (folder / "run.json").write_text(text)
    judged_document = document(folder, "unknown")
    return Judged(
        folder=folder, document=judged_document, judged=read(judged_document), kept=folder
    )


def test_the_report_shows_a_link_to_a_cluster_that_is_missing(tmp_path: Path) -> None:
    one = judged(tmp_path, ('"destination": "B"', '"destination": "Q"'))
    assert page.write(cast(Judgement, one)) == []
    assert "-&gt; Q" in (one.folder / html.NAME).read_text()


def test_a_report_that_cannot_be_drawn_is_left_out_in_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = judged(tmp_path)
    (one.folder / html.NAME).write_text("of an older judgement")

    def undrawable(*_: object, **__: object) -> str:
        raise OverflowError("cannot convert float infinity to integer")

    monkeypatch.setattr(html, "payload", undrawable)
    (said,) = page.write(cast(Judgement, one))
    assert "\n" not in said
    assert said.startswith(
        f"{one.folder / html.NAME} is not written: the run directory has values that cannot be "
        "drawn (Over"
    )
    assert not (one.folder / html.NAME).exists()


def test_a_part_that_cannot_be_drawn_is_left_out_of_the_report_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def undrawable(*_: object) -> None:
        raise OverflowError("cannot convert float infinity to integer")

    one = judged(tmp_path)
    monkeypatch.setattr(log_lanes, "lanes", undrawable)
    (said,) = page.write(cast(Judgement, one))
    assert "\n" not in said
    assert "is without the offsets (OverflowError" in said
    text = (one.folder / html.NAME).read_text()
    assert 'id="timeline-chart"' in text
    assert 'id="lanes-chart"' not in text


FORENSICS = (sys.executable, "-m", "linkflap", "forensics")


@pytest.fixture
def bad(tmp_path: Path) -> str:
    """Logs with many findings, all of them invalid."""
    data = [batch(n, [record(b"v")], pid=1, epoch=0, seq=2 * n) for n in range(40)]
    segment(tmp_path / "orders-0", data)
    return str(tmp_path)


@contextmanager
def nobody() -> Iterator[int]:
    """The writing end of a pipe without a reader."""
    reading, writing = os.pipe()
    os.close(reading)
    try:
        yield writing
    finally:
        os.close(writing)


def ends(*arguments: str, **streams: Any) -> subprocess.CompletedProcess[str]:
    return subprocess.run(arguments, check=False, text=True, timeout=300, **streams)


def test_a_reader_that_is_gone_changes_no_exit_code(bad: str) -> None:
    with nobody() as gone:
        done = ends(*FORENSICS, bad, stdout=gone, stderr=subprocess.PIPE)
        assert (done.returncode, done.stderr) == (1, "")
        assert ends(*FORENSICS, bad, stdout=gone, stderr=gone).returncode == 1
        assert ends(*FORENSICS, f"{bad}/none", stdout=gone, stderr=gone).returncode == 254


def test_a_full_disk_at_standard_output_is_one_sentence(bad: str) -> None:
    with open("/dev/full", "w") as full:
        done = ends(*FORENSICS, bad, stdout=full, stderr=subprocess.PIPE)
        said = (
            "linkflap: standard output cannot be written: No space left on device; make room on "
            "its disk"
        )
        assert (done.returncode, done.stderr.splitlines()) == (
            255,
            [f"{said}, then run the command again"],
        )
        assert ends(*FORENSICS, bad, stdout=subprocess.DEVNULL, stderr=full).returncode == 1


def test_streams_that_were_closed_take_nothing_of_the_files_that_are_opened(bad: str) -> None:
    for closed in (">&-", "2>&-", ">&- 2>&-"):
        shell = ("sh", "-c", f'"$@" {closed}', "sh")
        done = ends(*shell, *FORENSICS, bad, stdout=subprocess.DEVNULL)
        assert done.returncode == 1, closed


def ended(*words: str | bytes, cwd: Path, **env: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "linkflap", *words]
    return ran(command, within=300, cwd=cwd, env={**os.environ, **env})


def test_a_name_that_is_not_utf_8_is_refused_in_a_sentence(tmp_path: Path) -> None:
    done = ended("verify", b"runs-\xff", "--json", cwd=tmp_path)
    assert done.returncode == 254
    assert done.stderr == "linkflap: b'runs-\\xff' is not UTF-8; give it a name that is\n"
    assert json.loads(done.stdout)["exit_code"] == 254


def test_a_working_directory_that_is_not_utf_8_is_refused_in_a_sentence(tmp_path: Path) -> None:
    folder = os.fsencode(tmp_path) + b"/\xff"
    os.mkdir(folder)
    done = ended("list", cwd=Path(os.fsdecode(folder)))
    assert done.returncode == 254
    assert "\\xff' is not UTF-8; give it a name that is" in done.stderr


@pytest.mark.parametrize("path", ["/proc/x.xml", "/proc/self/x/y.xml", "/dev/null/x.xml", "."])
def test_a_junit_file_that_cannot_be_written_is_refused_before_the_run(path: str) -> None:
    with pytest.raises(InputError, match="--junit"):
        check_junit(Path(path))


def test_asking_whether_a_junit_file_can_be_written_leaves_nothing(tmp_path: Path) -> None:
    check_junit(tmp_path / "x.xml")
    assert not list(tmp_path.iterdir())
    (tmp_path / "old.xml").write_text("<old/>")
    check_junit(tmp_path / "old.xml")
    assert (tmp_path / "old.xml").read_text() == "<old/>"


def test_the_same_link_twice_is_refused() -> None:
    with pytest.raises(InputError, match="--link A->B is given twice; give it once"):
        logs_request(
            logs=["A=x", "B=y"], bootstrap=[], properties=[], rate=None,
            links=["A->B", "B->A", "A->B"], promotions=[],
            topics=".*", preset="exact", settings=[], producer_ids=None, leader_epochs=None,
        )  # fmt: skip
    with pytest.raises(InputError, match="the link A->B is there twice"):
        parse("A->B, A->B")


@pytest.mark.parametrize("value", ["banana", "", "4", "4gb", "-1g", "0g", "1.5g"])
@pytest.mark.parametrize("name", ["spark.driver.memory", "spark.executor.memory"])
def test_an_invalid_amount_of_memory_is_refused_with_an_example(name: str, value: str) -> None:
    with pytest.raises(InputError, match=f"is no amount of memory; write for example {name}=4g"):
        masters.given_settings([f"{name}={value}"])


# Shell completion: scenarios, mirrors, options and their values; in bash itself, and as zsh and
# fish request it.


_RUN = 'import sys; sys.argv[0] = "linkflap"; from linkflap.cli import main; main()'


@pytest.fixture
def command(tmp_path: Path) -> Path:
    """`linkflap` on the PATH, as in an installation."""
    path = tmp_path / "linkflap"
    path.write_text(f"#!/bin/sh\nexec {sys.executable} -c '{_RUN}' \"$@\"\n")
    path.chmod(0o755)
    return path


def completed(shell: str, words: list[str], incomplete: str) -> list[str]:
    """The lines that the command prints for a shell's completion request."""
    asked = {
        "COMP_WORDS": " ".join(words),
        "COMP_CWORD": str(len(words)),
        "_LINKFLAP_COMPLETE": f"{shell}_complete",
    }
    if shell == "fish":
        asked["COMP_CWORD"] = incomplete
    else:
        asked["COMP_WORDS"] += f" {incomplete}"
    return CliRunner().invoke(linkflap, prog_name="linkflap", env=asked).output.splitlines()


def in_bash(command: Path, *words: str, cwd: Path) -> list[str]:
    """Bash's completions of the last of these words."""
    listed = " ".join(f"'{word}'" for word in words)
    script = f"""
        source <(_LINKFLAP_COMPLETE=bash_source linkflap)
        compopt() {{ echo "compopt $*" >&2; }}
        COMP_WORDS=({listed}); COMP_CWORD={len(words) - 1}
        _linkflap_completion linkflap
        printf '%s\\n' "${{COMPREPLY[@]}}"
    """
    env = {**os.environ, "PATH": f"{command.parent}:{os.environ['PATH']}"}
    done = ran(["bash", "-c", script], within=300, env=env, cwd=cwd)
    assert done.returncode == 0, done.stderr
    assert "linkflap:" not in done.stderr
    return done.stdout.split()


def test_bash_completes_names_and_values_and_ends_well(command: Path, tmp_path: Path) -> None:
    assert in_bash(command, "linkflap", "run", "link-", cwd=tmp_path) == ["link-flap"]
    assert in_bash(command, "linkflap", "run", "link-flap", "--mir", cwd=tmp_path) == ["--mirror"]
    assert in_bash(
        command, "linkflap", "run", "link-flap", "--set", "delivery", "=", "ex", cwd=tmp_path
    ) == ["exactly-once"]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_every_shell_gets_its_script_and_exit_code_0(shell: str, command: Path) -> None:
    env = {**os.environ, "_LINKFLAP_COMPLETE": f"{shell}_source"}
    done = ran([command], within=300, env=env)
    assert (done.returncode, done.stderr) == (0, "")
    assert f"{shell}_complete" in done.stdout


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
@pytest.mark.parametrize(
    ("words", "incomplete", "found"),
    [
        (["linkflap", "run"], "producer-id", ["producer-id-collision"]),
        (["linkflap", "run"], "", list(SCENARIOS)),
        (["linkflap", "run", "baseline", "--mirror"], "m", ["mm2"]),
        (
            ["linkflap", "run", "baseline", "--mirror", "mm2", "--set"],
            "",
            ["delivery=", "isolation=", "groups=", "tasks=", "connect="],
        ),
        (["linkflap", "run", "baseline", "--set"], "prod", ["producer_ids="]),
        (["linkflap", "run", "baseline", "--runtime"], "d", ["docker"]),
        (["linkflap", "run", "baseline", "--topology"], "round", ["round-trip"]),
        (["linkflap", "list"], "mir", ["mirrors"]),
    ],
)
def test_the_offered_completions(
    shell: str, words: list[str], incomplete: str, found: list[str]
) -> None:
    printed = completed(shell, words, incomplete)
    if shell == "zsh":  # three lines each: type, value, help
        assert printed[1::3] == found
    else:
        assert [
            line.partition(",")[2].partition("\t")[0]
            for line in printed
            if line.startswith("plain,")
        ] == found


@pytest.mark.parametrize(
    ("words", "incomplete", "found"),
    [
        (
            ["linkflap", "run", "x", "--set", "producer_ids"],
            "=",
            ["jump", "keep", "negate", "complement", "region", "reset"],
        ),
        (["linkflap", "run", "x", "--set", "isolation", "="], "read_u", ["read_uncommitted"]),
        (["linkflap", "run", "x", "--mirror", "="], "sh", ["shadow"]),
        (["linkflap", "run", "x"], "--mir", ["--mirror"]),
        (["linkflap", "run", "x", "--set", "bound", "=", "lso"], "--mir", ["--mirror"]),
        (
            ["linkflap", "run", "x", "--set", "bound", "=", "lso", "--set", "leader_epochs", "="],
            "k",
            ["keep"],
        ),
    ],
)
def test_words_that_bash_breaks_at_an_equals_sign(
    words: list[str], incomplete: str, found: list[str]
) -> None:
    assert [line.partition(",")[2] for line in completed("bash", words, incomplete)] == found


@pytest.mark.parametrize("shell", ["zsh", "fish"])
@pytest.mark.parametrize(
    ("incomplete", "found"),
    [
        ("--mirror=m", "--mirror=mm2"),
        ("--set=producer_ids=k", "--set=producer_ids=keep"),
        ("--mir", "--mirror"),
    ],
)
def test_zsh_and_fish_put_in_words(shell: str, incomplete: str, found: str) -> None:
    printed = completed(shell, ["linkflap", "run", "x"], incomplete)
    offered = (
        printed[1::3]
        if shell == "zsh"
        else [line.partition(",")[2].partition("\t")[0] for line in printed]
    )
    assert offered == [found]


def test_fish_itself_shows_help_with_commas_and_values_behind_an_equals_sign(
    command: Path, tmp_path: Path
) -> None:
    if shutil.which("fish") is None:
        pytest.skip("fish is not installed")
    script = (
        "_LINKFLAP_COMPLETE=fish_source linkflap | source; complete -C 'linkflap li'; complete -C "
        "'linkflap run x --mirror=m'"
    )
    env = {**os.environ, "PATH": f"{command.parent}:{os.environ['PATH']}", "HOME": str(tmp_path)}
    done = ran(["fish", "-c", script], within=300, env=env)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines()[0].startswith("list\tLists every name that you can give.")
    assert done.stdout.splitlines()[1] == "--mirror=mm2"


@pytest.mark.skipif(shutil.which("zsh") is None, reason="zsh is not installed")
def test_the_script_of_zsh_is_one(command: Path) -> None:
    env = {**os.environ, "_LINKFLAP_COMPLETE": "zsh_source"}
    script = ran([command], within=300, env=env, check=True).stdout
    assert script.count("nospace") == 4
    assert ran(["zsh", "-n"], within=60, input=script).stderr == ""


def test_a_scenario_may_be_a_file() -> None:
    assert completed("bash", ["linkflap", "run"], "./mi") == ["file,./mi"]


def test_github_shows_where_an_error_is(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("GITHUB_ACTIONS", raising=False)
    annotate("failed", "mine.toml, line 3: no")
    assert capsys.readouterr() == ("", "")
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    annotate("failed", "mine.toml, line 3: 5 % is\nno")
    annotate("invalid", "B lost record 3", "a,b.toml")
    assert capsys.readouterr().err.splitlines() == [
        "::error file=mine.toml,line=3,title=linkflap%3A failed::mine.toml, line 3: 5 %25 is%0Ano",
        "::error file=a%2Cb.toml,title=linkflap%3A invalid::B lost record 3",
    ]


def test_on_github_the_sentence_of_an_error_is_written_once(tmp_path: Path) -> None:
    done = ended("verify", "nowhere", cwd=tmp_path, GITHUB_ACTIONS="true")
    assert done.returncode == 254
    assert done.stderr.count("nowhere is not a run directory") == 1
    assert done.stderr.startswith("::error ")


@pytest.mark.parametrize(
    "words",
    ["run link-flap --dry-run", "run link-flap", "run link-flap --count 2", "suite smoke --runs 2"],
)
def test_offline_run_names_missing_downloads_before_it_makes_a_folder(
    tmp_path: Path, words: str
) -> None:
    cache = str(tmp_path / "cache")
    done = ended(*words.split(), "--offline", cwd=tmp_path, LINKFLAP_CACHE=cache)
    assert done.returncode == 255
    said = r"linkflap: Kafka .* and toxiproxy-.* are not in the cache .*\n"
    assert re.fullmatch(said, done.stderr)
    assert not (tmp_path / "linkflap-runs").exists()


@pytest.mark.parametrize(
    ("hostile", "shown"),
    [
        ("a\n::error::no", "a\n: :error::no"),
        ("x::set-output name=y::z", "x: :set-output name=y::z"),
        ("##[add-mask]e", "# #[add-mask]e"),
        ("[::1]:9092, Foo::bar, # [x] ## y", "[::1]:9092, Foo::bar, # [x] ## y"),
        ("a\x1b[2J\u202e", "a\ufffd[2J\ufffd"),
    ],
)
def test_names_are_no_commands_to_a_terminal_or_to_github(hostile: str, shown: str) -> None:
    assert for_terminal(hostile) == shown


def test_a_terminal_in_latin_1_shows_what_it_can(tmp_path: Path) -> None:
    done = ended("run", "link-flap", "--dry-run", cwd=tmp_path, PYTHONIOENCODING="latin-1")
    assert done.returncode == 0, done.stderr
    assert "failover-forced on A->B" in done.stdout
