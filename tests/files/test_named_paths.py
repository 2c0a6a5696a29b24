"""What a file names is written inside its own folder only, and read only where it ends."""

import pytest

from planner.errors import InputError
from planner.files import inside, plain_name

WHERE = "plan.yaml (then.from)"


@pytest.mark.parametrize("named", ["steps", "a/b/../c", "./steps", "within", "later/steps"])
def test_a_path_inside_is_the_one_that_was_named(tmp_path, named):
    (tmp_path / "home" / "a").mkdir(parents=True)
    (tmp_path / "home" / "within").symlink_to("a")
    assert inside(tmp_path / "home", named, WHERE) == tmp_path / "home" / named


@pytest.mark.parametrize(
    "named", ["..", "../victim", "a/../../victim", "/tmp", "", ".", "a/..", "out", "out/steps", "dangling", "st\0eps"]
)
def test_a_path_that_leads_out_is_refused_where_it_is_named(tmp_path, named):
    home = tmp_path / "home"
    (home / "a").mkdir(parents=True)
    (tmp_path / "victim").mkdir()
    (home / "out").symlink_to(tmp_path / "victim")
    (home / "dangling").symlink_to("../nowhere")
    with pytest.raises(InputError, match="leads out of") as raised:
        inside(home, named, WHERE)
    assert raised.value.where == WHERE and raised.value.exit_code == 2


def test_the_folder_itself_may_be_reached_over_a_link(tmp_path):
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    assert inside(tmp_path / "link", "steps", WHERE) == tmp_path / "link" / "steps"
    with pytest.raises(InputError):
        inside(tmp_path / "link", "../link", WHERE)


@pytest.mark.parametrize("name", ["", ".", "..", "../a", "a/b", "/a", "a\\b", "a\0b"])
def test_an_entry_of_an_index_is_a_plain_name(name):
    assert plain_name("rank-3.safetensors", WHERE) == "rank-3.safetensors"
    with pytest.raises(InputError, match="no plain name"):
        plain_name(name, WHERE)
