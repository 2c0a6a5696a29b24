"""Shares of a data loader: as good as brute force and as the integer program, all handed out, never worse with more."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.costs import loader_work
from planner.errors import InputError
from planner.programs import ProgramBuilder, solve
from planner.specs.base import with_fields
from planner.specs.loader import LoaderFile, LoaderPool, LoaderStage
from planner.strategies import divide_loader
from tests.examples import examples

AMOUNTS = st.floats(0.001, 10.0)


def loader_of(stages, units, trainer=0.0, shared=False):
    """A loader with stages (pool, seconds, constant) and units of each pool."""
    return LoaderFile(
        format=LoaderFile.FORMAT,
        name="made up",
        source="analytic",
        trainer_seconds=trainer,
        pools={name: LoaderPool(units=count, shared=shared) for name, count in units.items()},
        stages=tuple(
            LoaderStage(name=f"s{at}", pool=pool, seconds=seconds, constant=constant)
            for at, (pool, seconds, constant) in enumerate(stages)
        ),
    )


def drawn(random, stages=8, cores=64):
    """A loader of up to so many stages on two pools that share so many units."""
    count = int(random.integers(2, stages + 1))
    units = {"a": int(random.integers(count, cores // 2 + 1)), "b": int(random.integers(count, cores // 2 + 1))}
    pools, seconds = random.choice(["a", "b"], count), random.exponential(size=(2, count))
    constants = np.where(random.random(count) < 0.5, seconds[1] / 9, 0.0)
    made = [(str(pool), float(a), float(d)) for pool, a, d in zip(pools, seconds[0], constants, strict=True)]
    return loader_of([*made, (None, 0.0, float(random.exponential() / 20 + 0.001))], units)


def brute(loader):
    """The least seconds of the slowest stage over all whole shares, pool by pool: what is left for the last stage."""
    worst = max((work.seconds_with(1) for work in loader_work(loader) if not work.pool), default=0.0)
    for name, pool in loader.pools.items():
        members = [work for work in loader_work(loader) if work.pool == name]
        table = np.array([np.inf] * pool.units + [0.0])  # by units that are left: the best so far
        for work in members:
            times = work.seconds_with(np.arange(1, pool.units + 1))
            following = np.full(pool.units + 1, np.inf)
            for left in range(pool.units + 1):
                for count in range(1, left + 1):
                    following[left - count] = min(following[left - count], max(table[left], times[count - 1]))
            table = following
        worst = max(worst, float(table.min())) if members else worst
    return worst


def judged(loader):
    """The same by an integer program: one of the counts for each stage, T no less than any time."""
    work, b = loader_work(loader), ProgramBuilder()
    slowest = b.variable(0.0, cost=1.0)
    rows = {name: {} for name in loader.pools}
    for each in work:
        counts = range(1, loader.pools[each.pool].units + 1) if each.pool else (1,)
        chosen = [b.variable(0, 1, integer=True) for _ in counts]
        b.row(dict.fromkeys(chosen, 1.0), lower=1.0, upper=1.0)
        times = {one: -float(each.seconds_with(count)) for one, count in zip(chosen, counts, strict=True)}
        b.row({slowest: 1.0, **times}, lower=0.0)
        if each.pool:
            rows[each.pool] |= dict(zip(chosen, map(float, counts), strict=True))
    for name, row in rows.items():
        if row:
            b.row(row, upper=float(loader.pools[name].units))
    return solve(b.build()).objective


def test_as_good_as_every_whole_share():
    random = np.random.default_rng(5)
    for _ in range(60):
        loader = drawn(random, cores=16)
        assert divide_loader(loader).shares.seconds == brute(loader)


def test_as_good_as_the_program():
    random = np.random.default_rng(6)
    for _ in range(4):
        loader = drawn(random, cores=32)
        assert divide_loader(loader).shares.seconds == pytest.approx(judged(loader), rel=1e-6)


@examples(60)
@given(st.lists(st.tuples(AMOUNTS, st.sampled_from([0.0, 0.1])), min_size=1, max_size=8), st.integers(0, 60))
def test_shares_sum_to_what_there_is_and_more_is_never_slower(stages, more):
    loader = loader_of([("p", *each) for each in stages], {"p": len(stages) + more})
    found = divide_loader(loader)
    assert sum(found.units) == len(stages) + more and min(found.units) >= 1
    wider = with_fields(loader, pools={"p": LoaderPool(units=len(stages) + more + 1)})
    assert divide_loader(wider).shares.seconds == found.one_more["p"] <= found.shares.seconds
    assert found.shares.seconds <= found.shares.equal_seconds


@given(st.lists(AMOUNTS, min_size=1, max_size=6))
def test_constant_stages_are_as_quick_as_the_slowest(constants):
    found = divide_loader(loader_of([(None, 0.0, each) for each in constants], {}))
    assert found.shares.seconds == max(constants) and found.shares.units == {}


def test_fewer_units_than_stages_are_shared():
    loader = loader_of([("cores", 1.0, 0.0), ("cores", 2.0, 0.0), ("cores", 3.0, 0.5)], {"cores": 2})
    found = divide_loader(loader)
    assert found.shares.seconds == 6.0 / 2 + 0.5 and found.shares.units == {"s0": 2, "s1": 2, "s2": 2}
    own = divide_loader(with_fields(loader, pools={"cores": LoaderPool(units=3)}))
    assert own.units == (1, 1, 1) and own.shares.seconds == 3.5


def test_several_machines_take_items_of_their_own():
    one = loader_of([("cores", 4.0, 1.0)], {"cores": 4})
    four = with_fields(one, pools={"cores": LoaderPool(units=4, machines=4)})
    assert divide_loader(four).shares.seconds == divide_loader(one).shares.seconds / 4 == 0.5


def test_who_sets_the_step_is_said():
    stages = [("cores", 4.0, 0.0)]
    assert divide_loader(loader_of(stages, {"cores": 2}, trainer=1.9)).loader_bound
    assert divide_loader(loader_of(stages, {"cores": 2}, trainer=2.1)).loader_bound is False
    assert divide_loader(loader_of(stages, {"cores": 2})).loader_bound is None


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: loader_of([("cores", 0.0, 0.0)], {"cores": 2}),
        lambda: loader_of([("gpu", 1.0, 0.0)], {"cores": 2}),
        lambda: with_fields(loader_of([("a", 1.0, 0.0)], {"a": 1}), stages=2 * (LoaderStage(name="x", seconds=1.0),)),
    ],
)
def test_what_no_loader_is(wrong):
    with pytest.raises((ValueError, InputError), match=r"takes 0 s|names no pool|two stages are called"):
        wrong()


def test_brute_force_is_what_it_says():
    loader = loader_of([("p", 3.0, 0.0), ("p", 2.0, 0.1), ("p", 1.0, 0.0)], {"p": 7})
    every = (each for each in itertools.product(range(1, 6), repeat=3) if sum(each) == 7)
    work = loader_work(loader)
    assert brute(loader) == min(max(w.seconds_with(c) for w, c in zip(work, each, strict=True)) for each in every)
