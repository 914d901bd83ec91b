from __future__ import annotations

from tests.monitoring.promql import Matcher, uses


def test_metrics_matchers_and_groups_are_found() -> None:
    found = uses(
        'histogram_quantile(0.95, sum by (instance, le) (rate(a_bucket{x=~"p|q",y!="r"}[5m]))) > 10'
        " and on (worker) group_left () a:b:c unless d offset 5m"
    )
    assert found.metrics == {"a_bucket", "a:b:c", "d"}
    assert found.matchers == (Matcher("a_bucket", "x", ("p", "q")), Matcher("a_bucket", "y", ("r",)))
    assert found.grouped == {"instance", "le", "worker"}


def test_variables_and_numbers_are_no_metrics() -> None:
    found = uses('2.5 * sum(rate(a{instance=~"$instance"}[$__rate_interval])) / 1e6')
    assert found.metrics == {"a"}
