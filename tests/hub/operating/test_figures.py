"""The figures of INFO: each is declared, and each is in /metrics as Prometheus reads it."""

from __future__ import annotations

import re
from itertools import groupby

import pytest
from prometheus_client.parser import text_string_to_metric_families

from interlock import Hub
from interlock.hub.client import Client
from interlock.hub.serve import metrics
from interlock.hub.serve.figures import BY_NAME, FIGURES, MetricKind


def values(text: str) -> dict[str, float]:
    """The samples without labels, as the parser of Prometheus' own client reads them."""
    return {
        sample.name: sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if not sample.labels
    }


def test_every_figure_of_info_is_declared_and_every_declared_one_is_in_info(hub: Hub) -> None:
    assert BY_NAME.keys() == hub.info().keys()
    assert len(BY_NAME) == len(FIGURES)


def test_every_figure_is_in_the_metrics_with_its_value(hub: Hub) -> None:
    with Client(hub.url) as client:
        client.subscribe("a")
        client.pipeline([("PUBLISH", "a", "x")] * 5)
        info = hub.info()
    shown = values(metrics.text(info))
    for figure in FIGURES:
        if figure.metric:
            assert shown[figure.metric] == info[figure.name], figure.name
    assert shown["interlock_hub_messages_published_total"] == 5
    assert shown["interlock_hub_messages_delivered_total"] == 5


def test_the_metrics_are_what_prometheus_wants(hub: Hub) -> None:
    families = list(text_string_to_metric_families(metrics.text(hub.info())))
    assert len({family.name for family in families}) == len(families)
    kinds = {family.name: family.type for family in families}
    for figure in FIGURES:
        if figure.metric:
            # The parser takes a counter's ending for no part of its name.
            assert kinds[figure.metric.removesuffix("_total")] == figure.kind.value
            assert figure.metric.endswith("_total") == (figure.kind is MetricKind.COUNTER)
    for family in families:
        assert re.fullmatch(r"(interlock_hub|process)_[a-z_]+", family.name)
        assert re.fullmatch(r"\S.*\.", family.documentation)
    (which,) = [family for family in families if family.name == "interlock_hub_info"]
    assert which.samples[0].labels["interlock_version"] == hub.info()["interlock_version"]


def test_a_figure_without_a_declaration_is_shown_all_the_same() -> None:
    text = metrics.text({"something_new": 7, "some_word": "x"})
    assert values(text)["interlock_hub_something_new"] == 7
    assert "some_word" not in text


@pytest.mark.parametrize("value", ['a"b', "a\\b", "a\nb", "\\n"])
def test_a_label_holds_any_text(value: str) -> None:
    (which, *_) = text_string_to_metric_families(metrics.text({"role": value}))
    assert which.samples[0].labels == {"role": value}


def test_draining_is_told() -> None:
    assert values(metrics.text({}))["interlock_hub_draining"] == 0
    assert values(metrics.text({}, draining=True))["interlock_hub_draining"] == 1


def test_the_figures_of_a_section_stand_together() -> None:
    sections = [figure.section for figure in FIGURES if figure.section]
    heads = [section for section, _ in groupby(sections)]
    assert len(heads) == len(set(heads))
