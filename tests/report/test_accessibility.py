"""The rules of axe-core hold for every page, on a desk and on a phone, by day and by night."""

from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.examples import soaked
from tests.report.chromium import Chromium, browser
from tests.report.sample_pages import PLANS
from tests.report.test_pages import OTHERS, html_of

pytestmark = [
    pytest.mark.skipif(browser() is None, reason="there is no Chromium here: `make browser` installs it"),
    pytest.mark.slow,
]
RULES = """axe.run(document, {resultTypes: ["violations"]}).then((found) => found.violations.map(
  (rule) => `${rule.id}: ${rule.help}: ${rule.nodes.slice(0, 3).map((n) => n.html.slice(0, 99)).join(" | ")}`))"""


@pytest.fixture(scope="module")
def axe() -> str:
    """axe-core's source, from the package that carries it; nothing else of that package is used."""
    package = find_spec("axe_playwright_python")
    assert package and package.origin, "`make .venv/installed` installs axe-playwright-python"
    return Path(package.origin).with_name("axe.min.js").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def chromium():
    found = Chromium(browser() or "")
    yield found
    found.close()


NAMES = [*PLANS, *OTHERS]
WAYS = [(phone, dark) for phone in (False, True) for dark in (False, True)]
CASES = [(name, *way) for name in NAMES for way in WAYS]
OFTEN = [(name, *WAYS[at % len(WAYS)]) for at, name in enumerate(NAMES)]  # every page once, in turn each way


@pytest.mark.parametrize(("name", "phone", "dark"), soaked(CASES, OFTEN))
@pytest.mark.every(4)
def test_no_rule_is_broken(chromium, axe, tmp_path, name, phone, dark):
    path = tmp_path / "page.html"
    path.write_text(html_of(name), encoding="utf-8")
    chromium.open(path, 390 if phone else 1280, 844, dark=dark, phone=phone)
    chromium.run(axe)
    assert chromium.run(RULES) == []


@pytest.mark.soak
def test_a_rule_that_is_broken_is_found(chromium, axe, tmp_path):
    path = tmp_path / "page.html"
    path.write_text('<html data-ready="1"><body><img src="x"><p style="color:#bbb">pale</p></body></html>')
    chromium.open(path)
    chromium.run(axe)
    found = " ".join(chromium.run(RULES))
    assert "image-alt" in found and "color-contrast" in found and "html-has-lang" in found
