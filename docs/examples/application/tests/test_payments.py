"""What a crash and a failover cost two applications that make payments of orders; one of them has a
bug."""

from pathlib import Path

import pytest

import linkflap

HERE = Path(__file__).resolve().parent.parent


@pytest.fixture
def crashed(tmp_path):
    """Runs crash.toml with further arguments of payments.py."""

    def run(*arguments):
        words = "".join(f', "{word}"' for word in arguments)
        text = (HERE / "crash.toml").read_text()
        text = text.replace('"--fail-point"]', f'"--fail-point"{words}]\nfolder = "{HERE}"')
        scenario = tmp_path / "crash.toml"
        scenario.write_text(text)
        return linkflap.run(scenario, folder=tmp_path / "run")

    return run


@pytest.mark.long
def test_every_order_is_paid_once_although_the_application_was_killed(crashed):
    judged = crashed()
    assert judged.valid, judged.why
    assert judged.checks["program-copies"].examined["A/native"] > 0


def test_offsets_that_are_committed_outside_of_the_transaction_pay_orders_twice(crashed):
    judged = crashed("--offsets", "apart")
    assert judged.checks["program-copies"].verdict == "invalid", judged.why
    assert judged.found("input-copied-twice")


@pytest.mark.long
def test_every_order_is_paid_once_over_a_failover(tmp_path):
    judged = linkflap.run(HERE / "failover.toml", folder=tmp_path / "run")
    assert judged.valid, judged.why
    assert judged.checks["program-copies"].examined["B/mirrored"] > 0


@pytest.mark.long
@pytest.mark.parametrize("stuck", [True, False])
def test_an_application_that_polls_no_more_after_the_link_was_down_has_stalled(tmp_path, stuck):
    text = (HERE / "stuck.toml").read_text()
    arguments = ', "--stuck-after", "300"'
    text = text.replace(
        f'"payments.py"{arguments}]',
        (f'"payments.py"{arguments if stuck else ""}]\nfolder = "{HERE}"'),
    )
    scenario = tmp_path / "stuck.toml"
    scenario.write_text(text)
    judged = linkflap.run(scenario, folder=tmp_path / "run")
    assert judged.valid is not stuck, judged.why
    assert bool(judged.found("stalled")) is stuck
    assert judged.checks["progress"].examined["A/native"] > 0
