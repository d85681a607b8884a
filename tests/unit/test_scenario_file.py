"""Scenario files: a written file is read back as the same scenario, and every mistake is reported
with its line."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path

import pytest

import linkflap as api
from linkflap.chaos.scenario_file import read, render, save
from linkflap.chaos.scenarios import SCENARIOS, ScenarioRequest, scenario
from linkflap.harness.cli.commands import linkflap
from linkflap.harness.model.errors import InputError
from linkflap.harness.runtimes.distribution import setting_names
from linkflap.topologies import parse
from tests.unit.scenario_text import GOOD, made, run


@pytest.mark.parametrize("name", SCENARIOS)
@pytest.mark.parametrize("seed", [1, 1279])
def test_every_built_in_scenario_is_written_and_read_back_as_it_was(
    name: str, seed: int, tmp_path: Path
) -> None:
    built = scenario(name, ScenarioRequest(seed=seed))
    save(built, tmp_path / "it.toml")
    assert read(tmp_path / "it.toml", seed=0) == built


def test_the_users_options_are_in_the_file(tmp_path: Path) -> None:
    request = ScenarioRequest(
        seed=3,
        topology=parse("A:3->B->C"),
        mirror="mm2",
        mirror_options={"delivery": "exactly-once"},
        duration=7.0,
    )
    built = scenario("baseline", request)
    save(built, tmp_path / "it.toml")
    assert read(tmp_path / "it.toml", seed=0) == built


def test_a_file_by_hand(tmp_path: Path) -> None:
    it = read(made(tmp_path), seed=42)
    assert (it.seed, it.about, it.duration) == (42, "mine, from mine.toml", 5.0)
    assert it.topology.cluster("A").config == {
        "transaction.max.timeout.ms": "30000",
        "auto.create.topics.enable": "true",
    }
    assert it.topology.cluster("B").config == {}
    assert it.topics.config == {"cleanup.policy": "compact"}
    assert it.mirror.options == {"producer_ids": "keep"}
    assert [(f.id, f.when, f.options) for f in it.schedule] == [
        ("slow", "always", {"latency": 100}),
        ("failover", "after:slow and open-transactions", {}),
    ]
    assert read(made(tmp_path, render(it)), seed=0) == it


def test_the_seed_of_the_file_stands_unless_another_is_chosen(tmp_path: Path) -> None:
    path = made(tmp_path, GOOD.replace("duration = 5.0", "duration = 5.0\nseed = 9"))
    assert read(path, seed=1).seed == 9
    assert read(path, seed=1, chosen=True).seed == 1


@pytest.mark.parametrize(
    "setting",
    ["log.dirs", "advertised.listeners", "listener.name.client.ssl.keystore.location",
    "metric.reporters", "process.roles",
     "authorizer.class.name", "remote.log.storage.manager.class.path", "sasl.jaas.config",
         "node.id", "config.providers"],
)  # fmt: skip
def test_settings_that_no_scenario_may_change(setting: str, tmp_path: Path) -> None:
    text = GOOD.replace('"auto.create.topics.enable" = true', f'"{setting}" = "x"')
    with pytest.raises(InputError, match="which no scenario may; leave it out"):
        read(made(tmp_path, text), seed=1)


def build(folder: Path, *constants: str) -> Path:
    """A folder of jars, with one class that has these constants."""
    folder.mkdir()
    with zipfile.ZipFile(folder / "kafka-clients-9.9.9.jar", "w") as jar:
        jar.writestr("kafka/kafka-version.properties", "version=9.9.9")
        jar.writestr(
            "Own.class",
            b"".join(b"\x01" + len(text).to_bytes(2, "big") + text.encode() for text in constants),
        )
    return folder


def test_settings_of_a_build_of_ones_own_are_known_by_its_jars(tmp_path: Path) -> None:
    own = build(tmp_path / "libs", "mirror.fetch.pause.ms", "plugin.pace", "topic.pace.ms")
    text = GOOD.replace("A:3->B", f"A@{own}:3->B")
    for known in (
        "mirror.fetch.pause.ms",
        "plugin.pace",
        "log.topic.pace.ms",
        "num.io.threads",
        "rsm.config.bucket",
    ):
        read(made(tmp_path, text.replace("auto.create.topics.enable", known)), seed=1)
    for unknown in ("mirror.fetch.pause", "plugin.pac", "num.io.thread"):
        with pytest.raises(
            InputError, match=rf"line 17: Kafka has no setting '{unknown}' of a broker"
        ):
            read(made(tmp_path, text.replace("auto.create.topics.enable", unknown)), seed=1)
    with pytest.raises(InputError, match=r"no setting 'plugin\.pace' of a broker"):
        read(made(tmp_path, GOOD.replace("auto.create.topics.enable", "plugin.pace")), seed=1)
    image = GOOD.replace("A:3->B", "A@me/kafka:1->B").replace(
        "auto.create.topics.enable", "plugin.pace"
    )
    read(made(tmp_path, image), seed=1)  # unknown before it exists


def test_names_of_settings_are_those_of_all_releases() -> None:
    for name in (
        "log.message.timestamp.type",
        "group.share.enable",
        "inter.broker.protocol.version",
        "num.io.threads",
    ):
        assert setting_names.knows(setting_names.BROKER, name)
    assert setting_names.names(setting_names.TOPIC) > {
        "cleanup.policy",
        "message.downconversion.enable",
        "segment.ms",
    }
    assert setting_names.minors(["3.9.0", "3.9.2", "4.0.0", "4.10.1"]) == [
        "3.9.2",
        "4.0.0",
        "4.10.1",
    ]


@pytest.mark.parametrize("given", ["run", "suite"])
@pytest.mark.parametrize(
    ("topology", "runtime", "says"),
    [
        ("A@./nowhere/libs->B", "process", "there is no directory ./nowhere/libs"),
        ("A@nowhere/libs->B", "process", "there is no directory nowhere/libs"),
        ("A@./nowhere/libs->B", "docker", "there is no directory ./nowhere/libs"),
        ("A->B@4.3.99", "process", "no list of jars is kept for Kafka '4.3.99'"),
    ],
)
def test_a_kafka_that_there_is_not_is_named_with_its_line(
    given: str, topology: str, runtime: str, says: str, tmp_path: Path
) -> None:
    if runtime == "docker":
        pytest.importorskip("docker")
    path = made(tmp_path, GOOD.replace("A:3->B", topology))
    words = [given, str(path), "--runtime", runtime, "--dry-run"]
    with pytest.raises(InputError) as refused:
        linkflap.main(words, standalone_mode=False)
    assert f"mine.toml, line 3: {says}" in str(refused.value)
    if runtime == "process" and given == "run":
        with pytest.raises(InputError, match=rf"mine\.toml, line 3: {says}"):
            api.run(path, runtime=runtime)


def test_files_that_are_no_scenario(tmp_path: Path) -> None:
    with pytest.raises(
        InputError,
        match=r"there is no scenario file .*gone\.toml; linkflap run NAME --dry-run --save",
    ):
        read(tmp_path / "gone.toml", seed=1)
    with pytest.raises(InputError, match=r"mine\.toml is not TOML: .*line 1.*; correct it there"):
        read(made(tmp_path, "schema = = 1"), seed=1)
    (tmp_path / "bytes.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(InputError, match=r"is not UTF-8 \(byte 0\)"):
        read(tmp_path / "bytes.toml", seed=1)
    with pytest.raises(InputError, match="cannot be read"):
        read(tmp_path, seed=1)
    (tmp_path / "large.toml").write_bytes(b"#" * (2 << 20))
    with pytest.raises(InputError, match="larger than 1 MiB"):
        read(tmp_path / "large.toml", seed=1)


def test_saving_overwrites_nothing(tmp_path: Path) -> None:
    built = scenario("baseline", ScenarioRequest(seed=1))
    path = made(tmp_path, "precious")
    with pytest.raises(InputError, match="exists, and --save overwrites nothing"):
        save(built, path)
    assert path.read_text() == "precious"
    with pytest.raises(InputError, match="cannot be written"):
        save(built, tmp_path / "no" / "folder.toml")


def test_the_command_reads_and_writes_files(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert (
        run(
            "baseline",
            "--seed",
            5,
            "--runtime",
            "process",
            "--dry-run",
            "--save",
            tmp_path / "it.toml",
        )
        == 0
    )
    assert run(tmp_path / "it.toml", "--runtime", "process", "--dry-run", "--json") == 0
    last = capsys.readouterr().out.strip().splitlines()[-1]
    assert json.loads(last)["seed"] == 5


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--topology", "A->B"], "--topology changes a built-in scenario"),
        (["--mirror", "mm2"], "--mirror changes"),
        (["--set", "producer_ids=keep"], "--set changes"),
        (["--duration", "5"], "--duration changes"),
        (["--save", "x.toml"], "--save writes a scenario instead of running it; add --dry-run"),
    ],
)
def test_options_that_a_file_does_not_take(arguments: list[str], says: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=says):
        run(made(tmp_path), "--runtime", "process", *arguments)
