"""The front page is short and complete, and what was on it is where it points: verbs, strategies, a job, the tree."""

import re
from pathlib import Path

import pytest

from planner import files
from planner.specs.hardware.node_cluster import NodeCluster
from planner.specs.job import Job
from planner.strategies import STRATEGIES
from tests.documents import DOCS, HOME, blocks, links

README = HOME / "README.md"
MOST_LINES = 120
HOUSE = (DOCS / "house.md").read_text(encoding="utf-8")


def tour() -> list[Path]:
    """What the tree of the house is to name."""
    apart = ("errors.py", "units.py")
    found = sorted((HOME / "planner").iterdir())
    return [path for path in found if not path.name.startswith("__") and path.name not in apart]


def test_the_front_page_is_read_in_a_minute():
    assert len(README.read_text(encoding="utf-8").splitlines()) <= MOST_LINES


def test_the_front_page_has_a_picture_and_leads_to_every_page_a_newcomer_needs():
    targets = set(links(README))
    assert "docs/plan.svg" in targets
    assert {f"docs/{page.name}" for page in DOCS.glob("*.md")} - {"docs/index.md", "docs/looking.md"} <= targets


def test_the_job_and_the_cluster_read():
    job, cluster = (each.text for each in blocks(DOCS / "jobs.md") if each.text.startswith("format:"))
    assert files.parse(job, Job, "docs/jobs.md").strategy in STRATEGIES
    assert files.parse(cluster, NodeCluster, "docs/jobs.md").size == 64


def test_every_verb_and_strategy_is_in_the_tables():
    from planner.cli.app import VERBS

    verbs = (DOCS / "cli.md").read_text(encoding="utf-8")
    jobs = (DOCS / "jobs.md").read_text(encoding="utf-8")
    for name in VERBS:
        assert f"`planner {name}" in verbs
    for strategy in STRATEGIES:
        assert f"| `{strategy}` |" in jobs


@pytest.mark.parametrize("path", tour(), ids=lambda path: path.name)
def test_the_tree_is_complete(path):
    name = path.name if path.is_file() else f"{path.name}/"
    assert re.search(rf"(^|\s){re.escape(name)}\s", HOUSE, re.MULTILINE), f"the tree of docs/house.md lacks {name}"
