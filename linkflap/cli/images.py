"""The option `--runtime`, and the commands for the images of the docker runtime (`images build`,
`images check`)."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

import click

from linkflap.cli import completion
from linkflap.harness.machine import docker_package
from linkflap.harness.model.errors import FAILED
from linkflap.harness.model.topology import DEFAULT_KAFKA

_kafka = click.option(
    "--kafka",
    "asked",
    multiple=True,
    default=(DEFAULT_KAFKA,),
    show_default=True,
    help="Release, or directory of jars.",
)
_base = click.option(
    "--base",
    envvar="LINKFLAP_BASE",
    help="Image with Java 17 or later on its PATH; by default one is made from this Java.",
)
runtime_option = click.option(
    "--runtime",
    envvar="LINKFLAP_RUNTIME",
    shell_complete=completion.runtimes,
    help=(
        "What brokers run in, process or docker; by default process, unless a scenario file names "
        "one."
    ),
)


@click.group()
def images() -> None:
    """Builds and checks the images of the docker runtime.

    They have real Kafka and Toxiproxy, from the distributions that this machine has fetched.
    """
    docker_package.check()
    click.get_current_context().with_resource(docker_package.importable())


@images.command()
@_kafka
@_base
def build(asked: Sequence[str], base: str | None) -> int:
    """Builds the image of each Kafka that has none yet, and tests it in containers. Runs do both
    automatically."""
    from linkflap.harness.runtimes.distribution.kafka import kafka
    from linkflap.harness.runtimes.docker.cluster import for_mirrors, install
    from linkflap.harness.runtimes.docker.images import proxy_image, python_image
    from linkflap.harness.runtimes.docker.images.kafka_image import ready

    click.echo(proxy_image.ready(build=True))
    click.echo(f"{python_image.ready()} with the packages of linkflap's own programs")
    for one in asked:
        image = ready(kafka(one), base)
        for_mirrors(install(one, base))
        click.echo(f"{image.tag} with Java {image.java}")
    if base:
        click.echo(f"runs use it while LINKFLAP_BASE={base} is set", err=True)
    return 0


def _fix(asked: str) -> str:
    from linkflap.harness.runtimes.docker.images import custom_image

    if custom_image.is_reference(asked):
        return "build, load or pull it"
    return f"make it: linkflap images build --kafka {shlex.quote(asked)}"


@images.command()
@_kafka
@_base
def check(asked: Sequence[str], base: str | None) -> int:
    """Shows which images exist; builds and fetches none. Exit code 255 if an image is missing, or
    cannot run Kafka."""
    from linkflap.harness.runtimes.docker.images import custom_image, proxy_image, python_image
    from linkflap.harness.runtimes.docker.images.builds import identity
    from linkflap.harness.runtimes.docker.images.kafka_image import built, there

    missing = False
    for what, names in (
        ("Toxiproxy", (proxy_image.tag(), proxy_image.OFFICIAL)),
        ("this machine's Python", (python_image.tag(),)),
    ):
        name = next(filter(identity, names), None)
        missing |= name is None
        click.echo(name or f"{what} has no image yet; make it: linkflap images build")
    for one in asked:
        made = built(one, base) if base else None
        image = made.tag if made else None if base else there(one)
        against = (
            custom_image.reason_against(one)
            if image
            else f"Kafka {one} has no image yet; {_fix(one)}"
        )
        missing |= against is not None
        click.echo(against or image)
    return FAILED if missing else 0
