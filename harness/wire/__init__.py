"""Kafka's protocol over sockets: the harness's own requests to brokers."""

import sys

# kio registers its types with hypothesis if that is installed, and importing that takes longer than
# everything else.
_UNUSED = "hypothesis" not in sys.modules
if _UNUSED:
    sys.modules["hypothesis"] = None  # type: ignore[assignment]  # an import of it fails
try:
    import kio.static._phantom  # noqa: F401
finally:
    if _UNUSED:
        del sys.modules["hypothesis"]
