"""Clusters that linkflap did not start: what is refused before a run begins, which names a run owns
there, and by which path its clients go."""

from __future__ import annotations

import os
import re
import shutil
import signal
import threading
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from socketserver import StreamRequestHandler, ThreadingTCPServer
from types import SimpleNamespace

import pytest
from click.testing import CliRunner
from confluent_kafka import KafkaError, KafkaException

from linkflap.api.deploy import deploy
from linkflap.chaos import scenario_file
from linkflap.chaos.scenarios import ScenarioRequest, scenario
from linkflap.cli.commands import linkflap
from linkflap.harness import runtimes
from linkflap.harness.machine import (
    attached_leftovers,
    broker_commands,
    client_properties,
    ledger,
)
from linkflap.harness.machine.attached_leftovers import IN_USE, Attached
from linkflap.harness.machine.broker_commands import VERBS, BrokerCommand
from linkflap.harness.machine.engine_leftovers import StillThere
from linkflap.harness.machine.process_identity import Identity, identify
from linkflap.harness.model.errors import FaultError, InputError
from linkflap.harness.model.wait import until
from linkflap.harness.runtimes import ATTACHED
from linkflap.harness.runtimes.attached import AttachedBroker
from linkflap.harness.runtimes.kraft.secrets import Authority, attached_secrets
from linkflap.recording.run import by_proxies, check
from linkflap.topologies import parse
from tests.on_runtimes import Events

TOPOLOGY = "A@bootstrap:127.0.0.1:9->B@bootstrap:127.0.0.1:8"
FILE = f"""schema = 1
name = "mine"
topology = "{TOPOLOGY}"
[mirror]
kind = "mm2"
[[workload]]
kind = "idempotent"
home = "A"
"""


def refused(*words: str) -> str:
    """The sentence with which a dry run ends."""
    with pytest.raises(InputError) as error:
        CliRunner().invoke(
            linkflap, ["run", *words, "--dry-run"], standalone_mode=False, catch_exceptions=False
        )
    assert "\n" not in str(error.value)
    return str(error.value)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["link-flap", "--mirror", "shadow"], "it registers as a broker of the destination"),
        (["link-flap", "--mirror", "cluster-mirroring"], "need a build of KIP-1279"),
        (
            ["link-flap", "--stall-source"],
            "cannot suspend brokers that it did not start (source=stalled)",
        ),
        (["link-flap", "--runtime", "docker"], "runtime docker would start others"),
        (["link-flap", "--runtime", "process"], "runtime process would start others"),
        (["broker-loss"], "did not start cluster A"),
        (["link-flap", "--count", "3"], "clusters that run already have one at a time"),
        (["round-trip"], "a failback begins on clusters that linkflap has started"),
    ],
)
def test_run_that_would_change_more_than_its_own_topics_is_refused(
    words: list[str], says: str
) -> None:
    assert says in refused(words[0], "--topology", TOPOLOGY, *words[1:])


@pytest.mark.parametrize(
    ("fault", "target", "says"),
    [
        (
            "broker-kill",
            "A/1",
            "its addresses: commands to kill and start a broker ([cluster.A.com",
        ),
        ("broker-pause", "B/1", "did not start cluster B"),
        ("rolling-restart", "B", "did not start cluster B"),
        ("controller-loss", "A", "did not start cluster A"),
        ("leadership-move", "A", "it would move the leaders of other topics too"),
    ],
)
def test_a_fault_of_brokers_is_refused_by_its_name_and_cluster(
    tmp_path: Path, fault: str, target: str, says: str
) -> None:
    file = tmp_path / "mine.toml"
    file.write_text(
        f'{FILE}[[fault]]\nid = "one"\nfault = "{fault}"\ntarget = "{target}"\nat = 1\n'
        "duration = 1\n"
    )
    sentence = refused(str(file))
    assert f"fault 'one' ({fault}) cannot be played on {target}" in sentence
    assert says in sentence


@pytest.mark.parametrize(
    ("more", "says"),
    [
        ('[cluster.A.config]\n"log.retention.ms" = 5\n', "log.retention.ms cannot be set on them"),
        (
            '[[workload]]\nkind = "readers"\nhome = "A"\n[workload.options]\ngroup = "billing"\n',
            "group 'billing' of workload readers may belong to another application",
        ),
    ],
)
def test_settings_and_groups_of_others_are_refused(tmp_path: Path, more: str, says: str) -> None:
    file = tmp_path / "mine.toml"
    file.write_text(FILE + more)
    assert says in refused(str(file))


@pytest.mark.parametrize(
    ("source", "says"),
    [
        ("none.properties", "client properties none.properties cannot be read: No such file"),
        ("env:LINKFLAP_NOT_THERE", "there is no variable LINKFLAP_NOT_THERE in the environment"),
        ("env:LINKFLAP_EMPTY", "client properties env:LINKFLAP_EMPTY are empty"),
        ("env:", "client properties env: name no variable; write env:NAME"),
        ("env:LINKFLAP_JAVA", "ssl.truststore.location is a Java client's"),
        ("env:LINKFLAP_KERBEROS", "sasl.mechanism is GSSAPI; what can be used is PLAIN, SCRAM"),
        ("env:LINKFLAP_NOWHERE", "ssl.ca.location nowhere.pem cannot be read (No such file"),
    ],
)
def test_client_properties_that_cannot_be_used_are_refused(
    monkeypatch: pytest.MonkeyPatch, source: str, says: str
) -> None:
    monkeypatch.setenv("LINKFLAP_EMPTY", " \n# nothing\n")
    monkeypatch.setenv("LINKFLAP_JAVA", "security.protocol=ssl\nssl.truststore.location=a.jks")
    monkeypatch.setenv("LINKFLAP_KERBEROS", "security.protocol=sasl_ssl\nsasl.mechanism=GSSAPI")
    monkeypatch.setenv("LINKFLAP_NOWHERE", "security.protocol=ssl\nssl.ca.location=nowhere.pem")
    topology = TOPOLOGY.replace(":8", f":8{{{source}}}")
    assert says in refused("link-flap", "--topology", topology)


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("enable.ssl.certificate.verification=false", "mirrors and Java clients cannot do without"),
        ("", "names no authority for the brokers' certificates"),
        ("ssl.ca.location=nowhere.pem", "ssl.ca.location nowhere.pem cannot be read (No such file"),
        ("ssl.ca.pem=nothing", "its authority cannot be read"),
        ("ssl.ca.location={ca}\nssl.certificate.location={ca}", "the client's certificate or key"),
        (
            "ssl.ca.location={ca}\nssl.certificate.location={one}\nssl.key.location={two}",
            "the client's key does not belong to its certificate",
        ),
    ],
)
def test_certificates_that_cannot_be_used_are_refused(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, line: str, says: str
) -> None:
    theirs = Authority(tmp_path, "theirs")
    one, two = (theirs.issue(f"{name}.pem", name) for name in ("one", "two"))
    line = line.format(ca=theirs.file, one=one, two=two)
    monkeypatch.setenv("ENTRY", f"security.protocol=ssl\n{line}")
    with pytest.raises(InputError, match=re.escape(says)) as error:
        attached_secrets("A", client_properties.read("env:ENTRY"), tmp_path)
    assert "env:ENTRY" in str(error.value)


def test_a_password_reaches_javas_clients_as_it_is(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    password = 'a "word"\\ with = # and ; é'
    monkeypatch.setenv(
        "ENTRY",
        "security.protocol=sasl_plaintext\nsasl.mechanism=SCRAM-SHA-256\nsasl.username=me\n"
        f"sasl.password={password}",
    )
    entry = attached_secrets("A", client_properties.read("env:ENTRY"), tmp_path).entry
    assert (entry.password, "word" in repr(entry)) == (password, False)
    # as java.util.Properties reads a value, and then JAAS a quoted one
    lines = dict(line.split("=", 1) for line in Path(entry.file).read_text().splitlines())
    jaas = re.sub(
        r"\\(?:u(\w{4})|(.))",
        lambda found: chr(int(found[1], 16)) if found[1] else found[2],
        lines["sasl.jaas.config"],
    )
    quoted = re.search(r' password="((?:[^"\\]|\\.)*)";$', jaas)
    assert quoted is not None
    assert re.sub(r"\\(.)", r"\1", quoted.group(1)) == password
    assert f"sasl.password={password}\n" in Path(entry.librdkafka_file).read_text()


def test_a_forced_failover_needs_clients_that_go_by_the_proxies(tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    file.write_text(
        f'{FILE}[[workload]]\nkind = "transactional"\nhome = "A"\n'
        '[workload.options]\nvia = "direct"\n'
        '[[fault]]\nid = "one"\nfault = "failover-forced"\ntarget = "A->B"\nat = 1\n'
    )
    assert "workload transactional connects past the proxies" in refused(str(file))


def test_clients_go_by_the_proxies_and_the_mirror_is_mirror_maker() -> None:
    chosen = scenario("link-flap", ScenarioRequest(seed=7, topology=parse(TOPOLOGY)))
    check(chosen, ATTACHED)
    assert chosen.mirror.kind == "mm2"
    assert {each.options["via"] for each in by_proxies(chosen)} == {"proxy"}
    assert runtimes.usual(chosen.topology, "docker") == ATTACHED


def test_runtimes_refuse_to_start_clusters_that_run_already(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"play a scenario on them with linkflap\.run"):
        deploy(TOPOLOGY)
    with pytest.raises(InputError, match="play a scenario on them with linkflap run"):
        runtimes.runtime("process")(parse(TOPOLOGY), folder=tmp_path, recorder=Events())


def test_only_clusters_that_run_already_have_this_runtime() -> None:
    with pytest.raises(InputError, match="runtime attached is that of clusters that run already"):
        runtimes.check(ATTACHED, parse("A->B"))


def broker_of(tmp_path: Path, **commands: tuple[str, ...]) -> AttachedBroker:
    return AttachedBroker(
        cluster="A",
        id=7,
        client_address="a:1",
        log_dir=tmp_path / "7",
        commands=commands,
        folder=str(tmp_path),
    )


def test_output_of_a_command_outlives_the_data_of_its_broker(tmp_path: Path) -> None:
    broker = broker_of(tmp_path, kill=("sh", "-c", "echo not allowed; exit 3"), start=("true",))
    with pytest.raises(FaultError, match=f"status 3; see {re.escape(str(broker.log))}"):
        broker.kill()
    shutil.rmtree(broker.log_dir, ignore_errors=True)
    assert broker.log.read_text() == "not allowed\n"
    broker.heal()


def test_a_broker_without_commands_is_never_ended_but_can_be_given_up(tmp_path: Path) -> None:
    broker = broker_of(tmp_path)
    for refused in (broker.start, broker.stop, broker.kill, broker.pause, broker.resume):
        with pytest.raises(FaultError, match=r"no command to \w+ it; give one in \[cluster\.A\.c"):
            refused()
    states = [broker.state]
    broker.give_up()
    assert [*states, broker.state] == ["running", "stopped"]


def written_by(word: str) -> tuple[str, ...]:
    """A command that adds a word, its cluster and its broker to a file in its folder."""
    return ("/bin/sh", "-c", f"echo {word} {{cluster}}/{{broker}} >> done; echo said {word}")


def test_commands_end_and_start_a_broker_and_the_ledger_has_what_is_left_to_do(
    tmp_path: Path,
) -> None:
    broker = broker_of(tmp_path, kill=written_by("killed"), start=written_by("started"))
    broker.kill()
    assert (broker.state, [each.verb for each in ledger.own().broken]) == ("stopped", ["start"])
    broker.start()
    assert (broker.state, ledger.own().broken) == ("running", ())
    broker.heal()  # there is nothing left to do
    assert (tmp_path / "done").read_text() == "killed A/7\nstarted A/7\n"
    assert broker.log.read_text() == "said killed\nsaid started\n"


def test_a_command_that_fails_is_undone_at_the_end_all_the_same(tmp_path: Path) -> None:
    broker = broker_of(tmp_path, pause=("/bin/sh", "-c", "exit 3"), resume=written_by("resumed"))
    with pytest.raises(FaultError, match=r"is to pause broker A/7 .* ended with status 3; see"):
        broker.pause()
    assert broker.state == "running"
    broker.heal()
    assert (tmp_path / "done").read_text() == "resumed A/7\n"
    assert ledger.own().broken == ()


@contextmanager
def answering() -> Iterator[str]:
    """The address of what answers a request, as a broker does."""

    class Answer(StreamRequestHandler):
        def handle(self) -> None:
            size = int.from_bytes(self.rfile.read(4), "big")
            correlation = self.rfile.read(size)[4:8]
            self.wfile.write((4).to_bytes(4, "big") + correlation)

    with ThreadingTCPServer(("127.0.0.1", 0), Answer) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"127.0.0.1:{server.server_address[1]}"
        finally:
            server.shutdown()
            thread.join()


@pytest.mark.parametrize(
    ("verb", "undone"), [("kill", ""), ("pause", ""), ("stop", "started A/7\n")]
)
def test_a_broker_that_runs_though_its_command_failed_is_not_started_again(
    tmp_path: Path, verb: str, undone: str
) -> None:
    undo = written_by("started")
    broker = broker_of(tmp_path, **{verb: ("/bin/false",)}, start=undo, resume=undo)
    with answering() as broker.client_address:
        with pytest.raises(FaultError, match=f"is to {verb} broker A/7"):
            getattr(broker, verb)()
        broker.heal()
    done = tmp_path / "done"
    assert (done.read_text() if done.exists() else "", ledger.own().broken) == (undone, ())


@pytest.mark.parametrize("verb", ["kill", "start"])
def test_children_of_a_hanging_command_are_ended_unless_they_may_be_a_broker(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, verb: str
) -> None:
    monkeypatch.setattr(broker_commands, "ENDS_WITHIN", 0.5)
    hangs = "echo $$ > parent; sleep 600 & echo $! > child; wait"
    command = BrokerCommand(
        cluster="A", broker=7, verb=verb, words=("/bin/sh", "-c", hangs), folder=str(tmp_path)
    )
    with pytest.raises(FaultError, match=r"did not end within 0\.5 s"):
        command.run(None)
    parent, child = (int((tmp_path / name).read_text()) for name in ("parent", "child"))
    assert identify(parent) is None
    if verb == "start":
        assert identify(child) is not None
        os.kill(child, signal.SIGKILL)
    until(lambda: identify(child) is None, within=20, what="the child to be gone")


def test_topics_of_a_dead_run_are_removed_once_the_started_broker_serves(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    not_yet = [KafkaException(KafkaError(KafkaError._TRANSPORT))] * 2
    deleted: list[str] = []

    def topics(**_: object) -> SimpleNamespace:
        if not_yet:
            raise not_yet.pop()
        return SimpleNamespace(topics=[t for t in ("A.orders", IN_USE) if t not in deleted])

    def ended(value: object) -> Future[object]:
        future: Future[object] = Future()
        future.set_result(value)
        return future

    def delete(topics: list[str], **_: object) -> dict[str, Future[object]]:
        deleted.extend(topics)
        return {topic: ended(None) for topic in topics}

    admin = SimpleNamespace(
        list_topics=topics,
        list_consumer_groups=lambda **_: ended(SimpleNamespace(valid=[])),
        describe_cluster=lambda **_: ended(SimpleNamespace(cluster_id="one")),
        delete_topics=delete,
    )
    monkeypatch.setattr(attached_leftovers, "admin_of", lambda *_: admin)
    run = Attached(name="A", bootstrap="a:1", id="one", clusters=("A",), had_heartbeats=True)
    removed = list(attached_leftovers.remove(run, starting=True))
    assert (removed, deleted) == (["topic A.orders on cluster A at a:1"], ["A.orders", IN_USE])
    not_yet.append(KafkaException(KafkaError(KafkaError._TRANSPORT)))
    with pytest.raises(StillThere, match="cannot be cleaned yet"):
        list(attached_leftovers.remove(run))


def test_the_watchdog_of_a_dead_run_starts_its_brokers_again(tmp_path: Path) -> None:
    undo = BrokerCommand(
        cluster="A", broker=7, verb="start", words=written_by("started"), folder=str(tmp_path)
    )
    dead = ledger.OwnerEntry(owner=Identity(pid=1, born="0"), broken=(undo,))
    assert list(ledger.end(dead)) == ["fault of broker A/7, by its command to start it"]
    assert (tmp_path / "done").read_text() == "started A/7\n"
    failing = replace(undo, words=("/bin/false",))
    with pytest.raises(StillThere, match=r"status 1; start it yourself, or run linkflap clean"):
        list(ledger.end(replace(dead, broken=(failing,))))


@pytest.mark.parametrize(
    ("more", "says"),
    [
        ('kill = ["true"]', "what kill does is undone by start; add its command"),
        ('kil = ["true"]', "there is no command 'kil' (did you mean 'kill'?)"),
        ('resume = ["./nothing"]', "there is no program './nothing' in"),
        ("resume = []", "there is no program '' in"),
        (
            'start = ["true"]\nkill = "true"',
            "line 17: cluster.A.commands.kill is 'true'; it must be a list",
        ),
        ('start = ["true", "{brokr}"]', "no name '{brokr}' (did you mean '{broker}'?)"),
        ('start = ["true", "x{clusters}"]', "known: {broker}, {cluster}"),
        ('pause = ["true"]\nresume = ["true"]', "commands to kill and start a broker"),
    ],
)
def test_commands_for_brokers_that_cannot_be_used_are_refused(
    tmp_path: Path, more: str, says: str
) -> None:
    fault = '[[fault]]\nid = "one"\nfault = "broker-kill"\ntarget = "A/7"\nat = 1\nduration = 1\n'
    file = tmp_path / "mine.toml"
    file.write_text(f"{FILE}{fault}[cluster.A.commands]\n{more}\n")
    assert says in refused(str(file))


@pytest.mark.parametrize(
    ("word", "password", "found"),
    [
        ("--password=kafka", "kafka", True),
        ("me:kafka@host", "kafka", True),
        ("kafka-{broker}", "kafka", False),
        ("-pone-long-secret", "one-long-secret", True),
        ("${KAFKA} {{.Id}} {} { print }", "one-long-secret", False),
    ],
)
def test_a_command_with_a_password_in_its_words_is_refused(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, word: str, password: str, found: bool
) -> None:
    monkeypatch.setenv(
        "ENTRY",
        "security.protocol=sasl_plaintext\nsasl.mechanism=PLAIN\nsasl.username=me\n"
        f"sasl.password={password}",
    )
    file, topology = tmp_path / "mine.toml", TOPOLOGY.replace(":8", ":8{env:ENTRY}")
    commands = f'[cluster.A.commands]\nstart = ["true", "{word}"]\n'
    file.write_text(FILE.replace(TOPOLOGY, topology) + commands)
    if found:
        says = "the command for start of a broker of A has a password of env:ENTRY"
        assert says in (sentence := refused(str(file)))
        assert password not in sentence
    else:
        assert not CliRunner().invoke(linkflap, ["run", str(file), "--dry-run"]).exit_code


def test_a_command_on_them_uses_topics_that_belong_to_the_run() -> None:
    words = ["exec", "--topology", TOPOLOGY, "--dry-run"]
    unnamed = CliRunner().invoke(linkflap, [*words, "--", "true"])
    assert "name them: --topic orders for the topic A.orders" in str(unnamed.exception)
    named = CliRunner().invoke(linkflap, [*words, "--topic", "orders", "--", "true"])
    assert not named.exit_code, named.exception


def test_clusters_of_linkflaps_own_need_no_commands(tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    file.write_text(FILE.replace(TOPOLOGY, "A->B") + '[cluster.A.commands]\nstart = ["true"]\n')
    assert "linkflap starts cluster A itself" in refused(str(file))


def test_commands_for_brokers_make_their_faults_possible_and_are_shown_and_saved(
    tmp_path: Path,
) -> None:
    (tmp_path / "brokers.sh").write_text("#!/bin/sh\n")
    (tmp_path / "brokers.sh").chmod(0o700)
    fault = '[[fault]]\nid = "one"\nfault = "broker-kill"\ntarget = "A/7"\nat = 1\nduration = 1\n'
    verbs = "".join(f'{verb} = ["./brokers.sh", "{verb}", "{{broker}}"]\n' for verb in VERBS)
    file, saved = tmp_path / "mine.toml", tmp_path / "saved.toml"
    file.write_text(f"{FILE}{fault}[cluster.A.commands]\n{verbs}")
    shown = CliRunner().invoke(
        linkflap, ["run", str(file), "--dry-run", "--save", str(saved)], catch_exceptions=False
    )
    assert f"kill of a broker of A      {tmp_path}/brokers.sh kill '{{broker}}'" in shown.output
    read = scenario_file.read(saved, seed=0).topology.cluster("A")
    assert read == scenario_file.read(file, seed=0).topology.cluster("A")
    assert (set(read.commands), read.folder) == (set(VERBS), str(tmp_path))


def test_a_run_owns_names_that_begin_with_its_clusters() -> None:
    run = Attached(
        name="A", bootstrap="a:1", id="one", clusters=("A", "us-east"), had_heartbeats=False
    )
    topics = (
        "A.orders A.linkflap-canary us-east.x A.checkpoints.internal mm2-offsets.A.internal "
        "mm2-offset-syncs.us-east.internal mm2-status.A.internal mm2-configs.A.internal"
    )
    others = (
        "A orders AA.orders B.orders A. xA.orders mm2-offsets.B.internal mm2.A.internal "
        "us.east.x __consumer_offsets heartbeats east.x"
    )
    assert [name for name in re.split(" ", f"{topics} {others}") if run.owns_topic(name)] == (
        topics.split()
    )
    groups = "linkflap.A.read_committed linkflap.followers linkflap-recreated A-mm2 us-east-mm2"
    foreign = "billing linkflap mm2 B-mm2 my-linkflap.x connect-A"
    assert [name for name in f"{groups} {foreign}".split() if run.owns_group(name)] == (
        groups.split()
    )
