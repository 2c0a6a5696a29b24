"""Groups that do alike: what sets them apart, and that nothing sets apart those that are alike."""

from hypothesis import given
from hypothesis import strategies as st

from planner.plan.alike import alike_groups
from planner.plan.expand import expand
from planner.plan.model import Group, Layout, Piece, Plan, Step
from planner.specs.base import Ranks, changed
from planner.specs.cluster import Level, RankKind
from tests.plans import decoder, encoder_plan, plan_of, sharded_plan, stages_of, uses

SIZES = (16, 16, 32)


def replicas(rows: list[list[int]], pp: int = 1, levels: tuple[int, ...] = (), split: tuple[dict, ...] = ()) -> Plan:
    """Replicas of two ranks on each stage; `rows`: of each micro-batch, what each replica's item is among SIZES."""
    dp = len(rows[0])
    size = 2 * dp * pp
    sizes = {row * dp + replica: SIZES[which] for row, each in enumerate(rows) for replica, which in enumerate(each)}
    facts = uses(size, {"llm": decoder(2 * pp)}, {"llm": sizes})
    if levels:
        each = (*(Level(name=f"of{n}", ranks=n, gb_per_s=10.0, latency_us=1.0) for n in levels), *facts.cluster.levels)
        facts = changed(facts, cluster=changed(facts.cluster, levels=each))
    groups = {
        f"r{r}": Group(
            ranks=Ranks(stage * 2 * dp + 2 * r + i for stage in range(pp) for i in (0, 1)),
            split=split[r] if split else {"ulysses": 2},
        )
        for r in range(dp)
    }
    mesh, stages = ({"pp": pp, "dp": 2 * dp}, stages_of(2 * pp, pp)) if pp > 1 else ({"dp": 2 * dp}, ())
    cells = tuple({f"r{r}": (row * dp + r,) for r in range(dp)} for row in range(len(rows)))
    layout = Layout(ranks=Ranks(range(size)), mesh=mesh, stages=stages)
    return plan_of(size, facts, {"llm": layout}, groups, Step(sync="step", micro_batches=cells))


def test_replicas_with_items_of_the_same_sizes_are_alike():
    found = alike_groups(replicas([[0, 1, 2], [2, 2, 0]], pp=2), 0)
    assert found.groups == {"r1": "r0"}
    assert found.ranks == {2: 0, 3: 1, 8: 6, 9: 7}


def test_the_micro_batch_of_an_item_matters():
    assert not alike_groups(replicas([[0, 2], [2, 0]]), 0).groups


def test_a_node_boundary_inside_sets_a_group_apart():
    """Nodes of three ranks: the second group of two lies on both."""
    assert alike_groups(replicas([[0, 0, 0]], levels=(3,)), 0).groups == {"r2": "r0"}


def test_the_split_matters():
    assert not alike_groups(replicas([[0, 0]], split=({"ulysses": 2}, {"ring": 2})), 0).groups


def test_the_kind_of_device_matters():
    plan = replicas([[0, 0, 0]])
    kinds = (RankKind(kind="toy", count=2, per_node=2), RankKind(kind="other", count=4, per_node=2))
    plan = changed(plan, uses=changed(plan.uses, cluster=changed(plan.uses.cluster, ranks=kinds)))
    assert alike_groups(plan, 0).groups == {"r2": "r1"}


def test_offload_matters():
    plan = replicas([[0, 0, 0]])
    row = {"r0": (0,), "r1": (Piece(item=1, offload=0.5),), "r2": (2,)}
    plan = changed(plan, steps=(changed(plan.steps[0], micro_batches=(row,)),))
    assert alike_groups(plan, 0).groups == {"r2": "r0"}


def test_ranks_in_several_groups_are_like_no_others():
    plan = sharded_plan(4, [[(0, 2), (2, 2)], [(0, 4)]])
    assert not alike_groups(plan, 0).groups


def test_modules_that_feed_each_other_have_nothing_alike():
    assert not alike_groups(encoder_plan(), 0).groups


@given(st.lists(st.lists(st.integers(0, 2), min_size=3, max_size=3), min_size=1, max_size=4), st.integers(1, 3))
def test_what_is_left_is_what_the_first_of_each_kind_does(rows, pp):
    """The tasks of all groups without those of the others, in the same order."""
    plan = replicas(rows, pp)
    found = alike_groups(plan, 0)
    kept = [task for task in expand(plan) if task.group not in found.groups]
    left = expand(plan, 0, found.ranks)
    assert sorted(task.id for task in left) == sorted(task.id for task in kept)
    for rank in range(plan.size):
        if rank not in found.ranks:
            mine = [[task.id for task in tasks if rank in task.ranks] for tasks in (left, kept)]
            assert mine[0] == mine[1]
