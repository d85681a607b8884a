"""Run by every process of Python that finds it: puts a planted bug into shadows and into clients
(see `tests.planted`)."""

import os
import sys

_bug = os.environ.get("LINKFLAP_PLANTED", "")
if _bug and "linkflap.harness.mirrors.shadow" in sys.orig_argv:
    from tests.planted import mirror

    mirror.plant(_bug)
elif _bug and "linkflap.harness.workloads.process" in sys.orig_argv:
    from tests.planted import clients

    clients.plant(_bug)
