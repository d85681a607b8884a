"""A bridge to a JVM, by py4j (a dependency of Spark): its gateway listens on loopback and answers
only callers with its token. The JVM ends with this process.

A call takes about a millisecond. Each calling thread has its own connection, and its own thread in
the JVM. The JVM's output goes to a log; the token, which it prints first, is removed from that log
at once.

Method handles (java.lang.invoke), composed from Python: one call then does in Java what would
otherwise take thousands of calls.

A handle is a typed function in the JVM. Handles of a class are found by name and descriptor (JVMS
4.3), and combined by `java.lang.invoke.MethodHandles`. A handle can become an object of an
interface and be passed to Java's own code. So Java never calls Python, and linkflap has no Java
code.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
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


class Handles:
    """The handles of one JVM. Class names are Java's, with dots."""

    def __init__(self, bridge: Bridge) -> None:
        self._bridge = bridge
        java = bridge.java.java
        invoke = java.lang.invoke
        # Each dot of a path is a request to the JVM, so frequently used objects are looked up once.
        self._class_for, self._all = java.lang.Class.forName, invoke.MethodHandles
        self._type_of, self._proxies = (
            invoke.MethodType.fromMethodDescriptorString,
            invoke.MethodHandleProxies,
        )
        self._handle_class, self._object_class = invoke.MethodHandle, java.lang.Object
        self._lookup = self._all.publicLookup()
        self._classes: dict[str, Handle] = {}

    def named(self, name: str) -> Handle:
        """The class of this name."""
        if name not in self._classes:
            self._classes[name] = self._class_for(name)
        return self._classes[name]

    def typed(self, descriptor: str) -> Handle:
        """A method type, such as `(Ljava/lang/String;I)V`."""
        return self._type_of(descriptor, None)

    def method(self, owner: str, name: str, descriptor: str) -> Handle:
        """A method of an object, which is the handle's first argument."""
        return self._lookup.findVirtual(self.named(owner), name, self.typed(descriptor))

    def static(self, owner: str, name: str, descriptor: str) -> Handle:
        return self._lookup.findStatic(self.named(owner), name, self.typed(descriptor))

    def new(self, owner: str, descriptor: str) -> Handle:
        """A constructor."""
        return self._lookup.findConstructor(self.named(owner), self.typed(descriptor))

    def cast(self, handle: Handle, descriptor: str) -> Handle:
        """The same handle with other types, by casts."""
        return handle.asType(self.typed(descriptor))

    def then(self, *handles: Handle) -> Handle:
        """A chain: the result of each handle is the argument of the next."""
        first, *others = handles
        for other in others:
            first = self._all.filterReturnValue(first, other)
        return first

    def given(self, handle: Handle, position: int, *values: object) -> Handle:
        """The handle with these arguments fixed, from a position on."""
        return self._all.insertArguments(handle, position, self._array(self._object_class, values))

    def fed(self, handle: Handle, position: int, *sources: Handle) -> Handle:
        """The handle with its arguments, from a position on, filtered through these unary handles
        (filterArguments)."""
        return self._all.filterArguments(handle, position, self._array(self._handle_class, sources))

    def of_one(self, handle: Handle, descriptor: str, arguments: int) -> Handle:
        """The handle with all its arguments, of one type, replaced by a single one; `descriptor`
        has one argument."""
        numbers = self._bridge.gateway.new_array(self._bridge.java.int, arguments)
        return self._all.permuteArguments(handle, self.typed(descriptor), numbers)

    def ignoring(self, handle: Handle, position: int, *classes: str) -> Handle:
        """The handle with additional arguments, which it ignores."""
        ignored = self._array(
            self._bridge.java.java.lang.Class, [self.named(name) for name in classes]
        )
        return self._all.dropArguments(handle, position, ignored)

    def constant(self, kind: str, value: object) -> Handle:
        """A handle without arguments that always returns this."""
        return self._all.constant(self.named(kind), value)

    def when(self, test: Handle, yes: Handle, no: Handle) -> Handle:
        """One handle or the other, depending on a test of the first arguments."""
        return self._all.guardWithTest(test, yes, no)

    def caught(self, handle: Handle, exception: str, instead: Handle) -> Handle:
        """The handle, with a replacement for when it throws; that gets the exception as its first
        argument."""
        return self._all.catchException(handle, self.named(exception), instead)

    def first(self, before: Handle, handle: Handle) -> Handle:
        """Calls a handle that returns nothing, then the other with the same arguments."""
        return self._all.foldArguments(handle, before)

    def item(self, array: str, number: int) -> Handle:
        """A handle that takes an array (its class as Class.forName names it, such as `[[B`) and
        returns one element."""
        return self.given(self._all.arrayElementGetter(self.named(array)), 1, number)

    def as_a(self, interface: str, handle: Handle) -> Handle:
        """An object of an interface with one method, which calls this handle."""
        return self._proxies.asInterfaceInstance(self.named(interface), handle)

    def joined(self, *texts: Handle, descriptor: str, between: str) -> Handle:
        """Joins handles from one argument to a string: one handle that returns all strings with a
        separator."""
        concat = self.method("java.lang.String", "concat", "(Ljava/lang/String;)Ljava/lang/String;")
        whole = texts[0]
        for text in texts[1:]:
            whole = self.then(whole, self.given(concat, 1, between))
            whole = self.of_one(self.fed(concat, 0, whole, text), descriptor, 2)
        return whole

    def each(self, to_text: Handle, *, between: str) -> Handle:
        """From a Collection to the texts of its elements, as one text."""
        stream = self.method("java.util.Collection", "stream", "()Ljava/util/stream/Stream;")
        return self.then(stream, *self._texts(to_text, between))

    def each_iterated(self, to_text: Handle, *, between: str) -> Handle:
        """From an Iterable to the texts of its elements, as one text."""
        split = self.method("java.lang.Iterable", "spliterator", "()Ljava/util/Spliterator;")
        stream = self.static(
            "java.util.stream.StreamSupport",
            "stream",
            "(Ljava/util/Spliterator;Z)Ljava/util/stream/Stream;",
        )
        return self.then(split, self.given(stream, 1, False), *self._texts(to_text, between))

    def _texts(self, to_text: Handle, between: str) -> tuple[Handle, Handle]:
        stream = "java.util.stream.Stream"
        mapped = self.method(
            stream, "map", "(Ljava/util/function/Function;)Ljava/util/stream/Stream;"
        )
        mapped = self.given(mapped, 1, self.as_a("java.util.function.Function", to_text))
        collect = self.method(stream, "collect", "(Ljava/util/stream/Collector;)Ljava/lang/Object;")
        collect = self.given(
            collect, 1, self._bridge.java.java.util.stream.Collectors.joining(between)
        )
        return mapped, self.cast(collect, "(Ljava/util/stream/Stream;)Ljava/lang/String;")

    def _array(self, kind: Handle, values: Sequence[object]) -> Handle:
        made = self._bridge.gateway.new_array(kind, len(values))
        for number, value in enumerate(values):
            made[number] = value
        return made
