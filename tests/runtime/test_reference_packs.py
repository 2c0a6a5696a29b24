"""The reference processes what ranks shard: every item once, and every token of it for one rank."""

import torch

from planner.plan.tasks.expand import expand
from planner.runtime.parity.reference_packs import reference_packs
from planner.specs.base import with_fields
from planner.specs.layers.components import Experts
from tests.runtime.training_worlds import DECODER, spread

MOE = Experts(experts=4, topk=2, ffn=8)
ROWS = [[(0, 1, 2, 3), (4, 5, 6, 7)], [(0, 1, 2, 3, 4, 5, 6, 7)], [(4, 5), (0, 1, 2, 3)]]
SPLITS = {(0, 1, 2, 3): {"ring": 2}, (0, 1, 2, 3, 4, 5, 6, 7): {"ulysses": 2, "ring": 2}}


def packed(spec):
    """Packs of a plan whose groups share out tokens by ring, Ulysses and tp, and the forwards that they are of."""
    plan = spread(8, spec, dp=4, tp=2, rows=ROWS, splits=SPLITS, ep=4 if spec.moe else 1)
    forwards = [task for task in expand(plan) if task.phase == "F"]
    return plan, forwards, [*reference_packs(spec, plan.layouts["llm"], forwards)]


def test_items_that_do_not_meet_come_one_by_one():
    for spec in (DECODER, with_fields(DECODER, moe=MOE)):
        plan, _, found = packed(spec)
        assert [len(pack.documents) for pack in found] == [1] * len(plan.uses.items["llm"])
        assert {item: size for pack in found for item, size, _ in pack.documents} == plan.uses.items["llm"]
        assert not any(pack.slices for pack in found)


def test_a_micro_batch_whose_tokens_meet_is_one_pack():
    for kind in ({"balance": 0.1}, {"capacity": 1.0}):
        plan, forwards, found = packed(with_fields(DECODER, moe=with_fields(MOE, **kind)))
        for number, pack in enumerate(found):
            tasks = [task for task in forwards if task.micro_batch == number and task.items]
            assert pack.documents == tuple(document for task in tasks for document in task.documents)
            assert len(pack.slices) == sum(len(task.ranks) for task in tasks)
            tokens = sum(size for _, size, _ in pack.documents)
            assert torch.equal(torch.cat(pack.slices).sort().values, torch.arange(tokens))
        assert {item: size for pack in found for item, size, _ in pack.documents} == plan.uses.items["llm"]


def test_slices_are_even_shares():
    """A ring's share is not in one piece: a rank has the beginning of a document and the end of it."""
    _, _, found = packed(with_fields(DECODER, moe=with_fields(MOE, capacity=1.0)))
    ring = found[0].slices[:4]
    assert max(map(len, ring)) - min(map(len, ring)) <= 4
    assert any((rows.diff() > 1).any() for rows in ring)
