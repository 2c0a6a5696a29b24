"""What the documents say of the code is there: paths, the functions of the walks, the terms' places."""

import ast
import re
from pathlib import Path

import pytest

from tests.house import MARK

HOME = Path(__file__).parents[1]
CONTRIBUTING = (HOME / "CONTRIBUTING.md").read_text(encoding="utf-8")
README = (HOME / "README.md").read_text(encoding="utf-8")
HOUSE = (HOME / "docs" / "house.md").read_text(encoding="utf-8")
CONCEPTS = (HOME / "docs" / "concepts.md").read_text(encoding="utf-8")
WALKS = CONTRIBUTING.partition("## Three walks\n")[2].partition("\n## ")[0]
MOST_STOPS = 12
PLACE = re.compile(r"`((?:[\w.-]+/)*[\w.-]+(?:\.py|/)(?:[\w.-]+)?)(?::[\w.]+)?`")
DOCUMENTS = {
    "docs/concepts.md": CONCEPTS,
    "CONTRIBUTING.md": CONTRIBUTING,
    "docs/house.md": HOUSE,
}


def stops() -> list[tuple[str, str]]:
    """File and function of each stop."""
    return re.findall(r"^\d+\. `([\w/.]+\.py):([\w.]+)`", WALKS, re.MULTILINE)


def functions(path: Path) -> set[str]:
    """The functions of a file, and the methods of its classes as `Class.method`."""
    found = set()
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.FunctionDef):
            found.add(node.name)
        elif isinstance(node, ast.ClassDef):
            found |= {f"{node.name}.{each.name}" for each in node.body if isinstance(each, ast.FunctionDef)}
    return found


def is_there(place: str) -> bool:
    """Whether a file or folder is below planner/, or at the top."""
    return any((root / place).is_dir() if place.endswith("/") else (root / place).exists() for root in ROOTS)


ROOTS = (HOME / "planner", HOME)


@pytest.mark.parametrize("stop", stops(), ids=lambda stop: ":".join(stop))
def test_every_stop_of_a_walk_is_a_function(stop):
    path, name = stop
    assert name in functions(HOME / path)


def test_three_walks_have_few_stops():
    walks = re.split(r"^\*\*.*$", WALKS, flags=re.MULTILINE)[1:]
    counts = [len(re.findall(r"^\d+\. `", walk, re.MULTILINE)) for walk in walks]
    assert len(counts) == 3 and all(1 < count <= MOST_STOPS for count in counts)
    assert sum(counts) == len(stops())


@pytest.mark.parametrize("name", DOCUMENTS)
def test_every_place_in_a_document_is_there(name):
    places = {place for place in PLACE.findall(DOCUMENTS[name]) if "<" not in place}
    assert places
    assert [place for place in sorted(places) if not is_there(place)] == []


def test_the_tree_of_the_house_names_packages():
    tree = HOUSE.split(MARK)[1]
    assert [name for name in re.findall(r"^  (\S+)", tree, re.MULTILINE) if not is_there(name)] == []


def test_the_glossary_is_linked():
    assert all("(docs/concepts.md)" in text for text in (README, CONTRIBUTING))
