"""Clusters of several device kinds: each rank is priced by its own, a group by its slowest, and pools are of
one kind.
"""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner import files
from planner.costs.packing_problem import RankPool, packing_problem, rank_pools
from planner.costs.pricing import Pricing, pricing_of
from planner.errors import Infeasible, InputError
from planner.plan.plan_file import Plan
from planner.plan.task import Task
from planner.plan.tasks.expand import expand
from planner.scoring.score import score
from planner.specs.base import Layers, Ranks, with_fields
from planner.specs.hardware.cluster import Cluster, Level, RankKind
from planner.specs.hardware.profile import CollectiveCosts, CollectivePoint, Device, ModuleCosts, PassCosts, PassFit

GOLDEN = Path(__file__).parents[1] / "golden/sequence_groups"
DEMO, TWO = (files.read(GOLDEN / name / "plan.yaml", Plan) for name in ("demo", "two-kinds"))
FAST, SLOW = "h100-80gb", "a100-40gb"


def renamed(plan: Plan, kinds: tuple[str, str], times: float = 1.0) -> Plan:
    """The same plan with the second half of its ranks of a kind of their own, that many times as slow."""
    uses, half = plan.uses, plan.size // 2
    ranks = tuple(RankKind(kind=kind, count=half, per_node=half) for kind in kinds)
    (device,), (rates,) = uses.devices.values(), uses.prices.rates.values()
    return with_fields(
        plan,
        ranks=ranks,
        uses=with_fields(
            uses,
            cluster=with_fields(uses.cluster, ranks=ranks),
            devices=dict(zip(kinds, (device, slower(device, times)), strict=True)),
            prices=with_fields(uses.prices, rates=dict.fromkeys(kinds, rates)),
        ),
    )


def slower(device: Device, times: float) -> Device:
    tflops = {dtype: peak / times for dtype, peak in device.tflops.items()}
    return with_fields(device, tflops=tflops, memory_gb_per_s=device.memory_gb_per_s / times)


def test_two_kinds_that_are_the_same_cost_what_one_does():
    plain, split = score(DEMO), score(renamed(DEMO, ("a", "b")))
    assert split.step_seconds == plain.step_seconds
    assert split.memory == plain.memory


@given(st.floats(1, 10), st.data())
def test_a_task_takes_what_it_would_on_its_slowest_rank(times, data):
    """Whatever ranks it has: of either kind, or of both."""
    plain, both = DEMO, renamed(DEMO, ("a", "b"), times)
    all_slow = with_fields(both, uses=with_fields(both.uses, devices=dict.fromkeys(("a", "b"), both.uses.devices["b"])))
    task = data.draw(st.sampled_from(expand(plain)))
    ours, fast, slow = (pricing_of(plan).price(task).value for plan in (both, plain, all_slow))
    assert fast <= slow
    assert ours == (slow if task.ranks[-1] >= DEMO.size // 2 else fast)


@pytest.mark.parametrize("measured", ["a", "b"])
def test_a_task_on_kinds_with_fits_and_with_rates(measured):
    """A module that was measured on one kind only is priced by the other's rates there, and waits for the slower."""
    both = renamed(DEMO, ("a", "b"))
    for seconds in (1e-9, 10.0):
        fit = PassCosts(forward=PassFit(ms=1e3 * seconds), backward=PassFit(ms=1e3 * seconds))
        costs = ModuleCosts(source="measured", spread=0.1, layer=fit)
        some = with_fields(both.uses.prices, modules={f"llm@{measured}": costs})
        found = pricing_of(with_fields(both, uses=with_fields(both.uses, prices=some)))
        layers, everyone = Layers(range(DEMO.uses.models["llm"].layers)), Ranks(range(DEMO.size))
        task = Task("llm", layers, "F", 0, "g", everyone, (1024,), (0,), DEMO.size)
        alone, other = (
            found.kind_pass_cost(found.layer_pass(task), kind, task.sizes) for kind in sorted("ab", key=measured.find)
        )
        assert found.price(task).value == max(alone.value, other.value)
        assert (found.price(task) == alone) == (seconds < 1)


def test_collectives_over_two_kinds_use_the_slower_links():
    def table(gb_per_s: float) -> CollectiveCosts:
        return CollectiveCosts(source="measured", spread=0.0, points=(CollectivePoint(ranks=8, gb_per_s=gb_per_s),))

    tables = {f"p2p@{FAST}": table(4.0), f"p2p@{SLOW}": table(2.0)}
    prices = with_fields(TWO.uses.prices, collectives=tables)
    priced = Pricing(TWO.uses.models, TWO.layouts, TWO.uses.cluster, prices, TWO.uses.devices)
    hidden = TWO.uses.models["llm"].hidden * 2
    waited = TWO.uses.prices.timing.pp_exposed * (1 + float(priced.machine(FAST).jitter(8)))

    def seconds(one: int, other: int) -> float:
        task = Task("llm", Layers((0,)), "send", 0, "g", Ranks((one,)), (4096,), peers=Ranks((other,)), of="F")
        return priced.price(task).value / (waited * 4096 * hidden)

    found = [seconds(*pair) * 1e9 for pair in ((0, 1), (0, 4), (4, 0), (4, 5))]
    assert found == pytest.approx([1 / 4, 1 / 2, 1 / 2, 1 / 2])


def test_missing_prices_of_a_kind_are_named():
    prices = with_fields(TWO.uses.prices, rates={FAST: TWO.uses.prices.rates[FAST]})
    with pytest.raises(InputError, match=f"no prices for `llm` on {SLOW}") as caught:
        pricing_of(with_fields(TWO, uses=with_fields(TWO.uses, prices=prices)))
    assert caught.value.where == "uses.prices.modules"


# ---------------------------------------------------------------------------------------------------- pools


@st.composite
def clusters(draw):
    kinds = st.tuples(st.sampled_from("ab"), st.integers(1, 9), st.integers(1, 4))
    entries = draw(st.lists(kinds, min_size=1, max_size=5))
    ranks = tuple(RankKind(kind=kind, count=count, per_node=node) for kind, count, node in entries)
    level = Level(name="all", ranks=64, gb_per_s=1, latency_us=1)
    return Cluster(format=Cluster.FORMAT, name="any", source="made up", ranks=ranks, levels=(level,))


def nodes(first: int, count: int, per_node: int) -> list[tuple[int, ...]]:
    ends = range(first, first + count, per_node)
    return [tuple(range(start, min(start + per_node, first + count))) for start in ends]


@given(clusters())
def test_pools_have_every_rank_once_on_the_nodes_of_the_cluster(cluster):
    found = rank_pools(cluster, Ranks(range(cluster.size)))
    assert [rank for pool in found for rank in range(pool.first, pool.first + pool.ranks)] == [*range(cluster.size)]
    first, expected = 0, []
    for entry in cluster.ranks:
        expected += nodes(first, entry.count, entry.per_node)
        first += entry.count
    assert [node for pool in found for node in nodes(pool.first, pool.ranks, pool.per_node)] == expected


@given(clusters(), st.data())
def test_pools_of_some_ranks_are_what_these_have_of_all_pools(cluster, data):
    first, last = sorted(data.draw(st.tuples(*[st.integers(0, cluster.size - 1)] * 2)))
    found = rank_pools(cluster, Ranks(range(first, last + 1)))
    assert [rank for pool in found for rank in range(pool.first, pool.first + pool.ranks)] == [*range(first, last + 1)]


def test_neighbours_of_one_kind_are_one_pool_when_their_nodes_are_alike():
    def of(*entries):
        ranks = tuple(RankKind(kind=kind, count=count, per_node=node) for kind, count, node in entries)
        cluster = with_fields(
            TWO.uses.cluster, ranks=ranks, levels=(with_fields(TWO.uses.cluster.levels[1], ranks=64),)
        )
        return rank_pools(cluster, Ranks(range(cluster.size)))

    assert of(("a", 8, 4), ("a", 4, 4), ("b", 4, 4)) == (RankPool(0, 12, 4), RankPool(12, 4, 4))
    assert len(of(("a", 8, 4), ("a", 4, 2))) == len(of(("a", 6, 4), ("a", 4, 4))) == 2
    assert len(of(("a", 4, 4), ("b", 4, 4), ("a", 4, 4))) == 3


# ------------------------------------------------------------------------------------------- shapes and their caps


def problem_of(plan: Plan, sizes: dict[int, int] | None = None, **changes):
    used = with_fields(plan.uses, **changes)
    priced = Pricing(used.models, plan.layouts, used.cluster, used.prices, used.devices)
    return packing_problem(priced, "llm", used, sizes or {0: 128})


def test_each_pool_has_its_own_shapes_lines_and_caps():
    problem = problem_of(TWO)
    assert problem.pools == (RankPool(0, 4, 4), RankPool(4, 4, 4))
    assert [(shape.degree, shape.pool) for shape in problem.shapes] == [(d, p) for d in (1, 2, 4) for p in (0, 1)]
    for fast, slow in zip(problem.shapes[::2], problem.shapes[1::2], strict=True):
        assert fast.cap > slow.cap > 0 and fast.line.item_seconds(1024) < slow.line.item_seconds(1024)
    limited = problem_of(TWO, limits=with_fields(TWO.uses.limits, tokens_per_rank=700))
    assert {shape.cap for shape in limited.shapes} == {700}


def test_what_a_kind_cannot_hold_names_the_kind():
    small = {**TWO.uses.devices, SLOW: with_fields(TWO.uses.devices[SLOW], memory_gib=16.0)}
    with pytest.raises(Infeasible, match=f"one of {SLOW} may use 13.6 GiB") as caught:
        problem_of(TWO, devices=small)
    assert "ranks" in caught.value.fix
