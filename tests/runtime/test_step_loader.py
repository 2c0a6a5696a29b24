"""Steps whose items workers load: the same losses bit for bit, waits measured, and errors that name items."""

import numpy as np
import pytest
import torch

from planner.errors import InputError, RunFailed
from planner.models.inputs import TokenFolder, packed_contents
from planner.runtime import RunOptions, run
from planner.runtime.execute.step_loader import StepContents, split_by_task
from planner.specs.base import with_fields
from planner.specs.loader import LoaderSettings
from planner.specs.workload.items import Document
from tests.runtime.test_data import ROWS, SPEC, folder_of, plan

SPANS = [(Document(4, 30), (8, 24)), (Document(0, 19), (0, 19)), (Document(2, 8), (0, 8)), (Document(1, 8), (0, 8))]


def contents(folder, spans=SPANS, as_stored=True, source=None):
    tasks = [[("a", "llm", spans[:2]), ("b", "llm", spans[2:])]]
    return tasks[0], StepContents(tasks, {"llm": (SPEC, source or TokenFolder(folder))}, as_stored)


def test_what_is_split_is_what_was_read_in_any_order(tmp_path):
    folder = folder_of(tmp_path)
    for as_stored in (True, False):
        tasks, steps = contents(folder, as_stored=as_stored)
        found = split_by_task(tasks, steps[0])
        for name, _, spans in tasks:
            alone = packed_contents(TokenFolder(folder), SPEC, spans)
            assert torch.equal(found[name].inputs, alone.inputs) and torch.equal(found[name].targets, alone.targets)
            assert found[name].counts == alone.counts


class Broken:
    """A source of which one item raises."""

    def item(self, spec, item, span):
        if item == 2:
            raise OSError("the disk is gone")
        return torch.zeros(span[1] - span[0], dtype=torch.int64), torch.zeros(span[1] - span[0], dtype=torch.int64)


def test_errors_of_items_are_handed_over_and_name_them(tmp_path):
    folder = folder_of(tmp_path, [*ROWS[:2], [99] * 8, *ROWS[3:]])
    error = contents(folder)[1][0]
    assert isinstance(error, InputError) and "sample 2 is 99" in error.message
    lost = contents(folder, source=Broken())[1][0]
    assert isinstance(lost, RunFailed) and "items 1, 2 of `llm` cannot be loaded: OSError" in lost.message


@pytest.mark.slow
def test_losses_are_the_same_bit_for_bit(tmp_path):
    folder, losses = folder_of(tmp_path / "data"), []
    for settings in (None, LoaderSettings(workers=2, prefetch=1), LoaderSettings(workers=0, order="plan")):
        result = run(with_fields(plan(), loader=settings), RunOptions(steps=3, data=folder), print)
        losses.append([step.loss for step in result.steps])
        waits = [step.loading for step in result.steps]
        assert (min(waits) > 0) if settings else not any(waits)
    assert losses[0] == losses[1] == losses[2] and np.diff(losses[0]).all()


@pytest.mark.slow
def test_an_item_that_raises_in_a_worker_ends_the_run(tmp_path):
    spoiled = folder_of(tmp_path, [*ROWS[:4], [*range(28), 64, 1]])
    loaded = with_fields(plan(), loader=LoaderSettings(workers=1))
    with pytest.raises(InputError, match="token 28 of sample 4 is 64"):
        run(loaded, RunOptions(data=spoiled), print)
