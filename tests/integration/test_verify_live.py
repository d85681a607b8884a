"""`linkflap verify --bootstrap` on clusters that run: a mirror that follows under load, one that diverged, one that goes away."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner

from harness.cli import linkflap
from tests.shadows import Writer, make_topic, shadow

pytestmark = [pytest.mark.integration, pytest.mark.spark, pytest.mark.xdist_group("spark")]


def verified(deployment, out, *more: str) -> tuple[int, dict]:
    """Exit code and document of the command."""
    where = [t for name in "AB" for t in ("--bootstrap", f"{name}={deployment.clusters[name].bootstrap}")]
    arguments = ["verify", *where, "--link", "A->B", "--topics", r"A\.records", "--out", str(out), "--json", *more]
    result = CliRunner().invoke(linkflap, arguments, standalone_mode=False)
    assert result.exception is None, result.output
    return result.return_value, json.loads(result.stdout)


def checks(document: dict) -> dict[str, dict]:
    return {check["name"]: check for check in document["checks"]}


@pytest.mark.linkflap(topology="A->B")
def test_a_mirror_that_follows_is_valid_and_one_that_diverged_is_not(linkflap_deployment, tmp_path, spark):
    deployment = linkflap_deployment
    make_topic(deployment, "A")
    mirror = shadow(deployment, "A->B")
    mirror.start()
    writer = Writer(deployment.clusters["A"].bootstrap)
    writer.write(6)
    with writer.writing():
        code, document = verified(deployment, tmp_path / "following")
    assert (code, document["verdict"]) == (0, "valid"), document["reason"]
    assert checks(document)["byte-equality"]["examined"]["B/mirrored"] >= 10
    assert "leaders' logs only" in checks(document)["replica-agreement"]["reason"]
