"""A head is a plan of its own, with every group a later batch can be put on; its job is found again, or asked for."""

import shutil
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner import files, pipeline
from planner.costs.packing_problem import RankPool
from planner.errors import InputError
from planner.online.catalogue_placement import catalogue_blocks, place_groups, with_group_catalogue
from planner.online.plan_inputs import inputs_of_plan
from planner.plan.legal.plan_laws import violations
from planner.plan.plan_file import Plan
from planner.specs.base import with_fields
from planner.specs.inputs import JobOptions, load_job
from tests.online.small_jobs import FILE, head_of, write_job


@pytest.mark.parametrize("power", range(8))
def test_powers_of_two_make_fewer_than_twice_as_many_groups_as_ranks(power):
    size = 2**power
    found = catalogue_blocks(RankPool(0, size, min(8, size)), [2**k for k in range(power + 1)])
    assert len(found) == len(set(found)) == 2 * size - 1
    assert all(block[0] % len(block) == 0 and block == (*range(block[0], block[-1] + 1),) for block in found)


@given(st.data())
def test_groups_are_laid_apart_on_blocks_of_the_catalogue_and_straddle_no_node_that_they_fit(data):
    node = data.draw(st.integers(1, 8))
    pool = RankPool(data.draw(st.integers(0, 3)), data.draw(st.integers(node, 4 * node)), node)
    degrees = sorted(data.draw(st.sets(st.integers(1, pool.ranks), min_size=1, max_size=4)))
    wanted = sorted(data.draw(st.lists(st.sampled_from(degrees), max_size=8)), reverse=True)
    laid = place_groups(pool, wanted)
    known = set(catalogue_blocks(pool, degrees))
    for block, degree in zip(laid or [], wanted, strict=bool(laid)):
        assert block in known and len(block) == degree
        nodes = {(rank - pool.first) // node for rank in block}
        assert len(nodes) == -(-degree // node)
    ranks = [rank for block in laid or [] for rank in block]
    assert len(set(ranks)) == len(ranks)
    assert set(ranks) <= set(range(pool.first, pool.first + pool.ranks))


@given(st.data())
def test_powers_of_two_always_find_room(data):
    pool = RankPool(0, 8 * 2 ** data.draw(st.integers(0, 3)), 8)
    wanted, room = [], pool.ranks
    while room and data.draw(st.booleans()):
        wanted.append(2 ** data.draw(st.integers(0, room.bit_length() - 1)))
        room -= wanted[-1]
    laid = place_groups(pool, sorted(wanted, reverse=True))
    assert laid is not None
    assert all(block[0] % len(block) == 0 for block in laid)


@pytest.mark.slow
def test_the_head_is_the_plan_of_the_first_batches_and_says_how_it_goes_on(tmp_path):
    job = write_job(tmp_path, lengths=FILE)
    head = pipeline.solve(str(job), JobOptions(batches=2)).plan
    job.write_text(job.read_text().replace("per_batch", "ahead"))
    plain = pipeline.solve(str(job), JobOptions(batches=2)).plan
    assert violations(head) == [] and plain.then is None
    assert head.steps == plain.steps and head.outcome == plain.outcome
    assert len(head.groups) == 7 and head.groups.items() >= plain.groups.items()
    assert (head.then.folder, head.then.batches) == ("small.steps", 2)  # of 101 rows
    files.write(tmp_path / "plan.yaml", head)
    assert files.read(tmp_path / "plan.yaml", Plan) == head


def test_sampled_data_has_no_end(tmp_path):
    assert head_of(tmp_path).then.batches is None


def test_names_of_folders_stay_in_place(tmp_path):
    job = write_job(tmp_path)
    job.write_text(job.read_text().replace("name: small", "name: ../a b/c"))
    assert "/" not in pipeline.solve(str(job)).plan.then.folder


@pytest.mark.parametrize("lengths", [None, FILE])
def test_the_job_is_found_beside_the_plan(tmp_path, lengths):
    head = head_of(tmp_path, effort=2, **({"lengths": lengths} if lengths else {}))
    inputs, direct = inputs_of_plan(head, tmp_path), load_job(str(tmp_path / "job.yaml"), JobOptions(effort=2))
    assert (inputs.job.name, inputs.batches, inputs.effort) == ("small", direct.batches, 2)
    again = inputs_of_plan(head, tmp_path / "elsewhere", job=str(tmp_path / "job.yaml"))
    assert again.batches == inputs.batches


def test_other_lengths_are_found_again(tmp_path):
    job = write_job(tmp_path)
    head = pipeline.solve(str(job), JobOptions(lengths=str(tmp_path / "lengths.txt"))).plan
    assert inputs_of_plan(head, tmp_path).batches[0].items == head.uses.items["llm"]


def test_a_shipped_job_is_found_from_anywhere(tmp_path):
    head = pipeline.solve("demo-online-cpu-4").plan
    assert inputs_of_plan(head, tmp_path).job.name == "demo-online-cpu-4"
    assert head.then.batches == 84  # of 4096 rows


def test_a_job_that_is_gone_changed_or_unknown_is_an_input_error(tmp_path):
    head = head_of(tmp_path, lengths=FILE)
    (tmp_path / "lengths.txt").write_text("7\n" * 80)
    with pytest.raises(InputError, match="the lengths changed since"):
        inputs_of_plan(head, tmp_path)
    with (tmp_path / "job.yaml").open("a") as job:
        job.write("# more\n")
    with pytest.raises(InputError, match="the job changed since"):
        inputs_of_plan(head, tmp_path)
    (tmp_path / "job.yaml").unlink()
    with pytest.raises(InputError, match="is missing"):
        inputs_of_plan(head, tmp_path)
    with pytest.raises(InputError, match="does not name its job"):
        inputs_of_plan(with_fields(head, uses=with_fields(head.uses, sources={})), tmp_path)


def test_checking_a_folder_of_heads_finds_no_difference(tmp_path):
    case = tmp_path / "case"
    case.mkdir()
    files.write(case / "plan.yaml", head_of(case))
    from planner.check import Tolerances

    assert pipeline.check(tmp_path, None, Tolerances()) == []
    shutil.rmtree(case)


def test_neighbours_of_one_kind_work_together(tmp_path):
    """Two entries of one kind, each of whole nodes, are one pool: some group of the catalogue spans both."""
    job = write_job(tmp_path)
    inputs = load_job(str(job), JobOptions())
    (entry,) = inputs.cluster.ranks
    parted = tuple(with_fields(entry, count=2, per_node=2) for _ in range(2))
    bare = with_fields(pipeline.solve(str(job)).plan, groups={})
    head = with_group_catalogue(bare, replace(inputs, cluster=with_fields(inputs.cluster, ranks=parted)))
    assert {"g0-3", "g0-1", "g2-3"} <= head.groups.keys()
