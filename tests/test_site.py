"""The site of docs/: it builds without a warning, and its pages load nothing from the network."""

import os
import re
import subprocess
import sys

import pytest

from tests.documents import DOCS, HOME, PAGES, prose

LOADED = re.compile(r'(?:src="|<link [^>]*href=")((?:https?:)?//[^"]*)')


@pytest.mark.slow
def test_the_site_builds_and_loads_nothing(tmp_path):
    words = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(tmp_path)]
    done = subprocess.run(
        words, cwd=HOME, capture_output=True, text=True, env={**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    )
    assert done.returncode == 0, done.stderr
    built = sorted(tmp_path.rglob("*.html"))
    assert len(built) >= len([*DOCS.rglob("*.md")])
    assert {page.name: LOADED.findall(page.read_text(encoding="utf-8")) for page in built} == {
        page.name: [] for page in built
    }


@pytest.mark.parametrize("page", [page for page in PAGES if DOCS in page.parents], ids=lambda page: page.stem)
def test_no_code_in_a_table_has_a_bar(page):
    """GitHub shows an escaped one as a bar, the site with its stroke."""
    assert re.findall(r"`[^`\n]*\\\|[^`\n]*`", prose(page)) == []
