"""The pages of file formats say what the specs say, of every key."""

import msgspec
import pytest

from planner.files.format_schema import structs_of
from planner.plan.formats import FORMATS
from tests.format_pages import FOLDER, page


@pytest.mark.parametrize("name", FORMATS)
def test_a_page_is_what_the_specs_say(name):
    assert (FOLDER / f"{name}.md").read_text(encoding="utf-8") == page(name), "python -m tests.format_pages writes it"


@pytest.mark.parametrize("name", FORMATS)
def test_every_key_of_a_format_is_on_its_page(name):
    text = (FOLDER / f"{name}.md").read_text(encoding="utf-8")
    for struct in structs_of(FORMATS[name]):
        below = text.partition(f"## {struct.__name__}\n")[2].partition("\n## ")[0]
        for field in msgspec.structs.fields(struct):
            assert f"`{field.encode_name}`" in below, f"{struct.__name__}.{field.encode_name}"


def test_there_is_no_page_besides():
    assert {path.stem for path in FOLDER.glob("*.md")} == {*FORMATS}
