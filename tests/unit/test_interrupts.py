"""Signals that arrive while something is being stopped wait until it has stopped."""

from __future__ import annotations

import signal
import threading

import pytest

from linkflap.harness.model.interrupts import held_off


def test_a_signal_waits_for_the_end_of_the_block() -> None:
    done = []

    def stop() -> None:
        with held_off():
            signal.raise_signal(signal.SIGINT)
            done.append("all of it")

    with pytest.raises(KeyboardInterrupt):
        stop()
    assert done == ["all of it"]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_the_block_may_fail_and_blocks_may_be_in_blocks() -> None:
    done = []

    def stop() -> None:
        with held_off():
            with held_off():
                signal.raise_signal(signal.SIGINT)
                done.append("inner")
            done.append("outer")
            raise ValueError("could not be stopped")

    with pytest.raises(KeyboardInterrupt) as raised:
        stop()
    assert done == ["inner", "outer"]
    assert isinstance(raised.value.__context__, ValueError)


def test_a_thread_is_never_asked() -> None:
    done = []

    def stop() -> None:
        with held_off():
            done.append(signal.getsignal(signal.SIGINT))

    thread = threading.Thread(target=stop)
    thread.start()
    thread.join()
    assert done == [signal.default_int_handler]
