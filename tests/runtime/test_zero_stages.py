"""However states are sharded and gradients reduced: the numbers of one process, and no byte more than it takes."""

from collections import defaultdict
from functools import partial

import pytest
import torch
import torch.distributed as dist

from planner.launch.processes import launch
from planner.launch.worker import joined_world
from planner.runtime.state.replicas import all_reduce_in_bf16, reduce_scatter_in_bf16
from planner.specs.base import with_fields
from planner.specs.parameters import layer_parameters, parameter_counts
from tests.examples import soaked
from tests.runtime import training_worlds
from tests.runtime.training_worlds import asked_for, run_all

pytestmark = pytest.mark.slow

DECODER = with_fields(training_worlds.DECODER, layers=2)
spread = partial(training_worlds.spread, spec=DECODER)
ALONE = [[(0,), (1,), (2,), (3,)]] * 2
PAIRS = [[(0, 1), (2, 3)], [(2, 3)]]
ALL_RANKS = [[(0, 1, 2, 3)]] * 2
HYBRID = {"replica": 2, "dp": 2}
STAGED = [[tuple(range(8))], [(0, 1, 4, 5), (2, 3, 6, 7)]]
FLOAT64, FLOAT32, BF16 = 8, 4, 2


def flat(zero, **more):
    return spread(4, dp=4, zero=zero, rows=ALONE, **more)


def shared(zero, rows=PAIRS, **said):
    """Sequences over two ranks, that share their states with the other two, or have them again."""
    return spread(4, cp=2, zero=zero, rows=rows, **said)


EXACT = {
    **{f"zero {zero}": flat(zero) for zero in range(4)},
    **{f"hybrid, zero {zero}": spread(4, **HYBRID, zero=zero, rows=ALONE) for zero in (1, 2, 3)},
    "replicas first in a group": spread(4, **HYBRID, zero=3, rows=[[(0, 2), (1, 3)], [(0, 1, 2, 3)]]),
    "replicas alone": spread(4, replica=4, zero=1, rows=ALONE),
    "dp slower": spread(4, dp=2, replica=2, rank_order="replica-dp", zero=2, rows=ALONE),
    "staged replicas": spread(4, pp=2, replica=2, zero=2, rows=[[(0, 2), (1, 3)]] * 3),
    **{f"cp, zero {zero}": shared(zero, dp=2) for zero in range(4)},
    **{f"cp by heads, zero {zero}": shared(zero, ulysses=2, dp=2) for zero in (0, 2, 3)},
    **{f"cp and tp, zero {zero}": shared(zero, ALL_RANKS, tp=2) for zero in range(4)},
    **{f"cp and replicas, zero {zero}": shared(zero, replica=2) for zero in (1, 2, 3)},
    "cp slower": shared(3, [[(0, 2), (1, 3)], [(0, 2)]], dp=2, rank_order="dp-cp"),
    "cp on stages": shared(1, ALL_RANKS, pp=2, ulysses=2),
    "cp, split otherwise": shared(1, dp=2, splits={(2, 3): {"ulysses": 2}}),
}
ROUNDED = {
    "zero 0": flat(0, dtype="float32", gradients="bf16"),
    "zero 3": flat(3, dtype="float32", gradients="bf16"),
    "hybrid": spread(4, **HYBRID, zero=1, rows=ALONE, dtype="float32", gradients="bf16"),
    "computed in bf16": flat(1, dtype="bf16", gradients="bf16"),
}
EIGHT = {f"staged, hybrid, zero {zero}": spread(8, pp=2, **HYBRID, zero=zero, rows=STAGED) for zero in (1, 3)}


OFTEN = (  # those whose bytes are counted; the others in the soak, and `test_layout_pairs.py` has them with stages
    "zero 2", "zero 3", "hybrid, zero 1", "hybrid, zero 3", "replicas first in a group", "cp, zero 0",
)  # fmt: skip


def of_often(cases):
    """Of cases whose first word is a plan, those of the others in the soak."""
    return soaked(cases, [case for case in cases if case[0] in OFTEN])


@pytest.fixture(scope="module")
def results(request):
    asked = asked_for(request, "name")
    rounded = {("rounded", name): plan for name, plan in ROUNDED.items()}
    found = run_all(4, {name: EXACT[name] for name in EXACT if name in asked} | rounded)
    eight = {name: EIGHT[name] for name in EIGHT if name in asked}
    return found | run_all(8, eight)


@pytest.mark.parametrize("name", soaked([*EXACT, *EIGHT], OFTEN))
def test_loss_and_gradients_are_those_of_one_process(results, name):
    verified = results[name].verify
    assert (verified.loss_rel_err <= 1e-12, verified.grad_rel_err <= 1e-12) == (True, True), verified


@pytest.mark.parametrize("name", ROUNDED)
@pytest.mark.every(2)
def test_rounded_gradients_are_close_to_those_of_one_process(results, name):
    verified = results["rounded", name].verify
    assert 1e-4 < verified.grad_rel_err <= 5e-2  # they were rounded


def sent(result):
    """Of each task, the bytes that rank 0 sent in the last step."""
    found = defaultdict(int)
    for record in result.steps[-1].measured:
        if record.rank == 0:
            found[record.id.split("/")[1], record.id.split("/")[2]] += record.sent_bytes
    return found


ALL, LAYERS = parameter_counts(DECODER).total, DECODER.layers * layer_parameters(DECODER)


@pytest.mark.parametrize(
    ("name", "gathered", "reduced"),
    of_often(
        [
            ("zero 0", 0, 2 * 3 / 4 * ALL),
            ("zero 1", 3 / 4 * ALL, 3 / 4 * ALL),
            ("zero 2", 3 / 4 * ALL, 3 / 4 * ALL),
            ("hybrid, zero 1", 1 / 2 * ALL, 1 / 2 * ALL + 2 * 1 / 2 * ALL / 2),
            ("replicas alone", 0, 2 * 3 / 4 * ALL),
            ("cp, zero 0", 0, 2 * 3 / 4 * ALL),
            ("cp, zero 1", 3 / 4 * ALL, 3 / 4 * ALL),
            ("cp and replicas, zero 1", 1 / 2 * ALL, 1 / 2 * ALL + 2 * 1 / 2 * ALL / 2),
        ]
    ),
)
def test_bytes_of_states_that_are_reduced_once_a_step(results, name, gathered, reduced):
    found = sent(results[name])
    assert found["gather", "step"] == pytest.approx(gathered * FLOAT64, rel=0.02)
    assert found["sync", "step"] == pytest.approx(reduced * FLOAT64, rel=0.02)


@pytest.mark.parametrize(
    ("name", "share", "reduced"),
    of_often(
        [
            ("zero 3", 3 / 4, 3 / 4 * ALL),
            ("hybrid, zero 3", 1 / 2, (1 / 2 + 2 / 2 / 2) * ALL),
            ("cp, zero 3", 3 / 4, 3 / 4 * ALL),
            ("cp and replicas, zero 3", 1 / 2, (1 / 2 + 2 / 2 / 2) * ALL),
        ]
    ),
)
def test_bytes_of_states_that_are_gathered_for_every_pass(results, name, share, reduced):
    """Layers twice; what is outside of them stays gathered from forward to backward."""
    found = sent(results[name])
    for row in ("0", "1"):
        assert found["gather", row] == pytest.approx(share * (ALL + LAYERS) * FLOAT64, rel=0.02)
        assert found["sync", row] == pytest.approx(reduced * FLOAT64, rel=0.02)


@pytest.mark.parametrize(
    ("name", "reduced"),
    [
        ("zero 0", 3 / 4 * ALL * (BF16 + FLOAT32)),
        ("hybrid", 1 / 2 * ALL * BF16 + 2 * 1 / 2 * ALL / 2 * FLOAT32),
        ("computed in bf16", 3 / 4 * ALL * BF16),
    ],
)
def test_rounded_gradients_take_half_the_bytes(results, name, reduced):
    assert sent(results["rounded", name])["sync", "step"] == pytest.approx(reduced, rel=0.02)
    assert sent(results["rounded", "zero 3"])["sync", "0"] == pytest.approx(3 / 4 * ALL * BF16, rel=0.02)


def summed(worker, numbers):
    """What the ranks' rows of numbers come to, on this rank: its part of them, and all."""
    with joined_world(worker, timeout_s=60):
        own = torch.tensor(numbers[worker.rank])
        part = own.new_empty(len(own) // len(numbers))
        reduce_scatter_in_bf16(part, own, dist.group.WORLD)
        all_reduce_in_bf16(own[:-3], dist.group.WORLD)  # no multiple of the ranks
        return part.tolist(), own[:-3].tolist()  # tensors would travel as handles of processes that have ended


def test_numbers_that_were_rounded_once_are_closer_than_those_of_a_ring():
    torch.manual_seed(0)
    numbers = torch.randn(4, 4096)
    found = launch(summed, 4, numbers.tolist())
    want = numbers.double().sum(0)
    ring = numbers[0].bfloat16()
    for row in numbers[1:]:
        ring = ring + row.bfloat16()
    once = numbers.bfloat16().double().sum(0)
    parts = torch.cat([torch.tensor(part) for part, _ in found])
    torch.testing.assert_close(parts.double(), once, rtol=1e-6, atol=1e-6)
    for _, whole in found:
        torch.testing.assert_close(torch.tensor(whole), parts[:-3], rtol=1e-6, atol=1e-6)
    assert (parts - want).norm() < 0.7 * (ring - want).norm()
