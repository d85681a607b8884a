"""The recipe for clusters that Strimzi runs (docs/examples/attach/strimzi), played with kubectl on
answers of a Kubernetes API: brokers with TLS, a KafkaUser with the recipe's ACLs, and a pod that
is deleted."""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import yaml
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

import linkflap
from linkflap.harness.model.events import FaultBite, of_kind
from linkflap.harness.model.protocols import Broker, Deployment
from linkflap.harness.model.security import security_of
from linkflap.harness.rundir import RunReader
from linkflap.harness.wire.librdkafka import quiet
from tests.integration.test_secured import leaks

RECIPE = Path(__file__).resolve().parents[2] / "docs" / "examples" / "attach" / "strimzi"
CORE, STRIMZI = "/api/v1", "/apis/kafka.strimzi.io/v1"
SECRETS = f"{CORE}/namespaces/default/secrets"
PASSWORD = "of the KafkaUser"
TYPES = {"topic": "TOPIC", "group": "GROUP", "transactionalId": "TRANSACTIONAL_ID"}
OPERATIONS = {"DescribeConfigs": "DESCRIBE_CONFIGS"}
PATTERNS = {"literal": "LITERAL", "prefix": "PREFIXED"}


def kafka_user(cluster_admin: AdminClient, user: str) -> None:
    """Applies user.yaml as Strimzi's user operator does."""
    asked = yaml.safe_load((RECIPE / "user.yaml").read_text())["spec"]["authorization"]["acls"]
    bindings = [
        AclBinding(
            ResourceType[TYPES[each["resource"]["type"]]],
            each["resource"]["name"],
            ResourcePatternType[PATTERNS[each["resource"]["patternType"]]],
            f"User:{user}",
            "*",
            AclOperation[OPERATIONS.get(operation, operation.upper())],
            AclPermissionType.ALLOW,
        )
        for each in asked
        for operation in each["operations"]
    ]
    for future in cluster_admin.create_acls(bindings).values():
        future.result(60)
    credential = UserScramCredentialUpsertion(
        user, ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 4096), PASSWORD.encode()
    )
    for done in cluster_admin.alter_user_scram_credentials([credential]).values():
        done.result(60)


def resources(version: str, *kinds: str) -> dict[str, Any]:
    found = [
        {
            "name": f"{kind.lower()}s",
            "singularName": kind.lower(),
            "kind": kind,
            "namespaced": True,
            "verbs": ["get", "list", "watch", "delete"],
        }
        for kind in kinds
    ]
    return {"kind": "APIResourceList", "groupVersion": version, "resources": found}


def secret(**data: str | bytes) -> dict[str, Any]:
    encoded = {
        name.replace("_", "."): base64.b64encode(
            value.encode() if isinstance(value, str) else value
        ).decode()
        for name, value in data.items()
    }
    return {"apiVersion": "v1", "kind": "Secret", "type": "Opaque", "data": encoded}


def kafka(name: str, bootstrap: str) -> dict[str, Any]:
    """A Kafka resource's part that says where its listeners are."""
    listener = {"name": "external", "bootstrapServers": bootstrap}
    return {
        "apiVersion": "kafka.strimzi.io/v1",
        "kind": "Kafka",
        "metadata": {"name": name, "namespace": "default"},
        "status": {"listeners": [{"name": "tls", "bootstrapServers": "x:1"}, listener]},
    }


class KubernetesApi(BaseHTTPRequestHandler):
    """Answers kubectl with `objects` by their paths. Deleting the pod kills `broker`, and a new pod
    has it again, once somebody waits for that."""

    objects: dict[str, Any]
    broker: Broker
    pods: int
    protocol_version = "HTTP/1.1"

    def _pod(self) -> dict[str, Any]:
        return {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                "name": "east-broker-1",
                "namespace": "default",
                "uid": f"pod-{self.pods}",
                "resourceVersion": str(1 + self.pods),
            },
            "status": {"conditions": [{"type": "Ready", "status": "True"}]},
        }

    def do_GET(self) -> None:
        parts = urlsplit(self.path)
        if parts.path == f"{CORE}/namespaces/default/pods/east-broker-1":
            self._answer(self._pod())
        elif "watch=true" in parts.query:
            self._answer({})
        elif parts.path == f"{CORE}/namespaces/default/pods":  # kubectl wait
            if self.broker.state != "running":
                self.broker.start()
            listed = {"apiVersion": "v1", "kind": "PodList", "metadata": {"resourceVersion": "9"}}
            self._answer({**listed, "items": [self._pod()]})
        elif (found := self.objects.get(parts.path)) is not None:
            self._answer(found)
        else:
            status = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": 404}
            self._answer({**status, "reason": "NotFound", "message": f"no {parts.path}"}, 404)

    def do_DELETE(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length") or 0))
        assert self.path.endswith("/pods/east-broker-1")
        gone = self._pod()
        self.broker.kill()
        type(self).pods += 1
        self._answer(gone)

    def _answer(self, found: Any, status: int = 200) -> None:
        content = json.dumps(found).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: object) -> None:
        return


@pytest.fixture
def api(linkflap_deployment: Deployment, tmp_path: Path) -> Iterator[dict[str, str]]:
    """The environment of kubectl: the API of a Kubernetes whose Strimzi runs A as east, with users
    that log in, and B as west, with users' certificates."""
    east, west = (linkflap_deployment.clusters[name] for name in "AB")
    kafka_user(AdminClient(quiet(east.bootstrap)), "linkflap")
    certificate = Path(security_of(west.bootstrap).identity).read_bytes()

    class Own(KubernetesApi):
        broker = east.brokers[1]

    Own.pods = 0
    version = {"groupVersion": "kafka.strimzi.io/v1", "version": "v1"}
    group = {"name": "kafka.strimzi.io", "versions": [version], "preferredVersion": version}
    Own.objects = {
        "/version": {"major": "1", "minor": "32", "gitVersion": "v1.32.4"},
        "/api": {"kind": "APIVersions", "versions": ["v1"]},
        CORE: resources("v1", "Pod", "Secret"),
        "/apis": {"kind": "APIGroupList", "apiVersion": "v1", "groups": [group]},
        STRIMZI: resources("kafka.strimzi.io/v1", "Kafka"),
    }
    for name, cluster in ("east", east), ("west", west):
        entry = security_of(cluster.bootstrap)
        Own.objects |= {
            f"{STRIMZI}/namespaces/default/kafkas/{name}": kafka(name, str(cluster.bootstrap)),
            f"{SECRETS}/{name}-cluster-ca-cert": secret(ca_crt=Path(entry.authority).read_bytes()),
        }
    Own.objects |= {
        f"{SECRETS}/linkflap": secret(password=PASSWORD),
        f"{SECRETS}/certified": secret(user_crt=certificate, user_key=certificate),
    }
    with ThreadingHTTPServer(("127.0.0.1", 0), Own) as server:
        config = tmp_path / "kubeconfig"
        there = {"server": f"http://127.0.0.1:{server.server_port}"}
        known = {
            "clusters": [{"name": "x", "cluster": there}],
            "contexts": [{"name": "x", "context": {"cluster": "x"}}],
            "current-context": "x",
        }
        config.write_text(json.dumps({"apiVersion": "v1", "kind": "Config"} | known))
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield {"KUBECONFIG": str(config), "KUBECACHEDIR": str(tmp_path / "kubecache")}
        server.shutdown()
        thread.join()


@pytest.mark.nightly
@pytest.mark.spark
@pytest.mark.skipif(shutil.which("kubectl") is None, reason="there is no kubectl")
@pytest.mark.linkflap(topology="A{tls+scram}->B{mtls}")
def test_the_recipe_for_strimzi_reads_secrets_and_deletes_a_pod(
    linkflap_deployment: Deployment,
    api: dict[str, str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name, value in api.items():
        monkeypatch.setenv(name, value)
    shutil.copytree(RECIPE, tmp_path / "recipe")
    monkeypatch.chdir(tmp_path / "recipe")
    shown = []
    for cluster, user in ("east", "linkflap"), ("west", "certified"):
        words = ["sh", "access.sh", cluster, "external", user, "-n", "default"]
        done = subprocess.run(words, check=True, capture_output=True, text=True, timeout=60)
        shown.append(done.stdout.strip())
        assert os.stat(f"{cluster}.properties").st_mode & 0o077 == 0
    absent = ["sh", "access.sh", "east", "absent", "linkflap"]
    refused = subprocess.run(absent, capture_output=True, text=True, timeout=60)
    assert (refused.returncode, refused.stderr) == (
        1,
        "Kafka east has no listener absent that is ready\n",
    )
    file = Path("strimzi.toml")
    lines = file.read_text().splitlines()
    (at,) = (number for number, line in enumerate(lines) if line.startswith("topology"))
    lines[at] = f"topology = '{'->'.join(shown)}'"
    file.write_text("\n".join(lines))

    judged = linkflap.run(file, folder=tmp_path / "run", seed=5)
    assert judged.valid, judged.why
    assert judged.checks["order-equality"].examined["west/mirrored"] > 0
    events, _ = RunReader(tmp_path / "run").events()
    assert {each.id: each.bit for each in of_kind(events, FaultBite)} == {
        "flap": True,
        "loss": True,
    }
    assert leaks(tmp_path / "run", {PASSWORD}) == []
    for there in linkflap_deployment.clusters.values():
        left = AdminClient(quiet(there.bootstrap)).list_topics(timeout=60).topics
        assert [name for name in left if not name.startswith("__")] == []
