"""Links between documents lead somewhere: files, and headings in them; a page of the site only to what is on it."""

from pathlib import Path

import pytest

from tests.documents import DOCS, PAGES, anchors, links, name_of


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_link_leads_to_a_file_and_a_heading_of_it(page: Path):
    for link in links(page):
        name, _, anchor = link.partition("#")
        target = (page.parent / name).resolve() if name else page
        assert target.is_file(), f"{link}: there is no such file"
        assert DOCS not in page.parents or target.is_relative_to(DOCS), f"{link}: it is not on the site"
        assert not anchor or anchor in anchors(target), f"{link}: there is no such heading"


def test_every_page_of_the_site_is_linked_from_another():
    """Beside the navigation: a reader comes to it from where it is needed."""
    linked = {(page.parent / link.partition("#")[0]).resolve() for page in PAGES for link in links(page)}
    assert [name_of(page) for page in PAGES if DOCS in page.parents and page not in linked] == [HOME_PAGE]


HOME_PAGE = "docs/index.md"
