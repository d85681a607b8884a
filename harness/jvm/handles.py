"""Method handles (java.lang.invoke), composed from Python: one call then does in Java what would
otherwise take thousands of calls.

A handle is a typed function in the JVM. Handles of a class are found by name and descriptor (JVMS
4.3), and combined by `java.lang.invoke.MethodHandles`. A handle can become an object of an
interface and be passed to Java's own code. So Java never calls Python, and linkflap has no Java
code.
"""

from __future__ import annotations

from collections.abc import Sequence

from linkflap.harness.jvm.bridge import Bridge, Handle


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
