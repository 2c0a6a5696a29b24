"""Dispatch of tokens to experts on four gloo ranks and back, by all-to-all and by all-gather; the bytes sent are as
priced.
"""

import pytest
import torch
import torch.distributed as dist

from planner.launch.communication.communication_meter import CommunicationMeter
from planner.launch.communication.expert_dispatch import (
    AllGatherDispatcher,
    AllToAllDispatcher,
    StageDispatcher,
    token_dispatcher,
)
from planner.launch.communication.process_groups import ProcessGroups
from planner.launch.communication.ragged_collectives import RaggedGroup
from planner.launch.processes import launch
from planner.launch.worker import joined_world
from planner.models.sharding import EqualShard
from planner.models.token_dispatch import LOCAL_DISPATCHER, ExpertChoice
from planner.plan.mesh.rank_mesh import expert_coordinates
from planner.plan.plan_file import Layout
from planner.specs.base import Ranks, with_fields

pytestmark = pytest.mark.slow

EXPERTS, TOPK, WIDTH, RANKS = 8, 3, 6, 4
ALL = (0, 1, 2, 3)
MESHES = {
    "ep 4": {"ep": 4},
    "ep 2": {"ep": 2},
    "ep 2, etp 2": {"ep": 2, "etp": 2},
    "etp 2, ep 2": {"etp": 2, "ep": 2},
    "etp 4": {"etp": 4},
    "alone": {},
}
TOKENS = ((9, 4, 0, 7), (0, 0, 0, 1), (0, 0, 0, 0))  # of each rank


def layout_of(experts, dispatch="all_to_all"):
    return Layout(ranks=Ranks(ALL), dp=4, **experts, dispatch=dispatch)


def drawn(*shape, seed=0):
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def chosen(tokens, dropless, seed=0):
    """Choices of experts with uneven popularity: the first ones have most tokens, the last none."""
    liked = drawn(tokens, EXPERTS, seed=seed) - torch.arange(EXPERTS)
    liked[:, -1] = -99.0
    experts, weights = liked.argsort(-1, descending=True)[:, :TOPK], drawn(tokens, TOPK, seed=seed + 1)
    if not dropless:
        experts = experts.where(drawn(tokens, TOPK, seed=seed + 2) > 0, EXPERTS)
    return ExpertChoice(experts, weights, EXPERTS, dropless)


def experts_of(factors, part=None, etp=None):
    """Each expert multiplies by its factors `(experts, width)`; sharded over etp, each rank does a part."""
    part, etp = part or EqualShard(), etp or EqualShard()
    share = (etp.index + 1) / sum(range(1, etp.count + 1))

    def compute(rows, sizes):
        assert len(sizes) == EXPERTS // part.count
        assert sizes.sum() == len(rows)
        return rows * factors[slice(*part.span(EXPERTS))].repeat_interleave(sizes, 0) * share

    return compute


def run_dispatch(run, x, choice, factors):
    """Outputs, and the gradients of x, the weights and the factors."""
    x, weights, factors = (each.clone().requires_grad_() for each in (x, choice.weights, factors))
    y = run(x, ExpertChoice(choice.experts, weights, EXPERTS, choice.dropless), factors)
    (y * drawn(len(x), WIDTH, seed=9)).sum().backward()
    return [y.detach(), x.grad, weights.grad, factors.grad]


def dense(x, choice, factors):
    """Every expert applied to every token."""
    table = torch.zeros(len(x), EXPERTS + 1, dtype=x.dtype).scatter(1, choice.experts, choice.weights)[:, :EXPERTS]
    return torch.einsum("se,ef,sf->sf", table, factors, x)


def place(layout):
    at = expert_coordinates(layout, dist.get_rank())
    return (EqualShard(at[dim], getattr(layout, dim)) for dim in ("ep", "etp"))


def check_round_trip(groups, layout, tokens, dropless):
    """This rank's tokens have the outputs and gradients that one process computes."""
    rank = dist.get_rank()
    x, factors = drawn(tokens[rank], WIDTH, seed=rank), drawn(EXPERTS, WIDTH, seed=77)
    choice, (ep, etp) = chosen(tokens[rank], dropless, seed=10 * rank), place(layout)
    dispatch = token_dispatcher(layout, groups, CommunicationMeter())
    found = run_dispatch(lambda x, c, f: dispatch.dispatch(x, c, experts_of(f, ep, etp)), x, choice, factors)
    local = run_dispatch(lambda x, c, f: LOCAL_DISPATCHER.dispatch(x, c, experts_of(f)), x, choice, factors)
    want = run_dispatch(dense, x, choice, factors)
    for total in (found[3], local[3], want[3]):  # an expert's gradient is over the tokens of all ranks
        dist.all_reduce(total)
    for each in (found, local):
        for one, other in zip(each, want, strict=True):
            torch.testing.assert_close(one, other, rtol=1e-12, atol=1e-12)


def check_all_meshes(groups):
    for experts in MESHES.values():
        for dispatch in ("all_to_all", "all_gather"):
            for tokens in TOKENS:
                for dropless in (True, False):
                    check_round_trip(groups, layout_of(experts, dispatch), tokens, dropless)


def check_kinds(groups):
    """The dispatcher that a layout selects."""
    kinds = [
        (layout_of({"ep": 4}), AllToAllDispatcher),
        (layout_of({"ep": 2, "etp": 2}, "all_gather"), AllGatherDispatcher),
        (layout_of({"ep": 1}, "all_gather"), StageDispatcher),
    ]
    for layout, kind in kinds:
        assert type(token_dispatcher(layout, groups, CommunicationMeter())) is kind


def check_rows_are_sorted(groups):
    """An expert gets its tokens by source, and those of one source in their order, whichever ranks they come from."""
    layout, rank = layout_of({"ep": 2, "etp": 2}), dist.get_rank()
    numbers = torch.arange(5.0).unsqueeze(1) + 100 * rank
    seen = []

    def compute(rows, sizes):
        seen.extend(part.flatten().tolist() for part in torch.split(rows, sizes.tolist()))
        return rows

    choice = ExpertChoice(torch.tensor([[0, 5], [5, 1], [0, 1], [4, 0], [1, 0]]), torch.ones(5, 2), EXPERTS)
    token_dispatcher(layout, groups, CommunicationMeter()).dispatch(numbers, choice, compute)
    of_expert = {0: (0, 2, 3, 4), 1: (1, 2, 4), 4: (3,), 5: (0, 1)}
    first = 4 * expert_coordinates(layout, rank)["ep"]
    by_etp = ((0, 2), (1, 3))  # the ranks along ep, for each index along etp
    for expert in range(first, first + 4):
        sources = [source for ranks in by_etp for source in ranks]
        assert seen[expert - first] == [token + 100.0 * r for r in sources for token in of_expert.get(expert, ())]


def check_total(groups):
    counts = torch.arange(5) * (dist.get_rank() + 1)
    for experts in MESHES.values():
        assert torch.equal(
            token_dispatcher(layout_of(experts), groups, CommunicationMeter()).all_reduce_counts(counts),
            10 * torch.arange(5),
        )
    staged = with_fields(layout_of({}), pp=2, dp=2)
    mine = (1 + 2, 3 + 4)[dist.get_rank() // 2]  # of the stage
    assert torch.equal(
        token_dispatcher(staged, groups, CommunicationMeter()).all_reduce_counts(counts), mine * torch.arange(5)
    )


def sent_bytes(groups, layout, tokens, topk, width):
    """Bytes that this rank sends in forward and backward when all ranks choose every expert equally often."""
    meter = CommunicationMeter()
    experts = (torch.arange(tokens)[:, None] + torch.arange(topk)) % EXPERTS
    x = torch.zeros(tokens, width, requires_grad=True)
    dispatch = token_dispatcher(layout, groups, meter)
    y = dispatch.dispatch(x, ExpertChoice(experts, torch.ones(tokens, topk), EXPERTS), lambda rows, sizes: rows * 1)
    forward = meter.take_measured().bytes
    y.sum().backward()
    return forward, meter.take_measured().bytes


def check_bytes(groups):
    """Of b·s·h numbers in all, over n ranks, each sends 2·(k/n)·bsh·(n-1)/n by all-to-all, and as much as tensor
    parallelism, 2·bsh·(n-1)/n, by all-gather, whatever k (MegaScale-MoE, arXiv 2505.11432).
    """
    n, tokens, width = RANKS, 64, 1024
    bsh = 4 * n * tokens * width  # bytes
    for topk in (1, 2, 6):
        by_copies, by_all = 2 * topk / n * bsh * (n - 1) / n, 2 * bsh * (n - 1) / n
        for dispatch, want in (("all_to_all", by_copies), ("all_gather", by_all)):
            for found in sent_bytes(groups, layout_of({"ep": 4}, dispatch), tokens, topk, width):
                assert found == pytest.approx(want, rel=0.02), (dispatch, topk)
    # Along etp all received tokens are gathered, and their outputs returned: copies of bsh / n tokens.
    crossing = 2 * 2 / n * bsh * (1 / 2 + 1)
    for found in sent_bytes(groups, layout_of({"ep": 2, "etp": 2}), tokens, 2, width):
        assert found == pytest.approx(crossing, rel=0.02)


def check_ragged(groups):
    """An all-gather and a reduce-scatter with uneven rows are transposes of each other."""
    rank, ragged = dist.get_rank(), RaggedGroup(groups[ALL], CommunicationMeter(), "ep")
    sizes = (3, 0, 2, 5)
    x, y = drawn(sizes[rank], WIDTH, seed=rank), drawn(10, WIDTH, seed=20 + rank)
    gathered, added = ragged.all_gather_no_grad(x, sizes), ragged.reduce_scatter_no_grad(y, sizes)
    want = torch.cat([drawn(size, WIDTH, seed=r) for r, size in enumerate(sizes)])
    assert torch.equal(gathered, want)
    of_rank = slice(sum(sizes[:rank]), sum(sizes[: rank + 1]))
    torch.testing.assert_close(added, sum(drawn(10, WIDTH, seed=20 + r) for r in range(RANKS))[of_rank])
    inner = torch.stack([(gathered * y).sum(), (x * added).sum()])
    dist.all_reduce(inner)
    torch.testing.assert_close(inner[0], inner[1], rtol=1e-12, atol=0)


CHECKS = {
    check.__name__: check
    for check in (check_all_meshes, check_kinds, check_rows_are_sorted, check_total, check_bytes, check_ragged)
}


def body(worker):
    failures = {}
    with joined_world(worker, timeout_s=60):
        groups = ProcessGroups([(0, 1), (2, 3), (0, 2), (1, 3)])
        for name, check in CHECKS.items():
            try:
                check(groups)
            except AssertionError as error:
                failures[name] = str(error)
    return failures


@pytest.fixture(scope="module")
def failures():
    return launch(body, RANKS)


@pytest.mark.parametrize("name", CHECKS)
def test_on_every_rank(failures, name):
    assert [of_rank.get(name) for of_rank in failures] == [None] * RANKS
