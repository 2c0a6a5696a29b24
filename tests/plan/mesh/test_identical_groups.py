"""Groups that do alike: what sets them apart, and that nothing sets apart those that are alike."""

from hypothesis import given
from hypothesis import strategies as st

from planner.plan.mesh.identical_groups import identical_groups
from planner.plan.plan_file import OffloadedItem
from planner.plan.tasks.expand import expand
from planner.specs.base import with_fields
from planner.specs.hardware.cluster import RankKind
from tests.plans import encoder_plan, sharded_plan
from tests.replica_plans import replicas


def test_replicas_with_items_of_the_same_sizes_are_alike():
    found = identical_groups(replicas([[0, 1, 2], [2, 2, 0]], pp=2), 0)
    assert found.groups == {"r1": "r0"}
    assert found.ranks == {2: 0, 3: 1, 8: 6, 9: 7}


def test_the_micro_batch_of_an_item_matters():
    assert not identical_groups(replicas([[0, 2], [2, 0]]), 0).groups


def test_a_node_boundary_inside_sets_a_group_apart():
    """Nodes of three ranks: the second group of two lies on both."""
    assert identical_groups(replicas([[0, 0, 0]], levels=(3,)), 0).groups == {"r2": "r0"}


def test_the_split_matters():
    assert not identical_groups(replicas([[0, 0]], split=({"ulysses": 2}, {"ring": 2})), 0).groups


def test_the_kind_of_device_matters():
    plan = replicas([[0, 0, 0]])
    kinds = (RankKind(kind="toy", count=2, per_node=2), RankKind(kind="other", count=4, per_node=2))
    plan = with_fields(plan, uses=with_fields(plan.uses, cluster=with_fields(plan.uses.cluster, ranks=kinds)))
    assert identical_groups(plan, 0).groups == {"r2": "r1"}


def test_offload_matters():
    plan = replicas([[0, 0, 0]])
    row = {"r0": (0,), "r1": (OffloadedItem(item=1, offload=0.5),), "r2": (2,)}
    plan = with_fields(plan, steps=(with_fields(plan.steps[0], micro_batches=(row,)),))
    assert identical_groups(plan, 0).groups == {"r2": "r0"}


def test_ranks_in_several_groups_are_like_no_others():
    plan = sharded_plan(4, [[(0, 2), (2, 2)], [(0, 4)]])
    assert not identical_groups(plan, 0).groups


def test_modules_that_feed_each_other_have_nothing_alike():
    assert not identical_groups(encoder_plan(), 0).groups


@given(st.lists(st.lists(st.integers(0, 2), min_size=3, max_size=3), min_size=1, max_size=4), st.integers(1, 3))
def test_what_is_left_is_what_the_first_of_each_kind_does(rows, pp):
    """The tasks of all groups without those of the others, in the same order."""
    plan = replicas(rows, pp)
    found = identical_groups(plan, 0)
    kept = [task for task in expand(plan) if task.group not in found.groups]
    left = expand(plan, 0, found.ranks)
    assert sorted(task.id for task in left) == sorted(task.id for task in kept)
    for rank in range(plan.size):
        if rank not in found.ranks:
            mine = [[task.id for task in tasks if rank in task.ranks] for tasks in (left, kept)]
            assert mine[0] == mine[1]


def idle_ranks(size: int, busy: int, nodes: tuple[RankKind, ...] = ()):
    """A plan under ZeRO-3 of one group, on the first ranks of several."""
    plan = sharded_plan(size, [[(0, busy)], [(0, busy)]])
    cluster = plan.uses.cluster
    return with_fields(plan, uses=with_fields(plan.uses, cluster=with_fields(cluster, ranks=nodes or cluster.ranks)))


def test_ranks_without_work_are_alike():
    found = identical_groups(idle_ranks(8, 2), 0)
    assert found.ranks == dict.fromkeys(range(3, 8), 2)
    assert found.groups == {f"idle{rank}": "idle2" for rank in range(3, 8)}


def test_ranks_without_work_on_other_devices_are_not():
    kinds = (RankKind(kind="toy", count=4, per_node=2), RankKind(kind="other", count=4, per_node=2))
    assert identical_groups(idle_ranks(8, 2, kinds), 0).ranks == {3: 2, 5: 4, 6: 4, 7: 4}


def test_tasks_do_not_grow_with_ranks_that_do_alike():
    few, many = (idle_ranks(size, 2) for size in (8, 64))
    assert len(expand(few, 0, identical_groups(few, 0).ranks)) == len(expand(many, 0, identical_groups(many, 0).ranks))
