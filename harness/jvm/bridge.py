"""A bridge to a JVM, by py4j (a dependency of Spark): its gateway listens on loopback and answers
only callers with its token. The JVM ends with this process.

A call takes about a millisecond. Each calling thread has its own connection, and its own thread in
the JVM. The JVM's output goes to a log; the token, which it prints first, is removed from that log
at once.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

from linkflap.harness.machine import children
from linkflap.harness.machine.java import Java
from linkflap.harness.model.errors import SetupError
from linkflap.harness.model.wait import until

Handle = Any
"""An object in the JVM: py4j has no types for it."""
OPTIONS: Final = (
    "-Xms32m",
    "-Xmx256m",
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",
    "-XX:-UsePerfData",
    "-Djava.net.preferIPv4Stack=true",
)
"""A small JVM that starts quickly."""
ANNOUNCED_WITHIN: Final = 60.0


class Bridge:
    """A JVM with a class path. `java` is py4j's view of its packages."""

    def __init__(
        self,
        java: Java,
        classpath: str,
        folder: Path,
        *,
        name: str = "java-clients",
        options: tuple[str, ...] = (),
    ) -> None:
        """`name` names the JVM, and its log in `folder`; `options` are JVM options. Raises
        SetupError."""
        from py4j.java_gateway import GatewayParameters, JavaGateway

        output = folder / f"{name}.log"
        os.close(os.open(output, os.O_CREAT | os.O_TRUNC | os.O_WRONLY, 0o600))
        command = [str(java.path), *OPTIONS, *options, "-cp", f"{py4j_jar()}:{classpath}"]
        # port 0: any free port
        command += ["py4j.GatewayServer", "--enable-auth", "0"]
        self.child = children.spawn(command, name=name, folder=folder, output=output)

        def announced() -> list[str] | None:
            if not self.child.alive:
                raise SetupError(
                    f"{name}: the JVM ended at its start "
                    f"({output.read_text(errors='replace')[-300:]}); see {output}"
                )
            lines = output.read_text(errors="replace").split("\n")
            return lines[:2] if len(lines) > 2 and lines[0].isdigit() else None

        try:
            port, token = until(
                announced, within=ANNOUNCED_WITHIN, what=f"{name}: the JVM to answer", every=0.02
            )
        except BaseException:
            self.child.kill()
            raise
        os.truncate(output, 0)
        parameters = GatewayParameters(port=int(port), auth_token=token, auto_convert=True)
        self.gateway: Handle = JavaGateway(gateway_parameters=parameters)
        self.java: Handle = self.gateway.jvm

    def properties(self, values: Mapping[str, object]) -> Handle:
        """java.util.Properties."""
        made = self.java.java.util.Properties()
        for name, value in values.items():
            made.put(name, str(value).lower() if isinstance(value, bool) else str(value))
        return made

    def close(self) -> None:
        """Kills the JVM. Safe to call again. Its objects that are garbage collected later do not
        notify it: each would try to reconnect, and log the failure."""
        self.gateway._gateway_client.is_connected = False
        self.gateway.close()
        self.child.kill()


def failure(error: Handle) -> str:
    """The simple Java name of the innermost Kafka exception of a py4j error."""
    thrown = error.java_exception
    names = []
    while thrown is not None:
        names.append(str(thrown.getClass().getSimpleName()))
        thrown = thrown.getCause()
    return next((name for name in reversed(names) if name != "ExecutionException"), "?")


def py4j_jar() -> Path:
    """The py4j jar of pyspark. Raises SetupError."""
    found = find_spec("pyspark")
    jars = (
        sorted((Path(found.submodule_search_locations[0]) / "jars").glob("py4j-*.jar"))
        if found and found.submodule_search_locations
        else []
    )
    if not jars:
        raise SetupError("pyspark has no py4j jar, which Java clients need; install pyspark again")
    return jars[0]
