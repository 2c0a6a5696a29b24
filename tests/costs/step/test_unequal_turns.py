"""What collectives add to unequal segments: no fewer seconds than to any that were drawn."""

from random import Random

from hypothesis import given
from hypothesis import strategies as st

from planner.costs.network.replica_exchange import exposed_part
from planner.costs.step.unequal_turns import Beside, Turns, added_in_turn
from tests.examples import examples


@given(st.integers(0, 10**6))
@examples(300)
def test_no_segments_add_less(seed):
    random = Random(seed)
    window, uncovered = random.choice([0.0, 0.3, 0.62, 1.0]), random.choice([0.02, 0.3, 1.0])
    gather, reduce = random.choice([0.0, 0.1, 2.0]), random.choice([0.0, 0.5, 5.0])
    shares = random.choice([(1.0, 1.0), (0.33, 0.72), (0.25, 0.8)])
    constants = random.choice([(0.0, 0.0), (0.05, 0.1)])
    total, compute = 0.0, 0.0
    count = random.randrange(1, 8)
    for _ in range(count):
        seconds = random.choice([0.0, 0.1, 1.0, 3.0, 9.0])
        forward, backward = (
            random.random() * (share * seconds + constant) for share, constant in zip(shares, constants, strict=True)
        )
        total += seconds + exposed_part(gather, forward, window, uncovered)
        total += exposed_part(reduce, backward, window, uncovered)
        compute += seconds * random.random()
    turns = [
        Turns(float(count), each, Beside(share, constant))
        for each, share, constant in zip((gather, reduce), shares, constants, strict=True)
    ]
    assert compute + added_in_turn((turns[0], turns[1]), compute, window, uncovered) <= total * (1 + 1e-9) + 1e-12
