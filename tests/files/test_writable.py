"""Before hours of work: whether its output files can be written."""

import re
from pathlib import Path

import pytest
import typer

from planner.cli.app import app
from planner.errors import InputError
from planner.files.named_paths import FOLDER_FIX, path_exists, require_folder, require_writable


def test_folders_for_files_that_are_missing_are_made_and_other_files_left_alone(tmp_path):
    require_writable(tmp_path / "a" / "b" / "new.jsonl", "--metrics")
    assert not (tmp_path / "a").exists()  # as nothing is written yet
    (tmp_path / "old").write_text("kept")
    require_writable(tmp_path / "old", "--trace")
    assert (tmp_path / "old").read_text() == "kept"
    require_folder(tmp_path / "c" / "d", "--save")
    assert (tmp_path / "c" / "d").is_dir()


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="no folder that takes files from nobody")
def test_a_folder_that_takes_no_file_is_refused():
    with pytest.raises(InputError, match="cannot write in the folder") as refused:
        require_folder(Path("/proc"), "--save /proc")
    assert (refused.value.where, refused.value.fix) == ("--save /proc", FOLDER_FIX)


def test_names_that_no_file_can_have_are_refused(tmp_path):
    long = tmp_path / ("a" * 300)
    for ask in (require_writable, require_folder, path_exists):
        with pytest.raises(InputError, match="too long") as refused:
            ask(long, "--save")
        assert refused.value.fix
    assert path_exists(tmp_path, "") and not path_exists(tmp_path / "x", "")


def test_what_cannot_be_written_is_refused(tmp_path):
    (tmp_path / "file").write_text("")
    for path, says in ((tmp_path, "a folder, not a file"), (tmp_path / "file" / "x", "cannot make the folder")):
        with pytest.raises(InputError, match=says) as refused:
            require_writable(path, "--trace")
        assert refused.value.where == f"--trace {path}" and refused.value.fix


ASKS_LATER = {"export -o", "export --better", "import -o"}  # whose answers are there at once; test_launches.py


def file_options():
    """Every option of a verb that names a file to write, by its help."""
    for name, verb in typer.main.get_command(app).commands.items():
        for option in verb.params:
            if re.match(r"Write |Also write |(Plan f|F)ile to write", getattr(option, "help", None) or ""):
                yield pytest.param(option, id=f"{name} {option.opts[0]}")


@pytest.mark.parametrize("option", [each for each in file_options() if each.id not in ASKS_LATER])
def test_every_verb_asks_before_it_works(option, tmp_path):
    with pytest.raises(InputError, match="this is a folder"):
        option.callback(None, option, tmp_path)
