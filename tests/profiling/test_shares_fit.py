"""Shares of a device: what made the times is found again, parts are apart, and what cannot be divided is refused."""

import os
from itertools import combinations_with_replacement

import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st

from planner.costs.compute.contention import DeviceUse, slowdown
from planner.errors import InputError
from planner.profiling.device_parts import device_units, part, require_shares, seconds_on_parts
from planner.profiling.measure_shares import COPY
from planner.profiling.shares_fit import SharedPairTime, SharesModel, Subject, fit_shares, pair_error
from planner.specs.hardware.profile import DeviceShares
from tests.examples import examples

CPU = torch.device("cpu")
SHARES = (0.25, 0.5, 0.75, 1.0)
WHOLE = {Subject(COPY): 0.01, Subject("m/vision", 512): 0.1, Subject("m/llm", 512): 0.3}


def times(model: SharesModel, gamma: float, shares=SHARES):
    alone = {(subject, share): model.seconds(subject, share) for subject in model.whole for share in shares}
    halves = (SharedPairTime(pair, (0.5, 0.5), (0.0, 0.0)) for pair in combinations_with_replacement(model.whole, 2))
    return alone, [pair._replace(seconds=model.beside(pair, gamma)) for pair in halves]


@examples(20)
@given(st.floats(1.1, 3.9), st.floats(0.1, 3.0), st.floats(0.0, 1.0), st.floats(0.0, 1.0))
def test_kappa_and_gamma_are_recovered_from_synthetic_pairs(kappa, gamma, vision, llm):
    model = SharesModel(kappa, {COPY: 1.0, "m/vision": vision, "m/llm": llm}, WHOLE)
    alone, pairs = times(model, gamma)
    found = fit_shares(alone, pairs, [COPY], "cpu", 2)
    assert found.kappa == pytest.approx(kappa, rel=0.02)
    assert found.gamma == pytest.approx(gamma, rel=0.02)
    assert found.memory_shares["m/vision"] == pytest.approx(vision, abs=0.02)
    assert (found.source, found.device, found.launch_threads) == ("fitted", "cpu", 2)
    assert found.holdout_error is not None and found.holdout_error < 0.02


@examples(20)
@given(st.floats(1.1, 1.9), st.floats(0.1, 3.0), st.floats(0.0, 1.0))
def test_halves_are_enough_where_a_copy_is_among_them(kappa, gamma, vision):
    model = SharesModel(kappa, {COPY: 1.0, "m/vision": vision, "m/llm": 0.3}, WHOLE)
    found = fit_shares(*times(model, gamma, (0.5, 1.0)), [COPY], "cpu")
    assert (found.kappa, found.gamma) == pytest.approx((kappa, gamma), rel=0.02)


@examples(20)
@given(st.floats(1.0, 4.0), st.floats(0.0, 3.0), st.floats(0.0, 1.0), st.sampled_from(SHARES))
def test_the_fit_is_the_formula_of_prices(kappa, gamma, bound, share):
    """Of two alike side by side, each with the same share."""
    assume(2 * share <= 1)
    subject = Subject("m/vision", 512)
    model = SharesModel(kappa, {"m/vision": bound}, {subject: 2.0})
    shares = DeviceShares(source="fitted", kappa=kappa, gamma=gamma)
    use = DeviceUse(share, 2.0 * (1.0 - bound), 2.0 * bound, 2.0 * bound, shares)
    pair = SharedPairTime((subject, subject), (share, share), (1.0, 1.0))
    one_other = slowdown(use, [use]) if share == 0.5 else None
    assert model.seconds(subject, share) == pytest.approx(use.share_seconds)
    if one_other:
        assert model.beside(pair, gamma)[0] == pytest.approx(2.0 * one_other)


def test_a_pair_is_judged_without_those_of_its_own_subjects():
    model = SharesModel(1.5, {COPY: 1.0, "m/vision": 0.5, "m/llm": 0.2}, WHOLE)
    alone, pairs = times(model, 1.0)
    wrong = pairs[0]._replace(seconds=tuple(2.0 * each for each in pairs[0].seconds))  # copy beside copy
    found = fit_shares(alone, [wrong, *pairs[1:]], [COPY], "cpu")
    assert found.holdout_error >= pair_error(model, wrong, 1.0) * 0.9 > 0.4


def test_threads_have_parts_of_their_own_and_leave_the_process_as_it_was():
    if device_units(CPU) < 2:
        pytest.skip("one core has no parts")
    before, threads, seen = os.sched_getaffinity(0), torch.get_num_threads(), {}

    def maker(name):
        def call():
            seen[name] = os.sched_getaffinity(0)

        return lambda: call

    half = 0.5 if device_units(CPU) % 2 == 0 else 1 / device_units(CPU)
    seconds_on_parts([maker("a"), maker("b")], (half, half), CPU, 0.001)
    assert seen["a"] and seen["b"] and not seen["a"] & seen["b"]
    assert os.sched_getaffinity(0) == before and torch.get_num_threads() == threads


def test_a_call_that_fails_ends_the_other_thread():
    if device_units(CPU) < 2:
        pytest.skip("one core has no parts")

    def wrong():
        raise ArithmeticError("in a thread")

    with pytest.raises(ArithmeticError):
        seconds_on_parts([lambda: wrong, lambda: int], (0.5, 0.5), CPU, 0.001)


@pytest.mark.parametrize(("share", "said"), [(0.7, "no whole number"), (0.001, "below one core")])
def test_shares_that_a_device_cannot_give_are_refused(share, said):
    if device_units(CPU) < 2:
        pytest.skip("one core has no parts")
    with pytest.raises(InputError, match=said) as caught:
        require_shares([share, 1.0], CPU)
    assert caught.value.where == "--shares" and caught.value.fix


def test_a_device_without_parts_is_refused(monkeypatch):
    monkeypatch.setattr("planner.profiling.device_parts.device_units", lambda device: 1)
    with pytest.raises(InputError, match="no parts"):
        require_shares([1.0], CPU)


@pytest.mark.gpu
def test_green_contexts_divide_a_gpu():
    device = torch.device("cuda", 0)
    require_shares((0.5, 1.0), device)
    with part(0, (0.5,), device):
        assert torch.ones(4, device=device).sum().item() == 4.0
