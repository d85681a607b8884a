"""What a fault waits for, as it is written."""

import pytest

from linkflap.chaos.triggers import after, parts


@pytest.mark.parametrize(
    ("when", "told"),
    [
        ("always", ((), "always")),
        ("open-transactions", ((), "open-transactions")),
        ("after:a", (("a",), "always")),
        ("after:a,b", (("a", "b"), "always")),
        ("after:a,b and mirror-behind", (("a", "b"), "mirror-behind")),
    ],
)
def test_faults_that_come_before_and_a_trigger(when, told):
    assert parts(when) == told
    if told[0]:
        assert after(*told[0], once=told[1]) == when
