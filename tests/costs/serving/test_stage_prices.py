"""Prices of serving: monotone, no quicker than memory, and what fits find of the lines that made them."""

from itertools import pairwise

import pytest

from planner.costs import machine_of
from planner.costs.serving import MOST_TABLED, fitted_prices, rated_prices
from planner.errors import InputError
from planner.specs import library
from planner.specs.framework.timing_coefficients import TimingCoefficients
from planner.specs.hardware.cluster import Cluster
from planner.specs.hardware.profile import Profile
from planner.specs.model import Model
from planner.specs.parameters import parameter_counts
from tests.served import PRICES


def of(name, tp):
    model, cluster = library.read_named(name, Model)[0], library.read_named("h200x8", Cluster)[0]
    profile = library.read_named("h200", Profile)[0]
    machine = machine_of(cluster, cluster.ranks[0].kind, profile.device, profile.rates, TimingCoefficients())
    return model, machine, rated_prices(model.modules["llm"], model.modules.get("vision"), machine, tp, 0.1)


def test_nothing_is_quicker_than_reading_the_weights_or_than_fewer_tokens():
    model, machine, one = of("qwen2.5-vl-7b", 1)
    weights = 2.0 * parameter_counts(model.modules["llm"]).all_layers / machine.bandwidth
    for table in (one.iteration.steps, one.iteration.passes):
        assert table[0] == 0.0 and table[1] >= weights
        assert all(table[n] <= table[n + 1] * (1 + 1e-12) for n in range(0, 4096))
    assert one.encode.passes[0] == 0.0 and one.encode.seconds([]) == 0.0


def test_more_ranks_take_less_time_and_have_more_room():
    each = [of("qwen2.5-vl-7b", tp)[2] for tp in (1, 2, 4)]
    for fewer, more in pairwise(each):
        assert more.iteration.prefill_seconds(4096) < fewer.iteration.prefill_seconds(4096)
        assert more.iteration.steps[64] < fewer.iteration.steps[64]
        assert more.kv_tokens > 2 * fewer.kv_tokens and more.kv_tokens_encoding < more.kv_tokens
        assert more.iteration.prefill_seconds(4096) > fewer.iteration.prefill_seconds(4096) / 2


def test_prefill_of_a_text_model_is_that_of_its_products():
    _, machine, prices = of("llama-3-8b", 1)
    flops = 2.0 * parameter_counts(library.read_named("llama-3-8b", Model)[0].modules["llm"]).all_layers * 8192
    share = flops / machine.peak("bf16") / prices.iteration.passes[8192]
    assert 0.5 < share < 0.85 and prices.encode is None


def rows(prices):
    lines = ["stage,batch,tokens,seconds"]
    for batch, tokens in ((1, 100), (1, 1000), (4, 500), (8, 2000), (32, 300)):
        lines.append(f"encode,{batch},{tokens},{0.01 + 1e-5 * batch * tokens + 1e-9 * batch * tokens**2!r}")
        lines.append(f"prefill,{batch},{tokens},{0.005 + 5e-6 * batch * tokens + 1e-10 * batch * tokens**2 / 2!r}")
        lines.append(f"decode,{batch},{tokens},{0.005 + 2e-5 * batch + 2e-8 * batch * tokens!r}")
    return lines


def test_a_fit_finds_the_lines_that_made_its_rows(tmp_path):
    path = tmp_path / "rows.csv"
    path.write_text("\n".join(rows(PRICES)))
    found = fitted_prices(PRICES, path, "any")
    assert found.spread < 1e-6
    for tokens in (1, 77, 5000, MOST_TABLED):
        assert found.iteration.passes[tokens] == pytest.approx(PRICES.iteration.passes[tokens])
        assert found.iteration.steps[tokens] == pytest.approx(PRICES.iteration.steps[tokens])
        assert found.encode.seconds([tokens]) == pytest.approx(PRICES.encode.seconds([tokens]))


def test_a_stage_without_prices_is_named(tmp_path):
    path = tmp_path / "rows.csv"
    path.write_text("\n".join(line for line in rows(PRICES) if not line.startswith("decode")))
    with pytest.raises(InputError, match="decode has no prices"):
        fitted_prices(PRICES, path, "any")
