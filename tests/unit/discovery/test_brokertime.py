"""The broker's time is bounded from both sides, however long the clock record was on its way."""

from hypothesis import given
from hypothesis import strategies as st

from tidegate.discovery.brokertime import BrokerTime

SECONDS = st.integers(0, 10**6).map(lambda ms: ms / 1000)


def test_what_the_record_took_widens_the_bounds() -> None:
    time = BrokerTime(at_ms=1_000_000, sent_s=50.0, answered_s=53.0)

    assert (time.earliest_ms(60.0), time.latest_ms(60.0)) == (1_007_000, 1_010_000)


@given(SECONDS, SECONDS, SECONDS, SECONDS)
def test_the_brokers_time_lies_between_the_bounds(sent_s: float, there_s: float, back_s: float, later_s: float) -> None:
    """``there_s``, ``back_s``: how long the record, and its answer, were on their way."""
    ahead_ms = 1_700_000_000_000
    appended_s = sent_s + there_s
    time = BrokerTime(round(appended_s * 1000) + ahead_ms, sent_s, appended_s + back_s)
    now_s = appended_s + back_s + later_s

    assert time.earliest_ms(now_s) <= round(now_s * 1000) + ahead_ms <= time.latest_ms(now_s)
