"""Embedding tables: the search against the exact program, what a plan must hold, and what cannot be."""

from dataclasses import replace
from itertools import combinations, product
from pathlib import Path

import pytest

from planner import pipeline
from planner.costs.tables import (
    CUTS,
    ON_ALL,
    ShardOptions,
    shard_options,
    sharding_group,
    table_bound,
    table_loads,
)
from planner.errors import Infeasible, InputError
from planner.plan.embeddings import TablePlacement
from planner.plan.legal.plan_laws import violations
from planner.plan.legal.table_laws import table_laws
from planner.plan.plan_file import Plan
from planner.scoring import score, with_score
from planner.specs.base import Indices, with_fields
from planner.specs.hardware.cluster import Cluster, NodeStorage
from planner.specs.tables import JobTables
from planner.strategies.sharded_tables import TableProblem, choose_groups, place_tables
from planner.strategies.sharded_tables.exact_placement import exact_placement
from planner.strategies.sharded_tables.placement import Placement
from planner.units import GIB
from tests.sharded_tables import CLUSTER, DEVICE, drawn_tables, table_job

CSV = "name,rows,dim,pooling\nuser,4000000,128,2\nitem,9000000,64,30\ntag,20000,32,5\n"


def cluster_of(ranks: int) -> Cluster:
    kind = with_fields(CLUSTER.ranks[0], count=ranks)
    return with_fields(CLUSTER, ranks=(kind,), levels=(with_fields(CLUSTER.levels[0], ranks=max(8, ranks)),))


def problem_of(tables: int, seed: int, ranks: int = 8, **asked: object) -> TableProblem:
    fixed = JobTables(file="", **asked)  # type: ignore[arg-type]
    return TableProblem(drawn_tables(tables, seed), cluster_of(ranks), DEVICE, fixed, 64.0, 40.0 * GIB, 0.0)


@pytest.fixture(scope="module")
def plan(tmp_path_factory: pytest.TempPathFactory) -> Plan:
    """Of the three tables."""
    return pipeline.solve(str(table_job(tmp_path_factory.mktemp("tables"), CSV))).plan


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.every(2)
def test_bound_is_at_most_the_exact_program_and_that_at_most_the_search(seed: int):
    device = with_fields(DEVICE, host_gb_per_s=None)
    group = sharding_group(cluster_of(3), device, 1, "node", 1)
    options, room = shard_options(drawn_tables(3 + seed, seed), group, 64), 40.0 * GIB
    found = place_tables(options, group, room, 0.0, 2)
    exact = exact_placement(options, group, room)
    assert found
    assert exact
    assert table_bound(options, group, room) <= exact.slowest * (1 + 1e-6)
    assert exact.slowest <= found.slowest * (1 + 1e-6)
    assert found.slowest <= exact.slowest * 1.002


def test_tight_memory_is_kept():
    group = sharding_group(cluster_of(4), DEVICE, 1, "node", 1)
    options = shard_options(drawn_tables(8, 1), group, 64)
    size = sum(table.bytes for table in drawn_tables(8, 1).values())
    room = size / 4 * 1.15
    found = place_tables(options, group, room, 0.0, 2)
    assert found
    assert found.held.max() <= room * (1 + 1e-9)
    assert table_bound(options, group, room) <= found.slowest


def test_leaving_numbers_of_groups_out_by_their_bound_changes_no_choice():
    for every in (1, 100):
        problem = problem_of(20, 5, 16, average_every=every)
        found, all_numbers = choose_groups(problem, 1), choose_groups(problem, 1, skip=False)
        assert found
        assert all_numbers
        assert found.embeddings == all_numbers.embeddings
        assert found.seconds == min(seconds for *_, seconds in all_numbers.tried)
        assert found.bound <= found.seconds


def test_more_ranks_are_never_worse_for_a_batch():
    """Of the same samples in all: what fewer ranks do, more do by leaving some without tables."""
    seconds = []
    for ranks in (2, 4, 8):
        problem = replace(problem_of(12, 2, ranks), samples=512.0 / ranks)
        found = choose_groups(problem, 2)
        assert found
        seconds.append(found.seconds)
    assert seconds == sorted(seconds, reverse=True)


def test_a_plan_has_every_table_once_and_its_loads_add_up(plan: Plan):
    loads = table_loads(plan)
    assert loads
    assert plan.embeddings
    assert {*plan.embeddings.tables} == {*plan.uses.tables} == {"user", "item", "tag"}
    shards = loads.shards
    assert float(loads.seconds.sum()) == pytest.approx(float(shards.totals.sum()))
    assert float(loads.state_bytes.sum()) == pytest.approx(float((shards.state_bytes * shards.ranks).sum()))
    dense = pipeline.simulate(plan)[0].timeline.step_seconds
    assert plan.prediction.step_seconds == pytest.approx(dense + float(loads.seconds.max()))
    assert plan.made.decided["tables"] == "sparse_tables"


def test_laws_of_tables_name_what_is_broken(plan: Plan):
    placed = plan.embeddings
    assert placed

    def broken(**fields: object) -> str:
        found = violations(with_fields(plan, embeddings=with_fields(placed, **fields)))
        return found[0].message if found else ""

    assert not broken()
    without = {name: each for name, each in placed.tables.items() if name != "item"}
    assert "`item` is placed nowhere" in broken(tables=without)
    far = {**placed.tables, "item": with_fields(placed.tables["item"], cut="whole", at=Indices((99,)))}
    assert "it is at 99" in broken(tables=far)
    assert "not 3 equal groups" in broken(groups=3)


def test_plans_by_hand_cut_tables_as_the_bound_has_it(plan: Plan):
    """In other ways they could be below it."""
    name = next(iter(plan.uses.tables))
    for cut, count, cache in product(CUTS, range(9), (0.0, 0.05, 0.5)):
        each = TablePlacement(cut=cut, at=Indices(range(count)), cache=cache)
        tables = {**plan.embeddings.tables, name: each}
        edited = with_fields(plan, embeddings=with_fields(plan.embeddings, groups=1, tables=tables))
        if not [*table_laws(edited)]:
            assert score(edited).bound.seconds <= score(edited).step_seconds, each


def test_rows_in_host_memory_are_held_against_it(plan: Plan):
    cached = {name: TablePlacement(cut="rows", cache=0.05) for name in plan.uses.tables}
    edited = with_fields(plan, embeddings=with_fields(plan.embeddings, groups=1, tables=cached))
    host = score(edited).host_memory
    size = sum(table.bytes for table in plan.uses.tables.values())
    assert host and host.held == pytest.approx(size * 8 / plan.size)
    small = with_fields(plan.uses.cluster, storage=NodeStorage(host_gib=host.held / GIB / 2))
    with pytest.raises(Infeasible, match="memory of their host"):
        with_score(with_fields(edited, uses=with_fields(edited.uses, cluster=small)), "")


def test_a_table_beyond_a_group_says_how_many_groups_would_do(tmp_path: Path):
    job = table_job(tmp_path, "name,rows,dim\nhuge,700000000,128\n", ", groups: 16")
    with pytest.raises(Infeasible) as caught:
        pipeline.solve(str(job))
    assert "`huge`" in caught.value.message
    groups = int(caught.value.fix.removeprefix("groups: "))
    assert 1 <= groups < 16
    assert pipeline.solve(str(table_job(tmp_path, (tmp_path / "tables.csv").read_text(), f", groups: {groups}"))).plan


def test_tables_beyond_all_ranks_say_how_many_would_do(tmp_path: Path):
    job = table_job(tmp_path, "name,rows,dim\nhuge,9000000000,128\n")
    with pytest.raises(Infeasible) as caught:
        pipeline.solve(str(job))
    assert caught.value.fix.endswith("ranks in one group")


@pytest.mark.parametrize(
    ("csv", "more", "told"),
    [
        ("name,rows,dim\na,0,64\n", "", "rows is 0"),
        ("name,rows,dim\na,10,64\na,20,64\n", "", "two tables are called `a`"),
        ("name,rows,dim\na,many,64\n", "", "rows is many"),
        ("name,rows,width\na,10,64\n", "", "`width` is no column"),
        ("name,rows,dim\n", "", "the file has no tables"),
        (CSV, ", groups: 3", "16 ranks are not 3 equal groups"),
    ],
)
def test_bad_tables_are_located(tmp_path: Path, csv: str, more: str, told: str):
    with pytest.raises(InputError, match=told) as caught:
        pipeline.solve(str(table_job(tmp_path, csv, more)))
    assert str(tmp_path) in caught.value.where


def test_why_a_table_is_where_it_is_and_why_not_other_groups(plan: Plan):
    answer = pipeline.why(plan, "item")
    assert {other.cut for other in answer.others} >= {"whole", "rows", "replicated"}  # type: ignore[union-attr]
    other = pipeline.why_not(plan, ("groups=4",))
    assert other.after
    assert "4 groups of 4 ranks" in other.after.table_groups  # type: ignore[union-attr]
    assert other.after.tables["averages of their copies"] > 0  # type: ignore[union-attr]
    facts = other.after
    parts = facts.compute, facts.exchange_across, facts.exchange_within, facts.other_comm, facts.idle  # type: ignore[union-attr]
    assert sum((*parts, *facts.tables.values())) == pytest.approx(facts.value)  # type: ignore[union-attr]
    with pytest.raises(InputError, match="not 3 equal groups"):
        pipeline.why_not(plan, ("groups=3",))


@pytest.mark.slow
def test_ten_thousand_tables_are_placed():
    problem = problem_of(10_000, 0, 16, groups=1)
    found = choose_groups(replace(problem, room=2000.0 * GIB), 1)
    assert found
    assert len(found.embeddings.tables) == 10_000
    assert found.seconds <= found.bound * 1.01


def test_the_exact_program_is_as_good_as_every_placement_tried_one_by_one():
    device = with_fields(DEVICE, host_gb_per_s=None)
    group = sharding_group(cluster_of(3), device, 1, "node", 1)
    options, room = shard_options(drawn_tables(3, 8), group, 64), 40.0 * GIB
    ways = [
        [(option, where) for option in options.of(table) for where in every_place(options, option, group.ranks)]
        for table in range(3)
    ]
    blank, least = Placement(options, group, room, 0.0), float("inf")
    for chosen in product(*ways):
        for each in chosen:
            blank.add(*each, 1.0)
        least = min(least, blank.slowest)
        for each in chosen:
            blank.add(*each, -1.0)
    exact = exact_placement(options, group, room)
    assert exact
    assert exact.slowest == pytest.approx(least, rel=1e-6)


def every_place(options: ShardOptions, option: int, ranks: int) -> list[tuple[int, ...]]:
    """Every set of ranks that an option's shards can be on."""
    return [()] if options.cut[option] in ON_ALL else [*combinations(range(ranks), int(options.parts[option]))]
