"""The image of Toxiproxy: the one built here, else the released one of the pinned version if a
registry is reachable."""

from __future__ import annotations

import hashlib
from typing import Final

from filelock import FileLock

from linkflap.harness.machine import cache
from linkflap.harness.runtimes.distribution import toxiproxy_server
from linkflap.harness.runtimes.docker.images import builds

SERVER: Final = "/toxiproxy"
OFFICIAL: Final = f"ghcr.io/shopify/toxiproxy:{toxiproxy_server.VERSION}"


def tag() -> str:
    """The name of the image built here."""
    digest = hashlib.sha256(builds.recipe("toxiproxy").encode()).hexdigest()
    return f"linkflap-toxiproxy:{toxiproxy_server.VERSION}-{digest[:12]}"


def ready(*, build: bool = False) -> str:
    """The name of an image in the engine, pulled or built if there is none; `build`: uses no
    registry. Raises SetupError."""
    with FileLock(cache.folder() / ".docker-toxiproxy.lock"):
        if builds.identity(tag()):
            return tag()
        if not build and builds.fetched(OFFICIAL):
            return OFFICIAL
        cache.LOG.info("first use: building the image of Toxiproxy %s", toxiproxy_server.VERSION)
        server = toxiproxy_server.toxiproxy_server()
        builds.build(
            tag(), "toxiproxy", [(server, "toxiproxy-server", 0o755)], arguments={}, labels={}
        )
        return tag()
