"""A write that was killed leaves nothing for long, and nothing of another's is removed."""

import os
import signal
import subprocess
import sys
from contextlib import suppress

import pytest

from planner.errors import InputError
from planner.files import atomic_write, write_text

ENDLESS = """
import sys
from planner.files import atomic_write
with atomic_write(sys.argv[1]) as out:
    out.write(b"half")
    out.flush()
    print(flush=True)
    input()
    out.write(b" whole")
"""


@pytest.fixture
def writer():
    """A function that starts a process which has begun to write a file, and goes on when it is told."""
    begun = []

    def begin(path):
        begun.append(subprocess.Popen([sys.executable, "-c", ENDLESS, str(path)], stdin=-1, stdout=-1, text=True))
        begun[-1].stdout.readline()
        return begun[-1]

    yield begin
    for process in begun:
        process.kill()
        process.communicate()


def test_what_killed_writers_left_goes_with_the_next_write_into_the_folder(tmp_path, writer):
    for name in ("model", "other"):
        process = writer(tmp_path / name)
        process.kill()
        process.wait()
    assert len(os.listdir(tmp_path)) == 1 == len(list(tmp_path.glob(".other.*")))  # the second has removed the first's
    write_text(tmp_path / "third", "text")
    assert os.listdir(tmp_path) == ["third"]


@pytest.mark.parametrize("name", ["same", "another"])
def test_what_a_living_writer_has_begun_stays(tmp_path, writer, name):
    process = writer(tmp_path / "same")
    write_text(tmp_path / name, "text")
    assert len(os.listdir(tmp_path)) == 2
    process.communicate("\n")
    assert process.returncode == 0 and (tmp_path / "same").read_text() == "half whole"
    assert set(os.listdir(tmp_path)) == {"same", name}


def test_files_of_the_users_with_such_names_stay(tmp_path):
    kept = [".model.safetensors.backup_1", ".model.safetensors.abcd1234", "notes.unfinished", ".git", ".unfinished.txt"]
    for name in kept:
        (tmp_path / name).touch()
    (tmp_path / ".folder.unfinished").mkdir()
    (tmp_path / ".link.unfinished").symlink_to(tmp_path / ".git")
    write_text(tmp_path / "model.safetensors", "text")
    assert set(os.listdir(tmp_path)) == {*kept, ".folder.unfinished", ".link.unfinished", "model.safetensors"}


@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), KeyError()], ids=["full", "other"])
def test_a_write_that_fails_leaves_the_file_as_it_was(tmp_path, error):
    (tmp_path / "file").write_text("before")
    with suppress(KeyError, InputError), atomic_write(tmp_path / "file") as out:
        out.write(b"half")
        raise error
    assert os.listdir(tmp_path) == ["file"] and (tmp_path / "file").read_text() == "before"


def test_a_write_that_is_ended_by_a_signal_leaves_nothing(tmp_path, writer):
    process = writer(tmp_path / "file")
    process.send_signal(signal.SIGINT)
    assert process.wait() and os.listdir(tmp_path) == []
