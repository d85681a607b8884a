"""MirrorMaker 2 on a Connect cluster of others, and links on a Toxiproxy of others: what is
refused, what a connector is given, and what is removed there, against a server with their REST
APIs."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from linkflap.chaos import scenario_file
from linkflap.harness import mirrors
from linkflap.harness.guarantees import mm2
from linkflap.harness.machine import attached_leftovers, ledger, rest_leftovers
from linkflap.harness.machine.attached_leftovers import Attached
from linkflap.harness.machine.engine_leftovers import StillThere
from linkflap.harness.machine.ledger import OwnerEntry
from linkflap.harness.machine.process_identity import Identity
from linkflap.harness.machine.rest_leftovers import RestObject, RestServer
from linkflap.harness.mirrors import mm2_config
from linkflap.harness.mirrors.connect import Connectors, RestProgress, check_server, release
from linkflap.harness.model.errors import InputError
from linkflap.harness.model.scenario import Option
from linkflap.harness.model.topology import LinkSpec
from linkflap.harness.runtimes.toxiproxy import shared
from linkflap.recording.run import check
from linkflap.topologies.notation import rows

LINK = LinkSpec(source="A", destination="B")
SOURCE, CHECKPOINT = mm2_config.SOURCE_CONNECTOR, mm2.CHECKPOINT_CONNECTOR
PLUGINS = [{"class": f"org.apache.kafka.connect.mirror.{name}"} for name in (SOURCE, CHECKPOINT)]
ROOT = {"version": "4.3.1", "kafka_cluster_id": "of-b"}
FILE = """schema = 1
name = "mine"
topology = "{topology}"
[mirror]
kind = "mm2"
options = {{ connect = "{connect}" }}
[[workload]]
kind = "idempotent"
home = "A"
"""
TOPOLOGY = "A@bootstrap:127.0.0.1:9->B@bootstrap:127.0.0.1:8"
KILL = """[[fault]]
id = "worker"
fault = "mirror-kill"
target = "A->B"
at = 0.0
duration = 1.0
"""


class Answers(BaseHTTPRequestHandler):
    """Answers with what `script` has for a request, the last of it again and again."""

    script: dict[str, list[tuple[int, Any]]]
    asked: list[str]

    def _answer(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        what = f"{self.command} {self.path}"
        self.asked.append(f"{what} {self.headers.get('Authorization', '')}".strip())
        del body
        left = self.script.get(what, [(404, {"message": "no such thing"})])
        status, answer = left.pop(0) if len(left) > 1 else left[0]
        content = json.dumps(answer).encode() if answer is not None else b""
        self.send_response(status)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    do_GET = do_PUT = do_DELETE = do_POST = _answer

    def log_message(self, *_: object) -> None:
        return


@pytest.fixture
def served() -> Iterator[type[Answers]]:
    """The handler class of a server; its `url` is its address."""

    class Own(Answers):
        url = ""

    Own.script, Own.asked = {}, []
    with ThreadingHTTPServer(("127.0.0.1", 0), Own) as server:
        Own.url = f"http://127.0.0.1:{server.server_port}"
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield Own
        server.shutdown()
        thread.join()


def checked(url: str) -> None:
    check_server(RestServer(url=url), (SOURCE, CHECKPOINT), LINK, "of-b")


@pytest.mark.parametrize(
    ("root", "plugins", "says"),
    [
        ((200, ROOT), (200, PLUGINS[:1]), "do not have MirrorCheckpointConnector; add the jars"),
        ((200, {**ROOT, "kafka_cluster_id": "of-a"}), (200, PLUGINS), "with cluster.id of-a, and"),
        ((200, {**ROOT, "version": "3.5.2"}), (200, PLUGINS), "runs Kafka 3.5.2, which cannot"),
        ((200, {**ROOT, "version": "7.5.1-ccs"}), (200, PLUGINS), "it needs 3.6 or later"),
        ((401, {"message": "User cannot access"}), (401, {}), "refuses access"),
        ((200, {"hello": "world"}), (200, []), "does not answer as the REST API of a Connect"),
        ((200, []), (404, None), "does not answer as the REST API of a Connect"),
    ],
)
def test_a_connect_cluster_that_cannot_play_is_refused(
    served: Any, root: tuple[int, Any], plugins: tuple[int, Any], says: str
) -> None:
    served.script |= {"GET /": [root], "GET /connector-plugins": [plugins]}
    with pytest.raises(InputError, match=says) as error:
        checked(served.url)
    assert "\n" not in str(error.value)


def test_one_that_can_play_is_taken_and_one_that_does_not_answer_is_not(served: Any) -> None:
    served.script |= {"GET /": [(200, ROOT)], "GET /connector-plugins": [(200, PLUGINS)]}
    checked(served.url)
    assert served.asked == ["GET /", "GET /connector-plugins"]
    with pytest.raises(InputError, match=r"does not answer .*check that its workers run"):
        checked("http://127.0.0.1:9")


@pytest.mark.parametrize(
    ("connect", "topology", "more", "says"),
    [
        ("connect:8083", TOPOLOGY, "", "give http://host:port"),
        ("http://me:secret@connect:8083", TOPOLOGY, "", "the file with its login in braces"),
        ("http://connect:8083/connectors?x", TOPOLOGY, "", "give http://host:port"),
        ("http://connect:99999", TOPOLOGY, "", "give http://host:port"),
        ("http://connect:8083{nowhere}", TOPOLOGY, "", "nowhere cannot be read"),
        ("http://connect:8083", "A->B", "", "this topology starts new ones"),
        (
            "http://connect:8083",
            f"{TOPOLOGY}, A->C@bootstrap:127.0.0.1:7",
            "",
            "and links lead to B and C",
        ),
        ("http://connect:8083", TOPOLOGY, KILL, "would end workers of a Connect cluster"),
    ],
)
def test_what_cannot_be_played_there_is_refused_before_anything_is_touched(
    tmp_path: Path, connect: str, topology: str, more: str, says: str
) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(FILE.format(connect=connect, topology=topology) + more)
    with pytest.raises(InputError, match=says) as error:
        check(scenario_file.read(path, seed=0), "attached" if "@" in topology else "process")
    assert "secret" not in str(error.value)


def test_logins_of_clusters_would_be_in_the_settings_of_connectors(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ("security.protocol=sasl_plaintext", "sasl.mechanism=PLAIN", "sasl.username=a")
    monkeypatch.setenv("ENTRY", "\n".join((*words, "sasl.password=b")))
    path = tmp_path / "mine.toml"
    topology = TOPOLOGY.replace(":8", ":8{env:ENTRY}")
    path.write_text(FILE.format(connect="http://connect:8083", topology=topology))
    with pytest.raises(InputError, match="would have the login of cluster B in their settings"):
        check(scenario_file.read(path, seed=0), "attached")


def test_a_connector_gets_what_a_worker_of_its_own_would_have_for_it() -> None:
    given: dict[str, Option] = {
        "delivery": "exactly-once",
        "offset.lag.max": 5,
        "producer.linger.ms": 7,
    }
    values = mm2_config.properties(
        mm2_config.options(given),
        LINK,
        source="a:1",
        destination="b:2",
        topics="A.*",
        replicas=3,
        port=1,
        own=mm2_config.settings(given),
    )
    found = mm2_config.connector(SOURCE, values, LINK)
    assert found["connector.class"] == f"org.apache.kafka.connect.mirror.{SOURCE}"
    wanted = {
        "source.cluster.bootstrap.servers": "a:1",
        "target.cluster.bootstrap.servers": "b:2",
        "topics": "A.*",
        "offset-syncs.topic.location": "target",
        "offset-syncs.topic.replication.factor": "3",
        "source.consumer.isolation.level": "read_committed",
        "producer.override.transaction.timeout.ms": "10000",
        "producer.override.linger.ms": "7",
        "exactly.once.support": "required",
        "transaction.boundary": "interval",
        "offset.lag.max": "5",
    }
    assert found.items() >= wanted.items()
    worker = ("A.", "B.", "A->", "B->", "clusters", "listeners", "plugin", "config.storage")
    assert not [name for name in found if name.startswith(worker)]
    assert "exactly.once.support" not in mm2_config.connector(CHECKPOINT, values, LINK)


def connectors(url: str) -> Connectors:
    alias = {"source.cluster.alias": "A", "target.cluster.alias": "B"}
    return Connectors(RestServer(url=url), "of-b", {SOURCE: alias})


def test_connectors_are_made_stopped_and_removed(served: Any) -> None:
    made = connectors(served.url)
    path = made.made[SOURCE].path
    status = {"connector": {"state": "RUNNING"}, "tasks": [{"id": 0, "state": "RUNNING"}]}
    served.script |= {
        f"PUT {path}/config": [(409, {"message": "rebalancing"}), (201, {})],
        f"PUT {path}/stop": [(202, None)],
        f"GET {path}/status": [(200, status), (200, {**status, "tasks": []})],
        "GET /": [(200, ROOT)],
        f"GET {path}": [(200, {}), (404, None)],
        f"DELETE {path}/offsets": [(400, {"message": "not stopped yet"}), (200, {})],
        f"DELETE {path}": [(409, {"message": "rebalancing"}), (204, None)],
    }
    made.start()
    assert made.alive
    made.stop()
    assert not made.alive
    assert [line.partition(" ")[0] for line in served.asked] == ["PUT"] * 3 + ["GET"] * 2
    made.close()
    assert served.asked[-2:] == [f"DELETE {path}", f"GET {path}"]


def test_what_connect_refuses_is_said_in_its_words_and_a_lost_connector_ends_the_mirror(
    served: Any,
) -> None:
    made = connectors(served.url)
    path = made.made[SOURCE].path
    served.script |= {
        "GET /": [(200, ROOT)],
        f"PUT {path}/config": [(400, {"message": "producer.override\nnot allowed"})],
    }
    with pytest.raises(InputError, match=r"was refused: producer.override not allowed"):
        made.start()
    made.close()
    assert not set(made.made.values()) & set(ledger.own().made)
    made.alive, progress = True, RestProgress("A->B", made)
    row = {"connector": {"state": "RUNNING"}, "tasks": [{"id": 0, "state": "RUNNING"}]}
    where = {"cluster": "A", "topic": "A.orders", "partition": 1}
    served.script |= {
        f"GET {path}/status": [(200, row), (404, None)],
        f"GET {path}/offsets": [
            (200, {"offsets": [{"partition": where, "offset": {"offset": 41}}]})
        ],
    }
    assert progress.refresh()
    assert progress.positions == {("A.orders", 1): 42}
    assert progress.running_tasks() == [f"task {SOURCE}-0"]
    assert made.alive
    assert not progress.refresh()
    assert not made.alive


def test_nothing_is_removed_on_another_server_or_without_an_answer(
    served: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = RestObject(
        kind="connector", name="x", server=RestServer(url=served.url), cluster_id="old"
    )
    served.script["GET /"] = [(200, ROOT)]
    with pytest.raises(StillThere, match=r"another one by now, on cluster.id of-b"):
        list(rest_leftovers.remove(made))
    served.script["GET /"] = [(200, ["some page"])]
    with pytest.raises(StillThere, match="does not say that it is a Connect cluster"):
        list(rest_leftovers.remove(made))
    assert served.asked == ["GET /"] * 2
    nobody = RestServer(url="http://127.0.0.1:9")
    gone = RestObject(kind="connector", name="x", server=nobody)
    with pytest.raises(StillThere, match=r"connector x on http://127\.0\.0\.1:9 is left"):
        list(rest_leftovers.remove(gone))
    for url, reason in (
        (served.url.replace("http:", "https:"), "does not speak TLS"),
        ("http://nowhere.invalid:8083", "its name cannot be resolved"),
    ):
        with pytest.raises(rest_leftovers.NoServer, match=reason):
            RestServer(url=url).ask("GET", "/")
    # a Toxiproxy that has ended has no proxies any more
    assert not list(rest_leftovers.remove(RestObject(kind="proxy", name="x", server=nobody)))
    monkeypatch.setenv("LOGIN", "username=me\npassword=secret\n")
    # its first worker is down
    there = RestServer.parse(f"http://127.0.0.1:9/, {served.url}{{env:LOGIN}}")
    served.script |= {
        "GET /proxies/x": [(200, {}), (404, None)],
        "DELETE /proxies/x": [(204, None)],
    }
    removed = list(rest_leftovers.remove(RestObject(kind="proxy", name="x", server=there)))
    assert removed == [f"proxy x on http://127.0.0.1:9,{served.url}"]
    assert served.asked[-1] == "GET /proxies/x Basic bWU6c2VjcmV0"


def test_topics_stay_as_long_as_a_connector_is_left_that_would_make_them_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(attached_leftovers, "remove", lambda *_, **__: iter(["the topics"]))
    made = RestObject(kind="connector", name="x", server=RestServer(url="http://127.0.0.1:9"))
    theirs = Attached(name="A", bootstrap="x:1", id="i", clusters=("A",), had_heartbeats=False)
    entry = OwnerEntry(owner=Identity(pid=2**30, born="x"), attached=(theirs,), made=(made,))
    with pytest.raises(StillThere, match="connector x"):
        assert list(ledger.end(entry)) == []
    assert list(ledger.end(replace(entry, made=()))) == ["the topics"]


def test_connect_replays_as_far_as_it_writes_down_its_offsets() -> None:
    assert mm2.guarantee({}).allowed[0] == mm2.REPEATS
    repeats = mm2.guarantee({"connect": "http://connect:8083"}).allowed[0]
    assert repeats.reach_before == mm2.SHARED_REPLAY_REACH
    assert "no earlier than 75 s before it" in repeats.bound
    assert mirrors.MIRRORS["mm2"].about["connect"].default == ""


@pytest.mark.parametrize(
    ("version", "numbers"),
    [("4.3.1", (4, 3)), ("7.6.0-ccs", (3, 6)), ("8.0.1-ce", (4, 0)), ("unknown", (99, 0))],
)
def test_releases_are_read_from_versions(version: str, numbers: tuple[int, int]) -> None:
    assert release(version) == numbers


@pytest.mark.parametrize(
    ("version", "proxies", "says"),
    [
        ((200, "2.1.7"), (200, {}), r"is 2\.1\.7, which cannot reset connections; it needs 2\.2"),
        ((200, "2.12.0"), (200, ["x"]), "does not answer as a Toxiproxy does"),
        ((404, None), (404, None), "does not answer as a Toxiproxy does"),
    ],
)
def test_a_toxiproxy_that_cannot_be_used_is_refused(
    served: Any, version: tuple[int, Any], proxies: tuple[int, Any], says: str
) -> None:
    served.script |= {"GET /version": [version], "GET /proxies": [proxies]}
    with pytest.raises(InputError, match=says):
        shared.check(shared.parse(served.url))
    served.script |= {"GET /version": [(200, "2.2.0")], "GET /proxies": [(200, {})]}
    shared.check(shared.parse(served.url))


@pytest.mark.parametrize(
    ("toxiproxy", "topology", "says"),
    [
        ("127.0.0.1:8474", TOPOLOGY, "give the address of its API"),
        ("http://127.0.0.1", TOPOLOGY, "give the address of its API"),
        ("http://127.0.0.1:8474{env:X}", TOPOLOGY, "give the address of its API"),
        ("http://toxiproxy:8474", TOPOLOGY, "name one that runs on this machine"),
        ("http://127.0.0.1:8474", "A->B", "linkflap starts cluster A itself"),
    ],
)
def test_a_toxiproxy_is_named_for_a_cluster_that_runs_already(
    tmp_path: Path, toxiproxy: str, topology: str, says: str
) -> None:
    path = tmp_path / "mine.toml"
    text = FILE.format(connect="", topology=topology)
    path.write_text(f'{text}[cluster.A]\ntoxiproxy = "{toxiproxy}"\n')
    with pytest.raises(InputError, match=says) as error:
        scenario_file.read(path, seed=0)
    assert "mine.toml" in str(error.value)


def test_the_toxiproxy_of_a_cluster_is_saved_and_shown(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    text = FILE.format(connect="", topology=TOPOLOGY)
    path.write_text(f'{text}[cluster."{{cluster}}"]\ntoxiproxy = "http://127.0.0.1:8474"\n')
    read = scenario_file.read(path, seed=0)
    assert {each.toxiproxy for each in read.topology.clusters} == {"http://127.0.0.1:8474"}
    assert rows(read.topology).count("through the Toxiproxy at http://127.0.0.1:8474") == 2
    scenario_file.save(read, tmp_path / "saved.toml")
    assert scenario_file.read(tmp_path / "saved.toml", seed=0).topology == read.topology
