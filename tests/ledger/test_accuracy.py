"""What holds of an account whatever the records are."""

import json
import math
import random
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.errors import InputError
from planner.ledger.accuracy import FIGURE_KEYS, accuracy_json, accuracy_report, quantile
from planner.ledger.predicted_records import predict_records
from tests.ledger.made_predictions import account, case, perfect, prediction, skipped

some = st.floats(0.01, 100)
maybe = st.one_of(st.none(), some)


@st.composite
def tables(draw):
    """Records of a few sources and groups, some of them skipped, with predictions."""
    cases, left, made = [], [], []
    for line in range(2, 2 + draw(st.integers(0, 25))):
        source, group = draw(st.sampled_from("abc")), draw(st.sampled_from(["", "g", "h"]))
        if draw(st.integers(0, 4)) == 0:
            left.append(skipped(line, source, draw(st.sampled_from(["x", "y"]))))
            continue
        fields = {"memory_bytes": draw(maybe), "oom": draw(st.booleans()), "tp": draw(st.sampled_from([1, 2, 4, 8]))}
        cases.append(case(line, source, group, draw(maybe), **fields))
        chance = draw(st.floats(0, 1))
        made.append(prediction(draw(some), draw(some), chance, draw(st.floats(0, 2))))
    return cases, left, made


@given(tables())
def test_every_row_is_used_or_skipped(table):
    cases, left, made = table
    found = account(cases, left, made)
    read = len(cases) + len(left)
    assert found.overall.records_read == found.overall.rows_used + sum(found.overall.rows_skipped.values()) == read
    assert sum(figures.records_read for figures in found.sources.values()) == read
    origins = [record.case.origin for record in found.records] + [one.origin for one in found.skipped]
    assert sorted(origins, key=str) == sorted([one.origin for one in (*cases, *left)], key=str)
    assert len(accuracy_json(found, with_records=True)["rows"]) == read
    assert json.loads(json.dumps(accuracy_json(found), allow_nan=False))


@given(tables())
def test_a_perfect_predictor_makes_no_error(table):
    cases, left, _ = table
    found = account(cases, left, perfect(cases))
    for figures in (found.overall, *found.sources.values()):
        left_out = (figures.left_out_p90_error, figures.left_out_bias)
        for value in (figures.time_median_error, *left_out, figures.memory_median_error):
            assert value in (None, 0)
        assert figures.best_pick_loss in (None, 0)
        assert figures.best_pick_close in (None, 1)
        assert figures.spearman_median is None or figures.spearman_median == pytest.approx(1)
        assert figures.coverage80 in (None, 1)
        assert figures.oom_recall[0] == figures.oom_recall[1] == figures.oom_precision[0] == figures.oom_precision[1]


@given(tables(), st.floats(0.1, 10))
def test_a_common_factor_leaves_the_order_and_shifts_the_error(table, factor):
    cases, left, _ = table
    found = account(cases, left, perfect(cases, factor))
    for figures in (found.overall, *found.sources.values()):
        assert figures.spearman_median is None or figures.spearman_median == pytest.approx(1)
        assert figures.best_pick_loss is None or figures.best_pick_loss == pytest.approx(0)
        assert figures.left_out_bias is None or figures.left_out_bias == pytest.approx(factor - 1, abs=1e-9)
        for value in (figures.time_median_error, figures.left_out_p90_error, figures.memory_median_error):
            assert value is None or value == pytest.approx(abs(factor - 1), abs=1e-9)


@given(tables(), st.randoms())
def test_the_order_of_rows_is_of_no_matter(table, random):
    cases, left, made = table
    order = [*range(len(cases))]
    random.shuffle(order)
    other = account([cases[at] for at in order], left[::-1], [made[at] for at in order])
    assert other == account(cases, left, made)


@given(tables())
def test_a_source_alone_has_the_same_figures(table):
    cases, left, made = table
    whole = account(cases, left, made)
    for name, figures in whole.sources.items():
        kept = [(one, predicted) for one, predicted in zip(cases, made, strict=True) if one.origin.source == name]
        alone = account(
            [one for one, _ in kept], [one for one in left if one.origin.source == name], [made for _, made in kept]
        )
        assert alone.overall == alone.sources[name] == figures


def test_an_interval_of_known_width_covers_its_share():
    """Measured seconds a normal error away, in logarithms; ±1.2816 standard deviations hold 80 % of them."""
    draw = random.Random(1)
    sigma = 0.3
    cases = [case(line, seconds=math.exp(draw.gauss(0, sigma))) for line in range(2, 4002)]
    found = account(cases, [], [prediction(1.0, spread=1.2815515655 * sigma)] * len(cases))
    assert found.overall.coverage80 == pytest.approx(0.8, abs=0.02)


def test_figures_by_hand():
    cases = [case(2, seconds=2.0), case(3, seconds=1.0, memory_bytes=100.0), case(4, seconds=4.0, defaulted=("seq",))]
    found = account(cases, [skipped(5), skipped(6), skipped(7, reason="else")], [prediction(1.0, 110.0)] * 3).overall
    assert (found.rows_used, found.rows_defaulted) == (3, 1)
    assert [*found.rows_skipped.items()] == [("no profile of the device", 2), ("else", 1)]
    assert found.time_median_error == 0.5
    assert found.left_out_p90_error == pytest.approx(0.5 + 0.8 * 0.25)
    assert found.left_out_bias == -0.5
    assert found.memory_median_error == pytest.approx(0.1)


def test_what_was_fitted_is_shown_beside_what_was_left_out():
    """Of two sources alike in every other way, one was fitted; each counts once in the mean."""
    cases = [case(line, seconds=1.0) for line in (2, 3, 4)] + [case(9, source="b", seconds=1.0)]
    made = [replace(prediction(1.0), left_out_seconds=1.4)] * 3 + [prediction(1.2)]
    found = account(cases, [], made)
    assert found.sources["a"].time_median_error == 0.0
    assert found.sources["a"].left_out_median_error == pytest.approx(0.4)
    assert found.sources["b"].left_out_median_error == found.sources["b"].time_median_error == pytest.approx(0.2)
    assert found.overall.mean_over_sources == pytest.approx(0.3)
    assert found.overall.left_out_median_error == pytest.approx(0.4)
    assert found.sources["a"].coverage80 == 0.0


def test_out_of_memory_rows_are_found_and_only_they():
    """Half of one is not yet named."""
    cases = [
        case(2, seconds=None, oom=True),
        case(3, seconds=None, oom=True),
        case(4),
        case(5, seconds=None, memory_bytes=1.0),
    ]
    chances = [0.9, 0.5, 0.51, 0.6]
    found = account(cases, [], [prediction(oom_probability=chance) for chance in chances]).overall
    assert (found.oom_recall, found.oom_precision) == ((1, 2), (1, 3))


def test_what_ran_out_of_memory_has_no_other_figures():
    found = account([case(seconds=5.0, memory_bytes=5.0, oom=True)], [], [prediction()]).overall
    assert found.rows_used == 1
    assert found.time_median_error is found.memory_median_error is found.coverage80 is None


def test_one_bad_row_costs_only_itself():
    def predict(cases):
        for one in cases:
            if one.origin.line == 3:
                raise InputError("the layers do not divide")
            if one.origin.line == 4:
                raise TypeError("a bug")
        return perfect(cases)

    cases = [case(line) for line in range(2, 7)]
    rows, left = predict_records(cases, predict)
    found = accuracy_report(rows, left)
    assert found.overall.rows_used == 3
    assert [(one.origin.line, one.reason, one.detail) for one in found.skipped] == [
        (3, "no prediction", "the layers do not divide"),
        (4, "the predictor failed", "TypeError: a bug"),
    ]


@given(st.lists(some, min_size=1), st.floats(0, 1))
def test_quantiles_are_numpys(values, at):
    assert quantile(values, at) == pytest.approx(float(np.quantile(values, at)))


def test_the_names_of_the_answer():
    said = accuracy_json(account([case()], [skipped(3)], [prediction()]))
    assert [*said] == ["overall", "sources", "after_one_run"]
    assert [*said["overall"]] == [*said["sources"]["a"]] == [*FIGURE_KEYS]
    assert said["sources"]["a"]["rows_skipped"] == {"no profile of the device": 1}
    assert json.loads(json.dumps(said))["overall"]["oom_recall"] == [0, 0]
