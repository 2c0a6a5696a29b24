"""The picture has a mark for every record, whatever records are called."""

import re
import xml.etree.ElementTree as ET

import pytest

from planner.ledger.accuracy_plot import COLOURS, SHAPES, accuracy_svg, source_mark, ticks
from planner.report.page import asset
from tests.ledger.made_predictions import account, case, prediction

SVG = "{http://www.w3.org/2000/svg}"


def uses(found):
    return ET.fromstring(accuracy_svg(found)).iter(f"{SVG}use")


def test_a_mark_for_every_measurement_and_every_source():
    cases = [
        case(at, source=f"s{at % 3}", seconds=1.5**at, memory_bytes=1e9 * at if at > 4 else None) for at in range(2, 9)
    ]
    found = account(cases, [], [prediction(1.6**at, 1.2e9 * at) for at in range(2, 9)])
    assert len([*uses(found)]) == 7 + 4 + 3


def test_names_are_text():
    found = account([case(2, source="<a&b>\"'")], [], [prediction()])
    titles = [one.text for use in uses(found) for one in use]
    assert titles == ["<a&b>\"' <a&b>\"'-2: 1 s measured, 1 predicted"]


def test_nothing_to_draw_is_a_picture_all_the_same():
    for cases in ([], [case(seconds=None, oom=True)]):
        assert not [*uses(account(cases, [], [prediction()] * len(cases)))]


def test_marks_differ():
    many = len(SHAPES) * len(COLOURS)
    assert len({source_mark(at, 0, 0) for at in range(many)}) == many


@pytest.mark.parametrize(("low", "high"), [(0.8, 1.3), (0.01, 300.0), (1e-3, 1e5)])
def test_axes_have_some_ticks_and_not_too_many(low, high):
    found = [*ticks(low, high)]
    assert 1 <= len(found) <= 14
    assert all(low <= tick <= high for tick in found)


def test_the_picture_is_the_same_twice():
    found = account([case(2), case(3, "b", seconds=2.0)], [], [prediction(), prediction(3.0)])
    assert accuracy_svg(found) == accuracy_svg(found)
    assert "prefers-color-scheme:dark" in accuracy_svg(found)


def test_hues_are_the_pages_and_stand_out_from_their_ground():
    """By 3 to 1, as WCAG 2.1 (1.4.11) wants it of graphics, at the opacity of a mark."""
    for mode, listed in enumerate(zip(*COLOURS, strict=True)):
        assert re.findall(r"--p[0-7]: (#[0-9a-f]{6})", asset("style.css"))[8 * mode : 8 * mode + 8] == [*listed]
    picture = accuracy_svg(account([case(2)], [], [prediction()]))
    grounds = re.findall(r"\.page\{fill:#(\w{6})\}", picture)
    opacity = float(re.search(r"fill-opacity:(\.\d+)", picture)[1])
    for mode, ground in enumerate(grounds):
        under = channels(ground)
        for pair in COLOURS:
            over = [opacity * a + (1 - opacity) * b for a, b in zip(channels(pair[mode][1:]), under, strict=True)]
            low, high = sorted((luminance(over), luminance(under)))
            assert (high + 0.05) / (low + 0.05) >= 3.0, pair
    assert len(grounds) == 2


def channels(colour: str) -> list[float]:
    return [int(colour[at : at + 2], 16) / 255 for at in (0, 2, 4)]


def luminance(rgb: list[float]) -> float:
    """Relative, by WCAG's definition."""
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in rgb]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
