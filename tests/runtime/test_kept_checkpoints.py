"""Of all checkpoints of a run the last few are kept, and those after each so many steps; each can be resumed."""

from hypothesis import given
from hypothesis import strategies as st

from planner import files
from planner.files import path_exists
from planner.runtime import RunOptions
from planner.runtime.checkpoint.accepting import unused_states_folder
from planner.runtime.checkpoint.checkpoint_index import INDEX_FILE, SavedStates, checkpoint_index, read_index
from planner.runtime.checkpoint.kept_checkpoints import KEPT, kept_steps, put_back_kept, retire, step_folder
from planner.runtime.run_options import Retention
from tests.examples import examples
from tests.plans import sharded_plan

PLAN = sharded_plan(2, [[(0, 2)], [(1, 2)]])


def save(folder, steps, retention):
    """As a run does, but for the tensors."""
    previous = read_index(folder) if path_exists(folder / INDEX_FILE, "") else None
    side = unused_states_folder(previous)
    (folder / side).mkdir()
    (folder / side / "tensors").write_text(str(steps))
    files.write(folder / INDEX_FILE, checkpoint_index(PLAN, RunOptions(steps=99), SavedStates(steps, side, {})))
    if previous:
        retire(folder, previous, retention)


def states_of(folder):
    index = read_index(folder)
    assert (folder / index.states / "tensors").read_text() == str(index.steps)
    return index.steps


@examples(30)
@given(
    st.lists(st.integers(1, 40), min_size=1, max_size=12, unique=True).map(sorted),
    st.integers(1, 4),
    st.none() | st.integers(1, 5),
)
def test_they_are_the_last_and_each_so_many_th(tmp_path_factory, saved, last, every):
    folder = tmp_path_factory.mktemp("run")
    for steps in saved:
        save(folder, steps, Retention(last, every))
    assert states_of(folder) == saved[-1]
    others = [steps for steps in saved[:-1] if not (every and steps % every == 0)]
    forever = [steps for steps in saved[:-1] if every and steps % every == 0]
    want = {*forever, *(others[len(others) - (last - 1) :] if last > 1 else [])}
    assert {*kept_steps(folder)} == want
    assert all(states_of(step_folder(folder, steps)) == steps for steps in want)
    assert len([path for path in folder.iterdir() if path.name.startswith("states-")]) == 1


def test_what_a_kill_left_is_no_checkpoint(tmp_path):
    for steps in (1, 2):
        save(tmp_path, steps, Retention(3))
    (tmp_path / KEPT / "moving").mkdir()
    assert kept_steps(tmp_path) == [1]
    save(tmp_path, 3, Retention(3))
    assert sorted(kept_steps(tmp_path)) == [1, 2] and not (tmp_path / KEPT / "moving").exists()


def test_kept_ones_take_the_place_of_damaged_ones_while_there_are_any(tmp_path):
    for steps in (1, 2, 5, 7):
        save(tmp_path, steps, Retention(4))
    for left in (5, 2, 1):
        assert put_back_kept(tmp_path) and states_of(tmp_path) == left
    assert not put_back_kept(tmp_path) and states_of(tmp_path) == 1
    save(tmp_path, 3, Retention(4))
    assert states_of(tmp_path) == 3 and kept_steps(tmp_path) == [1]
