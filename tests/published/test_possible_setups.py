"""Where a record may describe several setups, its seconds are their geometric mean and its interval is wider."""

from dataclasses import replace
from math import prod

import numpy as np
import pytest

from planner.published import each_setup, predict_cases, setup_shares
from planner.published.possible_setups import mean_over_setups
from planner.published.read_published import read_case
from tests.published.made_records import record

MIXTURE = {"model": "Qwen3-30B-A3B", "family": "qwen3", "framework": "Megatron-LM", "ep": "8", "etp": "", "dp": "8"}


@pytest.fixture(scope="module")
def several():
    """Megatron's experts, of which no record says whether tp shards them; with micro-batches of any size."""
    case = read_case(record(MIXTURE, mbs="", gbs="64", n_gpus="64"))
    assert {"etp", "mbs"} <= {*case.assumed}
    return case


def test_experts_are_sharded_over_tp_or_not_and_micro_batches_are_of_any_size(several):
    setups = (several.setup, *several.other_setups)
    assert {1, 4} <= {int(each.etp) for each in setups}
    assert len({int(each.micro_batch) for each in setups}) > 1
    assert all(each.micro_batches % 1 == 0 and each.micro_batches >= each.pp for each in setups)


def test_what_a_record_says_has_no_other():
    assert read_case(record(MIXTURE, etp="1", n_gpus="64", gbs="64")).other_setups == ()
    assert read_case(record()).other_setups == ()


def test_seconds_are_the_geometric_mean_and_intervals_wider(several):
    every, owners = each_setup([several])
    alone = predict_cases(every)
    (joint,) = predict_cases([several])
    assert joint.seconds == pytest.approx(prod(each.seconds for each in alone) ** (1 / len(alone)))
    assert joint.spread > max(each.spread for each in alone)
    assert len(every) == len(owners) == 1 / setup_shares([several])[0]


def test_a_single_setup_has_its_own_logarithm_and_no_deviation():
    mean, deviation = mean_over_setups(np.array([1.0, 3.0, 5.0]), np.array([0, 1, 1]))
    assert mean.tolist() == [1.0, 4.0] and deviation.tolist() == [0.0, 1.0]
    assert each_setup([replace(read_case(record()), other_setups=())])[1].tolist() == [0]


def test_a_recipe_whose_bubble_would_be_implausible_interleaves():
    """Four stages and eight micro-batches idle 3/8 of the time in one chunk: a recipe of NeMo is not believed to."""
    pipeline = {"n_gpus": "16", "tp": "4", "pp": "4", "dp": "1", "gbs": "8", "vpp": ""}
    case = read_case(record(pipeline))
    setups = (case.setup, *case.other_setups)
    assert {int(each.vpp) for each in setups} == {2, 4, 8} and {each.schedule for each in setups} == {"interleaved"}
    (said,) = predict_cases([read_case(record(pipeline, vpp="1"))])
    (open_,) = predict_cases([case])
    assert open_.seconds < said.seconds and open_.spread > said.spread


@pytest.mark.parametrize("cells", [{"vpp": "1"}, {"framework": "Megatron-LM"}, {"gbs": "64"}, {"gbs": "6"}])
def test_what_is_said_plausible_or_impossible_does_not(cells):
    case = read_case(record({"n_gpus": "16", "tp": "4", "pp": "4", "dp": "1", "gbs": "8", "vpp": "", **cells}))
    assert case.setup.vpp == 1 and not case.other_setups
