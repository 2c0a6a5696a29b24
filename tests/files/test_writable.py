"""Before hours of work: whether what comes of it could be written."""

import pytest

from planner.errors import InputError
from planner.files.writable import require_folder, require_writable


def test_folders_that_are_missing_are_made_and_files_left_alone(tmp_path):
    require_writable(tmp_path / "a" / "b" / "new.jsonl", "--metrics")
    assert (tmp_path / "a" / "b").is_dir() and not (tmp_path / "a" / "b" / "new.jsonl").exists()
    (tmp_path / "old").write_text("kept")
    require_writable(tmp_path / "old", "--trace")
    assert (tmp_path / "old").read_text() == "kept"
    require_folder(tmp_path / "c" / "d", "--save")
    assert (tmp_path / "c" / "d").is_dir()


def test_what_cannot_be_written_is_refused(tmp_path):
    (tmp_path / "file").write_text("")
    for path, says in ((tmp_path, "a folder, not a file"), (tmp_path / "file" / "x", "cannot make the folder")):
        with pytest.raises(InputError, match=says) as refused:
            require_writable(path, "--trace")
        assert refused.value.where == f"--trace {path}" and refused.value.fix
