"""Groups that do alike: what sets them apart, and that nothing sets apart those that are alike."""

from hypothesis import assume, given
from hypothesis import strategies as st

from planner.plan.legal.plan_laws import violations
from planner.plan.mesh.identical_groups import identical_groups
from planner.plan.plan_file import OffloadedItem, TaskPlacement
from planner.plan.task import TaskName
from planner.plan.tasks.expand import expand
from planner.specs.base import with_fields
from planner.specs.hardware.cluster import RankKind
from tests.examples import examples
from tests.plans import encoder_plan, sharded_plan
from tests.replica_plans import any_fed_replicas, fed_replicas, replicas


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


def test_groups_that_share_ranks_are_alike_together():
    """Of eight ranks either half is in two groups, then in one: where sizes are the same, alike; by rank and group."""
    plan = sharded_plan(8, [[(0, 2), (2, 2), (4, 2), (6, 2)], [(0, 4), (4, 4)]])
    assert not identical_groups(plan, 0).groups
    alike = with_fields(plan, uses=with_fields(plan.uses, items={"llm": {0: 16, 1: 24, 2: 16, 3: 24, 4: 32, 5: 32}}))
    found = identical_groups(alike, 0)
    halves = {"g4-5": "g0-1", "g6-7": "g2-3", "g4-7": "g0-3"}
    assert found.groups == halves | {f"idle{rank}": f"idle{rank - 4}" for rank in range(4, 8)}
    assert found.ranks == {4: 0, 5: 1, 6: 2, 7: 3}


TWO = fed_replicas([[0, 1], [2, 2]], {}, {"dp": 2})


def test_replicas_and_what_encodes_their_images_are_alike_together():
    """With the transfers from one to the other."""
    found = identical_groups(TWO, 0)
    assert found.groups == {"llm.g2-3": "llm.g0-1", "vit.g2-3": "vit.g0-1", "vit.g2-3>llm": "vit.g0-1>llm"}
    assert found.groups_of == dict.fromkeys((2, 3), tuple(found.groups))


def test_who_reads_an_image_matters():
    """As many images of the same sizes in the same micro-batches: one is read by the other micro-batch's text."""
    feeds = TWO.uses.feeds["vit>llm"]
    other = with_fields(TWO, uses=with_fields(TWO.uses, feeds={"vit>llm": {**feeds, 3: 0}}))
    assert identical_groups(TWO, 0).groups and not identical_groups(other, 0).groups


def test_replicas_that_read_images_of_each_other_are_one():
    feeds = TWO.uses.feeds["vit>llm"]
    crossed = with_fields(TWO, uses=with_fields(TWO.uses, feeds={"vit>llm": {**feeds, 0: feeds[1], 1: feeds[0]}}))
    assert not identical_groups(crossed, 0).groups


def test_tasks_that_are_placed_have_nothing_alike():
    place = TaskPlacement(do=TaskName("vit.F1"), on="vit.g0-1", before=TaskName("llm.F0"))
    placed = with_fields(TWO, steps=(with_fields(TWO.steps[0], order={"place": (place,)}),))
    assert not violations(placed) and not identical_groups(placed, 0).groups


def test_one_component_has_nothing_alike():
    assert not identical_groups(encoder_plan(), 0).groups


@examples(100)
@given(any_fed_replicas(("llm", "seer", "late")))
def test_ranks_that_are_alike_have_the_same_tasks_in_the_same_order(plan):
    """But where a reader alone synchronises in every micro-batch: a send may then be on either side of a backward."""
    reader = next(layout for name, layout in plan.layouts.items() if name != "vit")
    assume(reader.zero != 3 or plan.layouts["vit"].zero == 3)
    found = identical_groups(plan, 0)
    whole, left = expand(plan), expand(plan, 0, found.ranks)
    for rank in range(plan.size):
        own = [task.changed(group=found.groups.get(task.group, task.group)).id for task in whole if rank in task.ranks]
        of = found.ranks.get(rank, rank)
        assert own == [task.id for task in left if of in task.ranks]


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
