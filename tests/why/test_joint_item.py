"""`why PLAN ITEM` of plans of several modules: every item is where the plan has it, outputs are there before they are
read, and a move that is listed is what the edited file takes.
"""

import pytest
import yaml
from typer.testing import CliRunner

from planner import files, pipeline
from planner.cli.app import app
from planner.errors import InputError
from planner.plan.plan_file import Plan, assignments
from planner.scoring import score
from planner.specs.workload.items import UNITS_PER_TOKEN
from planner.why import WhyPlacedItem
from tests.examples import thorough
from tests.placed_jobs import FEW, PLACEMENTS, SOME, placed_job


def explained(plan: Plan, what: str) -> WhyPlacedItem:
    answer = pipeline.why(plan, what)
    assert isinstance(answer, WhyPlacedItem)
    return answer


def cells(plan: Plan):
    for number, micro_batch in enumerate(plan.steps[0].micro_batches):
        yield from ((number, each) for each in assignments(plan, micro_batch))


@pytest.mark.slow
@FEW
@pytest.mark.every(2)
def test_every_item_is_where_the_plan_has_it(placed, name):
    plan = placed(name)
    readers = {edge.source: plan.feeds_of(edge) for edge in plan.edges}
    every = {(number, each.module): (number, each) for number, each in cells(plan)}.values()  # a group of each module
    for number, each in cells(plan) if thorough() else every:
        for item in each.items if thorough() else each.items[:1]:
            answer = explained(plan, f"{each.module}.{item}")
            assert (answer.micro_batch, answer.group) == (number, each.group)
            assert answer.ranks == plan.groups[each.group].ranks
            assert {item, *answer.beside} == {*each.items}
            size = plan.uses.items[each.module][item]
            assert answer.unit == plan.uses.models[each.module].input_unit
            assert answer.inputs == sum(answer.parts) * UNITS_PER_TOKEN[answer.unit]
            assert isinstance(size, int) or (answer.unit, answer.inputs) == (size.unit, sum(size.counts))
            read = readers.get(each.module, {}).get(item)
            assert (answer.outputs.readers if answer.outputs else None) == (read and {"llm": read})
            assert answer.outputs is None or answer.outputs.ready <= answer.outputs.needed
            for source, items in answer.reads.items():
                assert all(item in readers[source][other] for other in items)
    assert explained(plan, "3") == explained(plan, "llm.3")


@SOME
@pytest.mark.every(4)
def test_a_move_is_what_the_edited_file_takes(placed, tmp_path, name):
    plan = placed(name)
    answer = explained(plan, "vit.6")
    others = {each.group for _, each in cells(plan) if each.module == "vit"} - {answer.group}
    assert len(answer.moves) == min(4, len(others))
    for gain in answer.moves:
        edited = step_of_edited(tmp_path, plan, answer, gain.what.split()[2].rstrip(","))
        assert gain.seconds == pytest.approx(edited, rel=1e-7) if gain.seconds else gain.because


def step_of_edited(folder, plan: Plan, answer: WhyPlacedItem, group: str) -> float:
    """Seconds of the plan file with the item moved by an editor."""
    document = yaml.safe_load(files.dump(plan))
    placed = document["steps"][0]["micro_batches"][answer.micro_batch][answer.module]
    placed[answer.group].remove(answer.item)
    placed[group] = sorted([*placed.get(group, ()), answer.item])
    if not placed[answer.group]:
        del placed[answer.group]
    (folder / "edited.yaml").write_text(yaml.safe_dump(document, sort_keys=False))
    return score(files.read(folder / "edited.yaml", Plan)).step_seconds


def test_an_item_that_is_waited_for(placed):
    """With an encoder that runs no earlier than it must, a first pass of the LLM begins when outputs arrive."""
    plan = placed("disjoint")
    first = [item for number, each in cells(plan) if each.module == "vit" and not number for item in each.items]
    assert any(explained(plan, f"vit.{item}").outputs.waited_for for item in first)


def test_what_is_no_item_is_said(tmp_path):
    path = tmp_path / "plan.yaml"
    job = placed_job(tmp_path, PLACEMENTS["1 + 3"])
    assert not CliRunner().invoke(app, ["solve", job, "--output", str(path)]).exit_code
    for asked, said in (("vit.99", "no item 99 of `vit`"), ("nose.1", "no group `nose.1`"), ("77", "no item 77 of")):
        refused = CliRunner().invoke(app, ["why", str(path), asked])
        assert isinstance(refused.exception, InputError) and said in str(refused.exception)
    shown = CliRunner().invoke(app, ["why", str(path), "vit.6"], env={"COLUMNS": "200"})
    assert shown.exit_code == 0 and "of the step; the first pass that reads them" in shown.output


def test_a_group_that_is_not_there_is_refused_with_the_first_few(placed):
    with pytest.raises(InputError) as refused:
        pipeline.why(placed("1 + 3"), "vit.dp99")
    assert "one of " in refused.value.fix and len(refused.value.fix) < 200
