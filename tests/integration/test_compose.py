"""The Docker Compose file of docs/examples/attach: its clusters are attached to, broken and judged,
and nothing of the run is left on them."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from urllib.request import urlopen

import pytest
from confluent_kafka.admin import AdminClient

import linkflap
from linkflap.harness.model.events import FaultBite, of_kind
from linkflap.harness.model.topology import DEFAULT_KAFKA
from linkflap.harness.rundir import RunReader
from linkflap.harness.runtimes.distribution.kafka import kafka
from tests.on_runtimes import skip_without
from tests.waiting import eventually

APIS = ("http://127.0.0.1:8083/connectors", "http://127.0.0.1:8474/proxies")
RECIPE = Path(__file__).resolve().parents[2] / "docs" / "examples" / "attach"


def compose() -> Sequence[str]:
    """Compose as this machine has it. Skips the test where there is none."""
    for words in ["docker", "compose"], ["docker-compose"]:
        if (
            shutil.which(words[0])
            and not subprocess.run(
                [*words, "version"], capture_output=True, check=False, timeout=60
            ).returncode
        ):
            return words
    pytest.skip("there is no docker compose")


def names(url: str) -> set[str]:
    with urlopen(url, timeout=60) as answer:
        return set(json.load(answer))


def serves(url: str) -> bool:
    try:
        return names(url) == set()
    except OSError:
        return False


@pytest.mark.nightly
@pytest.mark.spark
def test_the_clusters_of_the_compose_file_are_attached_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    skip_without("docker")
    from linkflap.harness.runtimes.docker.images import kafka_image, proxy_image

    words = compose()
    monkeypatch.setenv("KAFKA_IMAGE", kafka_image.ready(kafka(DEFAULT_KAFKA)).tag)
    monkeypatch.setenv("TOXIPROXY_IMAGE", proxy_image.ready())
    monkeypatch.setenv("COMPOSE_PROJECT_NAME", tmp_path.name.replace("_", "-"))
    for path in RECIPE.iterdir():
        if path.is_file():
            shutil.copy(path, tmp_path)
    scenario = tmp_path / "compose.toml"
    written = scenario.read_text()
    scenario.write_text(written.replace('"docker", "compose"', json.dumps(words)[1:-1]))
    try:
        subprocess.run([*words, "up", "-d"], cwd=tmp_path, check=True, timeout=600)
        for url in APIS:
            eventually(f"{url} to answer", partial(serves, url), within=180)
        judged = linkflap.run(scenario, folder=tmp_path / "run", seed=3)
        assert judged.valid, judged.why
        assert judged.checks["order-equality"].examined["lf-west/mirrored"] > 0
        events, _ = RunReader(tmp_path / "run").events()
        bites = {each.id: each.bit for each in of_kind(events, FaultBite)}
        assert bites == dict.fromkeys(("flap", "loss", "failover"), True)
        for url in APIS:
            assert names(url) == set()
        for port in 9092, 9192:
            left = AdminClient({"bootstrap.servers": f"127.0.0.1:{port}"}).list_topics(timeout=60)
            assert [name for name in left.topics if "lf-" in name or "linkflap" in name] == []
    finally:
        subprocess.run([*words, "down", "-v"], cwd=tmp_path, check=True, timeout=300)
