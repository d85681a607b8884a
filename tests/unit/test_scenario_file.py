"""Scenario files: written and read back, every mistake with its line, and the published schema."""

from __future__ import annotations

import json
import re
import tomllib
import zipfile
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import pytest
from click.testing import CliRunner
from scenario_schema import json_schema

import linkflap as api
from linkflap.chaos.scenario_file import read, render, save
from linkflap.chaos.scenarios import SCENARIOS, ScenarioRequest, scenario
from linkflap.cli.commands import linkflap
from linkflap.harness import mirrors, workloads
from linkflap.harness.model.errors import InputError
from linkflap.harness.model.scenario import COMMAND, NO_MIRROR, SCHEMA_VERSION, program_at
from linkflap.harness.rundir import FORMAT, RunReader
from linkflap.harness.runtimes.distribution import kafka_settings
from linkflap.harness.runtimes.distribution.kafka import BROKER_CLASSES
from linkflap.recording.run import check
from linkflap.topologies import parse

# A valid scenario file, and the command that reads it.


ONE_FLAP = """schema = 1
name = "mine"
topology = "A->B"
mirror = { kind = "shadow" }
duration = 5.0
[[workload]]
kind = "transactional"
home = "A"
[[fault]]
id = "flap"
fault = "link-flap"
target = "A->B"
at = 1.0
"""
GOOD = """\
schema = 1
name = "mine"
topology = "A:3->B"
duration = 5.0

[mirror]
kind = "shadow"
options = { producer_ids = "keep" }

[topics]
partitions = 3
[topics.config]
"cleanup.policy" = "compact"

[cluster.A.config]
"transaction.max.timeout.ms" = 30000
"auto.create.topics.enable" = true

[[workload]]
kind = "transactional"
home = "A"
clients = 2
[workload.options]
rate = 5.0

[[workload]]
kind = "readers"
home = "A"

[[fault]]
id = "slow"
fault = "link-latency"
target = "A->B"
at = 1.0
duration = 2.0
[fault.options]
latency = 100

[[fault]]
id = "failover"
fault = "failover-forced"
target = "A->B"
when = "after:slow and open-transactions"

[budgets]
rpo_records = 100
"""


def made(tmp_path: Path, text: str = GOOD) -> Path:
    path = tmp_path / "mine.toml"
    path.write_text(text)
    return path


def run(*arguments: str | int | Path) -> object:
    return linkflap.main(["run", *map(str, arguments)], standalone_mode=False)


@pytest.mark.parametrize("name", SCENARIOS)
@pytest.mark.parametrize("seed", [1, 1279])
def test_every_built_in_scenario_is_written_and_read_back_as_it_was(
    name: str, seed: int, tmp_path: Path
) -> None:
    built = scenario(name, ScenarioRequest(seed=seed))
    save(built, tmp_path / "it.toml")
    assert read(tmp_path / "it.toml", seed=0) == built


@pytest.mark.parametrize("name", SCENARIOS)
def test_one_cluster_plays_every_scenario_that_needs_no_link(name: str, tmp_path: Path) -> None:
    request = ScenarioRequest(seed=1, topology=parse("A:3"))
    if name not in ("baseline", "broker-loss", "half-open"):
        with pytest.raises(InputError, match=f"{name} needs a link, and topology A:3 has none"):
            scenario(name, request)
        return
    built = scenario(name, request)
    check(built, "process")
    save(built, tmp_path / "it.toml")
    assert read(tmp_path / "it.toml", seed=0) == built
    assert built.mirror == NO_MIRROR
    assert {fault.target for fault in built.schedule} <= {"A/1", "A/2", "A/3", "*->A"}


def test_a_file_of_one_cluster_needs_no_mirror_and_may_have_none(tmp_path: Path) -> None:
    text = ONE_FLAP.replace('target = "A->B"', 'target = "*->A"').replace("A->B", "A")
    text = text.replace('mirror = { kind = "shadow" }\n', "")
    it = read(made(tmp_path, text), seed=1)
    assert (it.mirror, it.topology.links) == (NO_MIRROR, ())
    check(it, "process")
    for kind in ("mm2", "shadow"):
        asks = read(made(tmp_path, text + f'[mirror]\nkind = "{kind}"\n'), seed=1)
        with pytest.raises(InputError, match=f"mirror {kind} copies over a link"):
            check(asks, "process")
    for wrong in ('home = "{destination}"', 'target = "{link}"'):
        key = wrong.partition(" ")[0]
        lines = [wrong if line.startswith(key) else line for line in text.splitlines()]
        with pytest.raises(InputError, match=r"line \d+: scenario .* needs a link"):
            read(made(tmp_path, "\n".join(lines)), seed=1)


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


ANY_TOPOLOGY = """\
schema = 1
name = "mine"
about = "{source} dies, {destination} goes on: {links}"
topology = "A->B"

[cluster."{cluster}".config]
"num.io.threads" = 2
[cluster."{source}".config]
"log.retention.bytes" = 300000

[[workload]]
kind = "default"
home = "{home}"
options = { rate = 3.0, abort_share = 0.2 }

[[workload]]
kind = "readers"
home = "{source}"
options = { cluster = "{destination}" }

[[fault]]
id = "slow"
fault = "link-latency"
target = "{link}"
at = [1.0, 2.0]
duration = 1.0

[[fault]]
id = "failover"
fault = "failover-planned"
target = "{source}->{destination}"
when = "after:slow"
"""


def test_a_file_for_any_topology_names_its_clusters_and_breaks_every_link(tmp_path: Path) -> None:
    path = made(tmp_path, ANY_TOPOLOGY)
    it = read(path, seed=7, topology=parse("us-east->eu, ap->eu"))
    assert it.about == "us-east dies, eu goes on: us-east->eu, ap->eu"
    threads, kept = {"num.io.threads": "2"}, {"log.retention.bytes": "300000"}
    assert {c.name: c.config for c in it.topology.clusters} == {
        "us-east": threads | kept,
        "eu": threads,
        "ap": threads,
    }
    assert [(f.id, f.target) for f in it.schedule] == [
        ("slow", "us-east->eu"),
        ("slow-ap-eu", "ap->eu"),
        ("failover", "us-east->eu"),
    ]
    rates = {(w.kind, w.home): w.options.get("rate") for w in it.workloads}
    assert rates == {
        (kind, home): None if kind == "readers" else 3.0
        for kind in ("transactional", "idempotent", "zombie", "readers")
        for home in ("us-east", "ap")
    }
    aborts = {w.kind for w in it.workloads if w.options.get("abort_share") == 0.2}
    assert aborts == {"transactional"}
    assert it.workloads[-1].options == {"cluster": "eu"}


def test_a_repeated_fault_is_played_again_after_each_time(tmp_path: Path) -> None:
    repeated = ANY_TOPOLOGY.replace(
        "duration = 1.0", 'duration = 1.0\nrepeat = 3\nwhen = "open-transactions"'
    )
    repeated = repeated.replace("after:slow", "after:slow-3")
    schedule = read(made(tmp_path, repeated), seed=7, topology=parse("A->B")).schedule
    assert [(f.id, f.when) for f in schedule] == [
        ("slow", "open-transactions"),
        ("slow-2", "after:slow and open-transactions"),
        ("slow-3", "after:slow-2 and open-transactions"),
        ("failover", "after:slow-3"),
    ]


def test_an_id_that_a_repeated_fault_takes_is_refused(tmp_path: Path) -> None:
    repeated = ANY_TOPOLOGY.replace("duration = 1.0", "duration = 1.0\nrepeat = 2")
    path = made(tmp_path, repeated.replace('id = "failover"', 'id = "slow-2"'))
    with pytest.raises(InputError, match="two faults have the id 'slow-2'"):
        read(path, seed=7, topology=parse("A->B"))


def test_the_seed_chooses_times_between_two(tmp_path: Path) -> None:
    path = made(tmp_path, ANY_TOPOLOGY.replace("duration = 1.0", "duration = [3.0, 4.0]"))
    chosen = [read(path, seed=seed).schedule[0] for seed in range(20)]
    assert all(1.0 <= fault.at <= 2.0 and 3.0 <= fault.duration <= 4.0 for fault in chosen)
    assert len({fault.at for fault in chosen}) > 10
    assert len({fault.duration for fault in chosen}) > 10
    assert read(path, seed=5) == read(path, seed=5)


ANY_MISTAKES = [
    ("[1.0, 2.0]", "[2.0, 1.0]", "at is [2.0, 1.0]; write the smaller number first"),
    ("duration = 1.0", "duration = [2.0, 1.0]", "duration is [2.0, 1.0]; write the smaller number"),
    (
        "[1.0, 2.0]",
        "[1.0]",
        "fault.at is [1.0]; it must be a list of 2 or more",
    ),
    ("abort_share", "abort_shares", "there is no option of default 'abort_shares'"),
    ('"{home}"', '"{homes}"', "there is no cluster '{homes}'"),
    ('"{link}"', '"{links}{link}"', "link-latency cannot be applied to 'A->B{link}'"),
]


def test_the_seed_of_the_file_stands_unless_another_is_chosen(tmp_path: Path) -> None:
    path = made(tmp_path, GOOD.replace("duration = 5.0", "duration = 5.0\nseed = 9"))
    assert read(path, seed=1).seed == 9
    assert read(path, seed=1, chosen=True).seed == 1


@pytest.mark.parametrize(
    "setting",
    ["log.dirs", "advertised.listeners", "listener.name.client.ssl.keystore.location",
    "metric.reporters", "process.roles",
     "authorizer.class.name", "remote.log.storage.manager.class.path", "sasl.jaas.config",
         "node.id", "config.providers", "group.share.assignors", "control.plane.listener.name",
         "delegation.token.secret.key", "password.encoder.secret", "controller.quorum.voters"],
)  # fmt: skip
def test_settings_that_no_scenario_may_change(setting: str, tmp_path: Path) -> None:
    text = GOOD.replace('"auto.create.topics.enable" = true', f'"{setting}" = "x"')
    with pytest.raises(InputError, match="which no scenario may; leave it out"):
        read(made(tmp_path, text), seed=1)


def test_settings_of_a_mirror_may_have_a_table_of_their_own(tmp_path: Path) -> None:
    text = ONE_FLAP.replace('mirror = { kind = "shadow" }', "")
    own = '[mirror]\nkind = "mm2"\n[mirror.options.settings]\n"offset.lag.max" = 5\n'
    assert read(made(tmp_path, text + own), seed=1).mirror.options == {"offset.lag.max": 5}
    with pytest.raises(InputError, match="setting is a table; give it one value"):
        read(made(tmp_path, text + own.replace("settings", "setting")), seed=1)


@pytest.mark.parametrize(
    "setting", ["controller.quorum.fetch.timeout.ms", "num.recovery.threads.per.data.dir"]
)
def test_settings_that_only_look_like_those(setting: str, tmp_path: Path) -> None:
    text = GOOD.replace('"auto.create.topics.enable" = true', f'"{setting}" = 1')
    assert read(made(tmp_path, text), seed=1).topology.cluster("A").config[setting] == "1"


SERVICE: Final = """\
schema = 1
name = "served"
topology = "A"

[cluster.A.config]
"broker.rack" = "{store}"

[cluster.A.service.store]
command = ["python3", "-m", "http.server", "{port}", "--directory", "{folder}"]
protocol = "http"
ready = ["true", "{port}"]
ready_within = 20.0

[[workload]]
kind = "idempotent"
home = "A"

[[fault]]
id = "cut"
fault = "link-cut"
target = "A->store"
"""


def test_a_cluster_has_services_with_links_that_faults_break(tmp_path: Path) -> None:
    path = made(tmp_path, SERVICE)
    built = read(path, seed=3)
    store = built.topology.cluster("A").services["store"]
    assert store.command[:2] == ("python3", "-m")
    assert (store.ready, store.folder) == (("true", "{port}"), str(tmp_path))
    assert built.topology.service_links == ("A->store",)
    check(built, "process")
    save(built, tmp_path / "again.toml")
    assert read(tmp_path / "again.toml", seed=0) == built
    shown = CliRunner().invoke(linkflap, ["run", str(path), "--dry-run"], standalone_mode=False)
    assert "A  1 broker, needs store  Kafka 4" in shown.output
    assert "service store of A         python3 -m http.server '{port}'" in shown.output
    assert "service store of A, ready  true" in shown.output
    with pytest.raises(InputError, match=r"starts programs of yours \(python3 .*--allow-commands"):
        linkflap.main(["suite", str(path), "--runs", "1"], standalone_mode=False)
    with pytest.raises(InputError, match="service store of A has no image, in which runtime"):
        check(built, "docker")


def test_the_program_of_a_service_with_an_image_need_not_be_on_this_machine(tmp_path: Path) -> None:
    text = SERVICE.replace('"python3", ', '"minio", ').replace(
        "ready_within", 'image = "minio/minio"\nready_within'
    )
    built = read(made(tmp_path, text), seed=3)
    check(built, "docker")
    with pytest.raises(InputError, match="store of A: there is no program 'minio' in"):
        check(built, "process")


@pytest.mark.parametrize(
    ("old", "new", "line", "says"),
    [
        ('"python3", ', '"pythn3", ', 9, "there is no program 'pythn3' in"),
        ('["true", "{port}"]', '["such/program"]', 11, "there is no program 'such/program' in"),
        ('["true", "{port}"]', '["true", "\\u0000"]', 11, "ready is '\\x00'; it must be text"),
        ("ready_within = 20.0", 'folder = "gone"', 9, "there is no folder "),
        ('"{port}", "--dir', '"${port}", "--dir', 9, "store has no {port}"),
        ("[[workload]]", "[cluster.A.service.store]\n[[workload]]", 14, "'store' twice"),
        ('"{port}", "--dir', '"8000", "--dir', 9, "the command of service store has no {port}"),
        ('"{port}", "--dir', '"{prt}", "--dir', 9, "there is no name '{prt}' (did you mean"),
        ('"{store}"', '"here"', 8, "no setting of the brokers names {store}, the address of"),
        ('"{store}"', '"{stor}, {store}"', 6, "there is no service 'stor' (did you mean 'store'?"),
        ('protocol = "http"', 'protocol = "htp"', 10, "protocol is 'htp'; it can be 'http' or"),
        ('protocol = "http"', "", 8, "'protocol' is missing"),
        ("ready_within", "redy_within", 12, "there is no 'redy_within' here (did you mean"),
        ("20.0", "0", 12, "ready_within is 0; it must be a number of seconds, 1 or more"),
        ("service.store]", "service.A]", 8, "a service cannot be called 'A'"),
        ('topology = "A"', 'topology = "A@bootstrap:one:9092"', 8, "A runs already, with the"),
        ('"link-cut"', '"link-bandwidth"', 21, "linkflap cannot measure this fault"),
        (
            '"A->store"',
            '"A->stor"',
            21,
            "'A->stor' is not a link; this topology has *->A, A->store",
        ),
        ('"link-cut"', '"failover-forced"', 21, "cannot be applied to 'A->store'"),
    ],
)
def test_a_mistake_in_a_service_is_named_with_its_line(
    old: str, new: str, line: int, says: str, tmp_path: Path
) -> None:
    assert SERVICE.count(old) == 1
    with pytest.raises(InputError) as error:
        read(made(tmp_path, SERVICE.replace(old, new)), seed=3)
    assert f"line {line}: " in str(error.value)
    assert says in str(error.value)


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


def test_a_build_s_own_plug_ins_are_loaded_and_their_settings_known(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    constants = ("plugin.", "store.", "class", "store.class", "bucket.name")
    own = build(tmp_path / "libs", *constants)
    with zipfile.ZipFile(own / "plugin.jar", "w") as jar:
        for name in (*BROKER_CLASSES, "org.x.Store"):
            jar.writestr(f"{name.replace('.', '/')}.class", b"")
    text = GOOD.replace("A:3->B", f"A@{own}:3->B")

    def with_setting(name: str, value: str = "org.x.Store") -> Path:
        return made(
            tmp_path, text.replace('"auto.create.topics.enable" = true', f'"{name}"="{value}"')
        )

    for known in ("plugin.store.class", "plugin.store.bucket.name", "plugin.bucket.name"):
        read(with_setting(known), seed=1)
    for unknown in ("plugin.store.bucket", "store.plug.bucket.name", "bucket.name.plugin"):
        with pytest.raises(InputError, match=f"line 17: Kafka has no setting '{unknown}'"):
            read(with_setting(unknown), seed=1)
    with pytest.raises(InputError, match=r"did you mean 'plugin.store.bucket.name'\?"):
        read(with_setting("plugin.store.bucked.name"), seed=1)
    with pytest.raises(
        InputError, match=r"line 17: .* is 'org.x.Stare', and the jars in .* no such"
    ):
        read(with_setting("plugin.store.class", "org.x.Store, org.x.Stare"), seed=1)
    for refused in ("authorizer.class.name", "plugin.metric.reporters", "plugin.store.location"):
        with pytest.raises(InputError, match="which no scenario may; leave it out"):
            read(with_setting(refused), seed=1)
    path = with_setting("plugin.store.class")
    run(path, "--dry-run")
    shown = (
        "classes of your build that its brokers load:\n  A          plugin.store.class = org.x.S"
    )
    assert shown in capfd.readouterr().out
    with pytest.raises(InputError, match="allow this with --allow-commands"):
        linkflap.main(["suite", str(path), "--runs", "1"], standalone_mode=False)
    of_a_release = made(tmp_path, path.read_text().replace(f"A@{own}", "A"))
    with pytest.raises(InputError, match="which no scenario may; leave it out"):
        read(of_a_release, seed=1)


def test_settings_of_a_build_of_ones_own_are_known_by_its_jars(tmp_path: Path) -> None:
    own = build(tmp_path / "libs", "mirror.fetch.pause.ms", "plugin.pace", "topic.pace.ms")
    text = GOOD.replace("A:3->B", f"A@{own}:3->B")
    for known in (
        "mirror.fetch.pause.ms",
        "plugin.pace",
        "log.topic.pace.ms",
        "log.preallocate",
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


@pytest.mark.parametrize(
    ("of", "name", "legal", "wrong", "says"),
    [
        ("topic", "cleanup.policy", "compact, delete", "compakt", "some of compact, delete"),
        (
            "topic",
            "message.timestamp.type",
            "LogAppendTime",
            "logappendtime",
            "one of CreateTime, LogAppendTime",
        ),
        ("topic", "retention.ms", "-1", "soon", "a whole number of -1 or more"),
        ("topic", "retention.ms", "60000", "-2", "a whole number of -1 or more"),
        ("topic", "min.cleanable.dirty.ratio", "0.5", "1.5", "a number from 0 to 1"),
        ("topic", "preallocate", "True", "yes", "true or false"),
        ("broker", "num.io.threads", "8", "8.5", "a whole number from 1 to 2147483647"),
        (
            "broker",
            "message.max.bytes",
            "1048588",
            "3000000000",
            "a whole number from 0 to 2147483647",
        ),
        ("topic", "compression.gzip.level", "-1", "0", "one of -1, 1, 2, 3, 4, 5, 6, 7, 8, 9"),
        ("broker", "offsets.topic.compression.codec", "4", "5", "a whole number from 0 to 4"),
        ("topic", "retention.ms", "1000", "1_000", "a whole number of -1 or more"),
        ("topic", "min.cleanable.dirty.ratio", "1", "inf", "a number from 0 to 1"),
        (
            "topic",
            "message.timestamp.type",
            "CreateTime",
            "",
            "one of CreateTime, LogAppendTime",
        ),
    ],
)
def test_a_value_that_no_release_takes_is_refused(
    of: str, name: str, legal: str, wrong: str, says: str
) -> None:
    setting = kafka_settings.settings(of)[name]
    assert setting.takes(legal)
    assert not setting.takes(wrong)
    assert setting.legal == says


def test_a_setting_has_the_values_of_all_releases() -> None:
    older, newer = (
        kafka_settings.Setting.of("INT", "[14,...]"),
        kafka_settings.Setting.of("INT", "[1048576,...,2097152]"),
    )
    assert str(older | newer) == "INT [14,...]"
    texts = [kafka_settings.Setting.of("STRING", each) for each in ("[a, b]", "[b, c]")]
    assert str(texts[0] | texts[1]) == "STRING [a, b, c]"
    assert str(texts[0] | older) == "STRING"


def fault(kind: str, target: str, options: str = "") -> str:
    return f"""
[[fault]]
id = "x"
fault = "{kind}"
target = "{target}"
at = 1.0
options = {{ {options} }}"""


@pytest.mark.parametrize(
    ("added", "says"),
    [
        ('[topics]\nconfig = { "retention.ms" = "soon" }', "retention.ms is 'soon'; give a whole"),
        (
            '[[fault]]\nid = "b"\nfault = "link-flap"\ntarget = "A->B"\nat = 1\n'
            "options = { down = 0 }",
            "option down of fault 'b' (link-flap) is 0; give a number of 0.01 or more",
        ),
        (
            '[[workload]]\ncommand = ["true"]\nhome = "A"\nwrites = ["t"]\nrecord = "wired"',
            "record is 'wired'; it can be 'wire'",
        ),
        (
            '[[workload]]\ncommand = ["true"]\nhome = "A"\nrecord = "wire"',
            'record = "wire" records what a program writes to the topics that it names, and reads '
            "of them; add writes",
        ),
        (
            "[budgets.allowed]\ngroup-replays = 5",
            "there is no kind of anomaly 'group-replays' (did you mean 'group-replay'?)",
        ),
        (
            "[budgets.allowed]\ngroup-replay = -5",
            "group-replay is -5; give how many a cluster may have, 0 or more",
        ),
        (
            "[budgets.allowed]\nlost-write = 5",
            "neither the mirror shadow, as it is set here, nor a fault of this file allows lost-",
        ),
        (
            '[[workload]]\ncommand = ["true"]\nhome = "A"\nreads = ["A.orders"]',
            "workload command names the topic 'A.orders' with its home; name it 'orders'",
        ),
        (
            '[[workload]]\ncommand = ["true"]\nfolder = "gone"\nhome = "A"\nwrites = ["t"]',
            "workload command: there is no folder ",
        ),
        (
            fault("client-kill", "A", 'workload = "relay"'),
            "no client of workload relay connects to it",
        ),
        (fault("client-kill", "B", 'workload = "any"'), "no client of workload any connects to it"),
        (
            fault("client-pause", "A", 'workload = "zombie"'),
            "no client of workload zombie connects",
        ),
        (fault("program-pause", "A"), "no program of a [[workload]] with a command connects to it"),
        (
            fault("program-refused", "A", 'api = "Produce", error = "CONCURRENT_TRANSACTIONS"'),
            "brokers do not answer CONCURRENT_TRANSACTIONS to Produce that they have carried out",
        ),
        (
            fault("program-refused", "A", 'api = "Fetch", carried_out = false'),
            "Fetch changes nothing at a broker; leave carried_out out",
        ),
        (
            fault("program-delayed", "A", 'api = "EndTxn", topic = "A.orders"'),
            "EndTxn requests name no topic; leave topic out, or choose AddPartitionsToTxn, Fetch",
        ),
        (
            '[[workload]]\ncommand = ["true"]\nhome = "A"\nreads = ["orders"]'
            + fault("program-delayed", "A", 'api = "Fetch", topic = "orders"'),
            "the topic 'orders' has its home in its name there; name it 'A.orders'",
        ),
        (
            fault(
                "program-refused", "A", 'api = "Heartbeat", error = "COORDINATOR_LOAD_IN_PROGRESS"'
            ),
            "brokers do not answer COORDINATOR_LOAD_IN_PROGRESS to Heartbeat",
        ),
        (
            fault("program-unanswered", "A", 'api = "Produce", partition = 1'),
            "partition needs a topic; name the topic, or leave partition out",
        ),
        (
            fault("program-downgraded", "A", 'api = "Produce", version = 3'),
            "brokers of the cluster's metadata.version offer Produce up to 12 at least; give",
        ),
        (
            fault("link-cut", "A->B").replace("options = {  }", 'when = "requested:EndTxn"'),
            "fault 'x' waits for 'requested:EndTxn', and no recorded program",
        ),
        (
            '[[workload]]\ncommand = ["true"]\nhome = "A"\nstarts = "in:gone"',
            "a workload starts 'in:gone', and there is no such fault; write in: and the id of a",
        ),
        (
            '[[workload]]\nkind = "readers"\nhome = "A"\nfolder = "there"',
            "folder is of a program of your own, and readers is linkflap's; leave it out",
        ),
        (fault("program-repeated", "A"), 'no recorded program (record = "wire") connects'),
        (
            fault("coordinator-loss", "A", 'of = "groups"'),
            "no client of that cluster has a consumer group",
        ),
        (
            fault("partitions-added", "A", "add = 1000000000"),
            "option add of fault 'x' (partitions-added) is 1000000000; give a whole number from 1",
        ),
        (
            '[[fault]]\nid = "x"\nfault = "client-kill"',
            "'target' is missing (client-kill: '' is not a cluster with clients; this topology has"
            " A, B); add target",
        ),
        (
            '[topics]\nconfig = { "min.insync.replicas" = 4 }',
            "min.insync.replicas is 4, and topics on cluster A have 3 replicas, so that no write",
        ),
        (
            "[topics]\nreplicas = 5",
            "replicas is 5, and no cluster has more than 3 brokers; lower it, or give a cluster",
        ),
        (
            "[budgets]\nrto_seconds = 5.0",
            "a budget for rpo_records or rto_seconds limits what a failover costs, and no fault",
        ),
        (
            "[budgets.allowed]\ncopy-repeated-by-failover = 1",
            "a budget for copy-repeated-by-failover limits what a failover costs, and no fault",
        ),
        (
            '[topics]\ncapture = "fetch"\nconfig = { "cleanup.policy" = "compact,delete" }',
            "cleanup.policy is 'compact,delete', and capture = \"fetch\" cannot tell how far",
        ),
        (
            '[topics]\ncapture = "fetch"\n[cluster.A.config]\n"log.cleanup.policy" = "compact"',
            "log.cleanup.policy is 'compact', and capture = \"fetch\" cannot tell how far",
        ),
        (
            "[cluster.B.config]\nmin.insync.replicas = 2",
            "min.insync.replicas is 2, and topics on cluster B have 1 replica, so that no write",
        ),
        (fault("rolling-upgrade", "A", 'to = "3.9.2"'), "it runs 4.2.1, and 3.9.2 is no newer"),
        (fault("partition", "A/1", "peer = 9"), "it has no peer 9; give 2 or 3, or 0 for all"),
    ],
)
def test_setting_that_would_fail_later_is_refused_with_its_line(
    tmp_path: Path, added: str, says: str
) -> None:
    text = ONE_FLAP.replace("A->B", "A@4.2.1:3->B", 1) + f"{added}\n"
    with pytest.raises(InputError, match=rf"line \d+: (fault 'x'.*: )?{re.escape(says)}"):
        read(made(tmp_path, text), seed=1)
    assert read(made(tmp_path, "\ufeff" + ONE_FLAP), seed=1)  # a BOM is no mistake


def waiting(id: str, when: str, target: str = "A->B") -> str:
    return f"""
[[fault]]
id = "{id}"
fault = "link-cut"
target = "{target}"
at = 1.0
when = "{when}"
"""


WIRE: Final = '[[workload]]\nkind = "idempotent"\nhome = "A"\noptions = { via = "wire" }\n'


@pytest.mark.parametrize(
    ("release", "api", "version", "says"),
    [
        ("4.3.1", "Produce", 99, "offer Produce up to 13, so that no version is withheld; give 12"),
        ("4.3.1", "Produce", 13, "no version is withheld; give 12"),
        ("4.3.1", "Produce", 12, ""),
        ("4.0.2", "Produce", 12, "up to 12, so that no version is withheld; give another api"),
        ("4.1.2", "OffsetCommit", 9, "brokers of Kafka 4.1.2 offer OffsetCommit up to 9"),
        ("4.2.1", "OffsetCommit", 9, ""),
        ("4.4.0", "Fetch", 18, "give 4, 5, 6"),
    ],
)
def test_only_a_version_that_brokers_of_the_release_would_offer_can_be_withheld(
    tmp_path: Path, release: str, api: str, version: int, says: str
) -> None:
    text = ONE_FLAP.replace("A->B", f"A@{release}->B", 1) + WIRE
    file = made(
        tmp_path,
        text + fault("program-downgraded", "A", f'api = "{api}", version = {version}'),
    )
    if not says:
        assert read(file, seed=1)
        return
    with pytest.raises(InputError, match=re.escape(says)):
        read(file, seed=1)


@pytest.mark.parametrize(
    ("added", "says"),
    [
        (fault("program-refused", "A", 'topic = "A.orders", partition = 1'), ""),
        (
            fault("program-refused", "A", 'topic = "A.orders", partition = 2'),
            "names partition 2 of A.orders, which has 2 partitions, numbered from 0",
        ),
        (fault("program-refused", "A", 'topic = "other", partition = 2'), ""),
        (waiting("x", "requested:Produce on A.orders/2"), "names partition 2 of A.orders"),
        (
            waiting("x", "requested:Produce on A.orders/2")
            + fault("partitions-added", "A", "add = 1").replace('"x"', '"y"'),
            "",
        ),
    ],
)
def test_only_a_partition_that_a_topic_has_can_be_named(
    tmp_path: Path, added: str, says: str
) -> None:
    scenario = read(made(tmp_path, ONE_FLAP + WIRE + added), seed=1)
    if not says:
        check(scenario, "process")
        return
    with pytest.raises(InputError, match=re.escape(says)):
        check(scenario, "process")


def starting(fault: str, *, cluster: str = "A") -> str:
    """A recorded program that starts during a fault."""
    return (
        f'[[workload]]\ncommand = ["true"]\nhome = "{cluster}"\nwrites = ["orders"]\n'
        f'record = "wire"\nstarts = "in:{fault}"\n'
    )


RECORDED: Final = starting("").replace('starts = "in:"\n', "")


@pytest.mark.parametrize(
    ("added", "waits"),
    [
        (starting("one") + waiting("one", "requested:Produce"), "one"),
        (starting("one") + waiting("one", "in-flight:Produce:3"), "one"),
        (
            starting("two") + waiting("two", "after:one") + waiting("one", "requested:Produce"),
            "one",
        ),
        (
            starting("two") + waiting("two", "during:one") + waiting("one", "requested:Produce"),
            "one",
        ),
        (starting("one") * 2 + waiting("one", "requested:Produce"), "one"),
        (
            starting("one")
            + starting("two")
            + waiting("one", "requested:Produce")
            + waiting("two", "after:flap and requested:Fetch"),
            "one",
        ),
        (
            starting("one") + waiting("one", "requested:Produce") + waiting("two", "after:one"),
            "one",
        ),
        # linkflap's own clients use the recorder of their own cluster alone
        (WIRE + starting("one", cluster="B") + waiting("one", "requested:Produce", "*->B"), "one"),
    ],
)
def test_a_client_whose_requests_the_fault_that_starts_it_waits_for_is_refused(
    tmp_path: Path, added: str, waits: str
) -> None:
    says = f"fault '{waits}', which begins before it, waits for '.*', which only clients that start"
    with pytest.raises(InputError, match=says):
        read(made(tmp_path, ONE_FLAP + added), seed=1)


@pytest.mark.parametrize(
    "added",
    [
        WIRE + starting("one") + waiting("one", "requested:Produce"),
        RECORDED + starting("one") + waiting("one", "requested:Produce"),
        # a program has the addresses of both clusters
        RECORDED + starting("one", cluster="B") + waiting("one", "requested:Produce", "*->B"),
        starting("one") + waiting("one", "after:flap") + waiting("two", "requested:Produce"),
        starting("one")
        + starting("two")
        + waiting("one", "requested:Produce")
        + waiting("two", "after:flap"),
        starting("flap") + starting("one") + waiting("one", "requested:Produce"),
    ],
)
def test_a_client_starts_in_a_fault_that_waits_for_requests_of_others(
    tmp_path: Path, added: str
) -> None:
    assert read(made(tmp_path, ONE_FLAP + added), seed=1)


def test_names_of_settings_are_those_of_all_releases() -> None:
    for name in (
        "log.message.timestamp.type",
        "group.share.enable",
        "inter.broker.protocol.version",
        "num.io.threads",
    ):
        assert kafka_settings.knows(kafka_settings.BROKER, name)
    assert kafka_settings.settings(kafka_settings.TOPIC).keys() > {
        "cleanup.policy",
        "message.downconversion.enable",
        "segment.ms",
    }
    assert kafka_settings.minors(["3.9.0", "3.9.2", "4.0.0", "4.10.1"]) == [
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
    with pytest.raises(
        InputError, match=r"mine\.toml, line 1: this is not TOML: .*; correct it there"
    ):
        read(made(tmp_path, "schema = = 1"), seed=1)
    for deep in ("x = " + "[" * 5000, f"[topics.config.{'.'.join('a' * 5000)}]"):
        with pytest.raises(InputError, match=r"mine\.toml is nested too deeply"):
            read(made(tmp_path, f"schema = 1\n{deep}"), seed=1)
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
    dry = ("--runtime", "process", "--dry-run")
    assert run("baseline", "--seed", 5, *dry, "--save", tmp_path / "it.toml") == 0
    assert run(tmp_path / "it.toml", *dry, "--json") == 0
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


MISTAKES = [
    ("schema = 1", "", "schema is missing"),
    ('name = "mine"', "", "'name' is missing; add name = "),
    ("schema = 1", "schema = 2", "schema is 2; this linkflap reads schema = 1"),
    ('name = "mine"', 'name = "../mine"', "name is '../mine'; it must be text matching regex"),
    (
        "duration = 5.0",
        "duration = 0.5",
        "duration is 0.5; it must be a number of seconds, 1 or more",
    ),
    (
        "duration = 5.0",
        "durations = 5.0",
        "there is no 'durations' here (did you mean 'duration'?)",
    ),
    ('topology = "A:3->B"', 'topology = "A:3->"', "topology 'A:3->', character 6"),
    (
        'kind = "shadow"',
        'kind = "shadows"',
        "no mirror 'shadows' (did you mean 'shadow'?); known: cluster-mirroring, command, mm2",
    ),
    (
        'options = { producer_ids = "keep" }',
        'options = { producer_ids = "kept" }',
        "option producer_ids of mirror shadow is 'kept'",
    ),
    ("partitions = 3", 'partitions = "3"', "topics.partitions is '3'; it must be a whole number"),
    ('"cleanup.policy" =', '"cleanup policy" =', "not the name of a Kafka setting"),
    (
        '"cleanup.policy" =',
        '"cleanup.polices" =',
        "no setting 'cleanup.polices' of a topic (did you mean 'cleanup.policy'?)",
    ),
    (
        '"auto.create.topics.enable"',
        '"auto.creat.topics.enable"',
        "of a broker (did you mean 'auto.create.topics.enable'?)",
    ),
    (
        '"auto.create.topics.enable"',
        '"retention.ms"',
        "Kafka has no setting 'retention.ms' of a broker",
    ),
    ("[cluster.A.config]", "[cluster.D.config]", "there is no cluster 'D'; known: A, B"),
    (
        '"auto.create.topics.enable" = true',
        'listeners = "PLAINTEXT://0.0.0.0:9092"',
        "listeners changes",
    ),
    ("clients = 2", "clients = 0", "workload.clients is 0; it must be a whole number, 1 or more"),
    ("rate = 5.0", "rates = 5.0", "no option of transactional 'rates' (did you mean 'rate'?)"),
    ("rate = 5.0", 'rate = "x"', "workload transactional cannot have rate='x'; give a number of 0"),
    ('home = "A"', 'home = "C"', "no cluster 'C'; known: A, B"),
    ('fault = "link-latency"', 'fault = "link-latencies"', "(did you mean 'link-latency'?)"),
    (
        "latency = 100",
        "latncy = 100",
        "no option of link-latency 'latncy' (did you mean 'latency'?)",
    ),
    (
        "latency = 100",
        "latency = []",
        "fault.options.latency is []; it must be text or a number or true or false",
    ),
    (
        'id = "slow"',
        'id = "../../slow"',
        "fault.id is '../../slow'; it must be text matching regex",
    ),
    (
        "at = 1.0",
        "at = -1.0",
        "fault.at is -1.0; it must be a number of seconds, 0 or more",
    ),
    (
        'when = "after:slow and',
        'when = "after:slov and',
        "no fault with the id 'slov' (did you mean 'slow'?)",
    ),
    (
        'when = "after:slow and open-t',
        'when = "after:slow and opening-t',
        "no trigger 'opening-transactions' (did you mean",
    ),
    ('id = "failover"', 'id = "slow" # again', "two faults have the id 'slow'"),
    ('target = "A->B"', 'target = "A->C"', "link-latency cannot be applied to 'A->C'"),
    (
        "rpo_records = 100",
        "rpo_record = 100",
        "there is no 'rpo_record' here (did you mean 'rpo_records'?)",
    ),
]


@pytest.mark.parametrize(
    ("file", "before", "after", "says"),
    [
        *(pytest.param(GOOD, *each, id=each[1] or f"no {each[0]}") for each in MISTAKES),
        *(pytest.param(ANY_TOPOLOGY, *each, id=f"any: {each[1]}") for each in ANY_MISTAKES),
    ],
)
def test_a_mistake_is_named_with_its_line(
    file: str, before: str, after: str, says: str, tmp_path: Path
) -> None:
    assert before in file
    text = file.replace(before, after, 1)
    line = text[: text.index(after)].count("\n") + 1
    with pytest.raises(InputError) as refused:
        read(made(tmp_path, text), seed=1)
    assert f"mine.toml, line {line}: " in str(refused.value)
    assert says in str(refused.value)


@pytest.mark.parametrize(
    ("settings", "line", "says"),
    [
        ("offset.lag.max = -1", 5, "setting offset.lag.max of mirror mm2 is -1; give a whole"),
        ('\n"offset.lag.max" = -1', 6, "setting offset.lag.max of mirror mm2 is -1; give a whole"),
        (
            "offset.lag.max = 10\nproducer.linger.ms = -7",
            6,
            "setting producer.linger.ms of mirror mm2 is -7",
        ),
        (
            "producer.linger.ms = [1]",
            5,
            "mirror.options.settings.producer.linger.ms is [1]; it must be",
        ),
        ("offset.lag.max = 10\ntransforms = 'x'", 6, "mirror mm2 takes no transforms"),
    ],
)
def test_a_setting_of_a_mirror_may_be_unquoted_and_a_mistake_has_its_line(
    settings: str, line: int, says: str, tmp_path: Path
) -> None:
    text = (
        'schema = 1\nname = "mine"\ntopology = "A->B"\n[[workload]]\nkind = "default"\nhome = "A"\n'
        f'[mirror]\nkind = "mm2"\n[mirror.options.settings]\n{settings}\n'
    )
    with pytest.raises(InputError) as refused:
        read(made(tmp_path, text), seed=1)
    assert f"mine.toml, line {line + 5}: {says}" in str(refused.value)
    right = text.replace(settings, "offset.lag.max = 10\nproducer.linger.ms = 5")
    assert read(made(tmp_path, right), seed=1).mirror.options == {
        "offset.lag.max": 10, "producer.linger.ms": 5,
    }  # fmt: skip


ROOT = Path(__file__).parents[2]


SCHEMA = ROOT / "docs" / "scenario.schema.json"


def test_the_schema_knows_what_the_registries_know() -> None:
    tables = json.loads(json_schema())["$defs"]
    assert tables["WorkloadTable"]["properties"]["kind"]["enum"] == sorted(
        (*workloads.KINDS, COMMAND, "default", "default-readers")
    )
    assert tables["MirrorTable"]["properties"]["kind"]["enum"] == sorted(mirrors.MIRRORS)


EXAMPLES = sorted(
    path
    for folder in ("docs/examples", "chaos/cases/scenarios", "chaos/scenarios", "tests/data")
    for path in (ROOT / folder).rglob("*.toml")
    if "topology" in tomllib.loads(path.read_text())  # the others are manifests of mirrors
)


@pytest.fixture(scope="module")
def published() -> Any:
    """The published schema, in a third-party validator."""
    jsonschema = pytest.importorskip("jsonschema")
    schema = json.loads(SCHEMA.read_text())
    jsonschema.Draft202012Validator.check_schema(schema)
    return jsonschema.Draft202012Validator(schema)


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_every_kept_file_is_right_by_the_published_schema_and_can_be_read(
    path: Path, published: Any
) -> None:
    assert [error.message for error in published.iter_errors(tomllib.loads(path.read_text()))] == []
    if "@KAFKA" not in path.read_text():  # a case, which names its release, has its own tests
        alone = "[[workload]]" not in path.read_text()  # of linkflap exec
        program = replace(program_at("A"), record="wire") if alone else None
        assert read(path, seed=1, program=program).workloads


def test_the_published_schema_takes_what_save_writes_and_refuses_what_read_refuses(
    published: Any, tmp_path: Path
) -> None:
    for name in SCENARIOS:
        save(scenario(name, ScenarioRequest(seed=7)), tmp_path / f"{name}.toml")
        content = tomllib.loads((tmp_path / f"{name}.toml").read_text())
        assert [error.message for error in published.iter_errors(content)] == []
    content["fault"] = [{"id": "one", "fault": "link-cutt", "target": "A->B"}]
    assert not published.is_valid(content)


def test_a_file_and_a_run_of_this_schema_version_that_were_kept_are_read() -> None:
    """Later versions must read them too: they were written once, and are not regenerated."""
    kept = ROOT / "tests" / "data" / "schema-1"
    assert [f.id for f in read(kept / "scenario.toml", seed=0).schedule] == [
        "away",
        "reverse",
        "home",
    ]
    run = RunReader(kept).run
    assert (run.format, run.scenario.name, run.scenario.seed, run.environment) == (
        1,
        "baseline",
        7,
        {},
    )
    assert run.scenario.mirror.guarantee.offsets_kept
    assert SCHEMA_VERSION == FORMAT
