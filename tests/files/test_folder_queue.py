"""What is offered in a folder queue is taken once and complete, however often it is replaced; locks end with their
holder.
"""

import multiprocessing
import os
import random
import signal
import time

import pytest

from planner.errors import InputError
from planner.files.file_lock import hold_lock, is_locked
from planner.files.folder_queue import FolderQueue

PIECES = 300
LINES = 40


def text(number, version):
    """Whole only if all lines say the same."""
    return f"{number} {version}\n" * LINES


def produce(folder, window):
    """Offer the next pieces, and replace them again and again until they are taken."""
    slots, versions = FolderQueue(folder), dict.fromkeys(range(PIECES), 0)
    rng = random.Random(1)
    position = 0
    while position < PIECES:
        while position < PIECES and slots.taken(position):
            position += 1
        for number in range(position, min(position + window, PIECES)):
            if not slots.offered(number) and not slots.taken(number):
                assert not versions[number], f"{number} was lost"
                slots.offer(number, {"a": text(number, 0)})
                versions[number] = 1
            elif rng.random() < 0.7 and slots.replace(number, "a", text(number, versions[number])):
                versions[number] += 1


@pytest.mark.slow
@pytest.mark.parametrize("window", [1, 4])
@pytest.mark.every(2)
def test_every_piece_is_taken_once_and_whole_while_it_is_replaced(tmp_path, window):
    slots = FolderQueue(tmp_path / "folder")
    slots.reset_taken()
    producer = multiprocessing.get_context("spawn").Process(target=produce, args=(slots.folder, window))
    producer.start()
    rng = random.Random(2)
    later = 0
    for number in range(PIECES):
        while (mine := slots.take(number)) is None:
            assert producer.is_alive(), f"{number} was never offered"
        lines = (mine / "a").read_text().splitlines()
        assert len(lines) == LINES and len(set(lines)) == 1
        assert lines[0].split()[0] == str(number)
        later += lines[0].split()[1] != "0"
        assert slots.take(number) is None
        time.sleep(rng.random() * 2e-3)
    producer.join(30)
    assert producer.exitcode == 0
    assert later > PIECES / 4  # replaced while they were offered, not only before
    assert not [name for name in os.listdir(slots.folder) if name.isdecimal()]
    assert slots.next(0) == PIECES


def test_what_was_taken_is_not_offered_again_by_replacing(tmp_path):
    slots = FolderQueue(tmp_path)
    slots.reset_taken()
    slots.offer(3, {"a": "old"})
    assert slots.replace(3, "a", "new")
    mine = slots.take(3)
    assert (mine / "a").read_text() == "new"
    assert not slots.replace(3, "a", "newer")
    assert not slots.offered(3) and slots.taken(3) and slots.take(3) is None
    assert (mine / "a").read_text() == "new"
    assert sorted(os.listdir(tmp_path)) == ["taken"]


def test_rewinding_forgets_what_was_taken_and_clearing_all(tmp_path):
    slots = FolderQueue(tmp_path)
    slots.reset_taken()
    for number in (1, 2):
        slots.offer(number, {"a": ""})
    slots.take(1)
    assert slots.next(1) == 2
    slots.reset_taken()
    assert slots.next(1) == 1 and slots.offered(2) and not slots.taken(1)
    slots.clear()
    assert os.listdir(tmp_path) == ["taken"]


@pytest.mark.parametrize("left", [(), (".item", "b"), (".item",)], ids=["begun", "half", "half removed"])
def test_a_piece_left_half_by_a_killed_process_is_made_again(tmp_path, left):
    slots = FolderQueue(tmp_path)
    slots.reset_taken()
    (tmp_path / ".5").mkdir()
    for name in left:
        (tmp_path / ".5" / name).write_text("half")
    assert not slots.offered(5)
    slots.offer(5, {"a": "whole"})
    assert sorted(os.listdir(slots.take(5))) == [".item", "a"]


@pytest.mark.parametrize("hidden", ["", "."])
@pytest.mark.parametrize("holds", [["mine"], []], ids=["full", "empty"])
def test_a_folder_of_the_users_is_no_item(tmp_path, holds, hidden):
    """Numbered as items are: it is neither taken nor removed, and nothing is put in its place."""
    slots = FolderQueue(tmp_path)
    slots.reset_taken()
    others = [tmp_path / f"{hidden}2019", tmp_path / "taken" / "2020"]
    for folder in others:
        folder.mkdir()
        for name in holds:
            (folder / name).write_text("of the user")
    slots.offer(7, {"a": ""})
    assert not slots.offered(2019) and slots.take(2019) is None and slots.next(3) == 3 and slots.take(7)
    slots.clear()
    slots.withdraw(2020)
    assert not slots.taken(7) and all(sorted(os.listdir(folder)) == holds for folder in others if not hidden or holds)
    if not hidden or holds:
        with pytest.raises(InputError, match="cannot make the folder: File exists") as raised:
            slots.offer(2019, {"a": ""})
        assert raised.value.where == str(tmp_path / "2019")


def test_nothing_is_written_through_a_link(tmp_path):
    outside, queue = tmp_path / "outside", tmp_path / "queue"
    (outside / "7").mkdir(parents=True)
    (outside / "7" / ".item").touch()
    (outside / "file").write_text("of the user")
    queue.mkdir()
    slots = FolderQueue(queue)
    (queue / "taken").symlink_to(outside)
    with pytest.raises(InputError, match="leads out of"):
        slots.clear()
    (queue / "taken").unlink()
    slots.clear()
    slots.offer(1, {"a": ""})
    (queue / ".a").symlink_to(outside / "file")
    (queue / "8").symlink_to(outside / "7")
    assert slots.replace(1, "a", "new") and not slots.offered(8)
    (queue / "lock").symlink_to(outside / "new")
    with pytest.raises(InputError, match="cannot write"):
        is_locked(queue / "lock")
    slots.clear()
    assert (outside / "file").read_text() == "of the user" and sorted(os.listdir(outside)) == ["7", "file"]


def test_a_folder_that_cannot_be_made_is_an_input_error(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="cannot make the folder"):
        FolderQueue(tmp_path / "file").reset_taken()


def hold_for_ever(path, held):
    with hold_lock(path, "another"):
        held.set()
        signal.pause()


@pytest.mark.slow
def test_a_lock_is_held_as_long_as_its_process_lives(tmp_path):
    path = tmp_path / "lock"
    assert not is_locked(path)
    processes = multiprocessing.get_context("spawn")
    held = processes.Event()
    holder = processes.Process(target=hold_for_ever, args=(path, held))
    holder.start()
    held.wait()
    with pytest.raises(InputError, match="another already"), hold_lock(path, "another"):
        pass
    os.kill(holder.pid, signal.SIGKILL)
    holder.join()
    assert not is_locked(path)
    with hold_lock(path, "another"):
        assert is_locked(path)
    assert not is_locked(path)
