"""A mirror of commands: its manifest, its guarantees, its reports, and its lag. No broker runs
here."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from linkflap.chaos.scenario_file import read as read_scenario
from linkflap.harness import mirrors
from linkflap.harness.mirrors.command import mirror
from linkflap.harness.mirrors.command.mirror import Order
from linkflap.harness.model.errors import EnvironmentFailure, InputError
from linkflap.harness.model.guarantee import Allowance, Guarantee
from linkflap.harness.model.scenario import MirrorSpec, Option

EXAMPLE = Path(__file__).resolve().parents[2] / "docs" / "examples" / "replicator"
SMALLEST = """
schema = 1
name = "mine"
[guarantee]
equality = "order"
offsets_kept = false
producer_ids = "replaced"
[commands]
start = ["python3", "mine.py"]
"""


def written(tmp_path: Path, text: str = SMALLEST) -> Path:
    path = tmp_path / "mirror.toml"
    path.write_text(text)
    return path


def resolved(path: Path) -> MirrorSpec:
    return mirrors.resolve(MirrorSpec(kind="command", options={"manifest": str(path)}))


def test_the_smallest_manifest_declares_its_guarantee(tmp_path: Path) -> None:
    promised = Guarantee(
        equality="order", offsets_kept=False, producer_ids="replaced", delivery="at-least-once"
    )
    assert resolved(written(tmp_path)).guarantee == promised


def test_the_example_has_the_declared_allowances() -> None:
    guarantee = resolved(EXAMPLE / "mirror.toml").guarantee
    assert [(type(line), line.kind, line.reach_after) for line in guarantee.allowed] == [
        (Allowance, "mirrored-duplicate", 30.0)
    ]


def test_run_json_has_the_commands_and_only_names_of_the_environment(tmp_path: Path) -> None:
    spec = resolved(
        written(tmp_path, SMALLEST + 'stop = ["kill", "a b"]\n[environment]\nTOKEN = "geheim"\n')
    )
    assert spec.resolved["commands"] == "start: python3 mine.py; stop: kill 'a b'"
    assert spec.resolved["environment"] == "TOKEN"
    assert "geheim" not in json.dumps(dict(spec.resolved))


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        ("schema = 1", "schema = 2", "schema is 2; this linkflap reads schema = 1"),
        ("schema = 1", "", "schema is missing"),
        ('name = "mine"', 'name = "../mine"', "name"),
        (
            'equality = "order"',
            'equality = "bits"',
            "invalid enum value 'bits' - at 'guarantee.equality'",
        ),
        (
            'equality = "order"',
            'equality = "bytes"',
            "equality is bytes, which compares records at the same offset",
        ),
        ("offsets_kept = false", "offsets_kept = 0", "guarantee.offsets_kept"),
        ("offsets_kept = false", "offset_kept = false", "offset"),
        ('start = ["python3", "mine.py"]', "start = []", "commands.start"),
        ('start = ["python3", "mine.py"]', 'start = "python3 mine.py"', "commands.start"),
        (
            'start = ["python3", "mine.py"]',
            'start = ["./no-such"]',
            "command start: there is no program './no-such'",
        ),
        ('start = ["python3", "mine.py"]', 'ready = ["true"]', "'start'"),
        (
            "[commands]",
            '[environment]\nLINKFLAP_LINK = "x"\n[commands]',
            "'LINKFLAP_LINK' cannot be set",
        ),
        ("[commands]", "[commands", "it is not TOML"),
        (
            'name = "mine"',
            'name = "mine"\nkafka = "1.0"',
            "kafka: no list of jars is kept for Kafka '1.0'",
        ),
        ('name = "mine"', 'name = "mine"\nkafka = "./libs"', "kafka: there is no directory"),
    ],
)
def test_every_error_is_one_sentence_with_the_file(
    tmp_path: Path, before: str, after: str, said: str
) -> None:
    path = written(tmp_path, SMALLEST.replace(before, after))
    with pytest.raises(InputError) as raised:
        resolved(path)
    sentence = str(raised.value)
    assert sentence.startswith(f"manifest {path}: ")
    assert said in sentence
    assert "\n" not in sentence


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({}, "mirror command needs a manifest"),
        ({"manifest": ""}, "mirror command needs a manifest"),
        ({"manifest": "nowhere.toml"}, "there is no manifest .*nowhere.toml"),
        ({"manifest": "/"}, "cannot be read"),
        ({"manifest": "mine.toml", "speed": 3}, "has no option 'speed'"),
    ],
)
def test_a_mirror_without_a_manifest_is_refused(options: dict[str, Option], said: str) -> None:
    with pytest.raises(InputError, match=said):
        mirrors.check(MirrorSpec(kind="command", options=options))


def test_a_manifest_is_looked_for_beside_the_scenario_file() -> None:
    scenario = read_scenario(EXAMPLE / "crash.toml", seed=1)
    assert scenario.mirror.options == {"manifest": str(EXAMPLE / "mirror.toml")}


def test_a_failback_needs_a_command_for_it(tmp_path: Path) -> None:
    with pytest.raises(
        InputError,
        match="use cluster-mirroring, shadow, or a command whose manifest has",
    ):
        mirrors.check(
            MirrorSpec(kind="command", options={"manifest": str(written(tmp_path))}),
            reversible=True,
        )
    able = written(tmp_path, SMALLEST + 'failback = ["true"]\n')
    mirrors.check(MirrorSpec(kind="command", options={"manifest": str(able)}), reversible=True)
    assert resolved(able).guarantee.reversible


def test_a_dry_run_shows_the_commands() -> None:
    from linkflap.cli.run import run

    done = CliRunner().invoke(
        run,
        [str(EXAMPLE / "crash.toml"), "--dry-run", "--runtime", "process"],
        standalone_mode=False,
    )
    assert "mirror, start" in done.output, done.exception
    assert "python3 copier.py" in done.output


@pytest.mark.parametrize(
    ("printed", "said"),
    [
        ('{"lag": 12}\n', 12),
        ('connecting …\n{"lag": 0}\nbye\n', 0),
        ("", None),
        ('{"lag": -1}', None),
        ('{"lag": "3"}', None),
        ("7", None),
    ],
)
def test_a_lag_is_the_last_json_object_that_was_printed(printed: str, said: int | None) -> None:
    assert mirror.printed_lag(printed) == said


def test_a_reported_promotion_has_topic_and_partition() -> None:
    assert mirror.printed_promotion('{"promoted": {"A.orders": [4, 7]}}\n', "mine") == {
        ("A.orders", 0): 4,
        ("A.orders", 1): 7,
    }
    assert mirror.printed_promotion("done\n", "mine") == {}
    with pytest.raises(EnvironmentFailure, match="a malformed promotion"):
        mirror.printed_promotion('{"promoted": {"A.orders": [-1]}}', "mine")


def behind(*steps: str) -> int:
    """`s1` is a record of the source, `a1` its arrival."""
    order = Order()
    for step in steps:
        (order.sent if step[0] == "s" else order.arrived)(int(step[1:]))
    return order.behind


def test_records_after_the_last_arrival_are_the_lag() -> None:
    assert behind() == 0
    assert behind("s1", "s2", "s3") == 3
    assert behind("s1", "s2", "s3", "a1", "a2") == 1
    assert behind("s1", "s2", "s3", "a1", "a2", "a3") == 0


def test_records_lost_before_an_arrival_are_no_lag() -> None:
    assert behind("s1", "s2", "s3", "a1", "a3") == 0


def test_an_arrival_may_be_seen_before_its_record_and_a_repeat_after_it() -> None:
    assert behind("a1", "s1", "s2") == 1
    assert behind("s1", "a1", "a1", "s2", "a2", "a1") == 0
    assert behind("a2", "s1", "s2", "s3") == 1
