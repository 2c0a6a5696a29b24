import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.printable import printable
from planner.report.tags import Markup, escaped, join, json_script, table, tag, with_printable_text
from tests.report.decoding import Elements, data_of
from tests.report.sample_pages import EVIL


@given(st.text())
def test_text_stays_text(text):
    page = Elements(tag("p", text, title=text))
    assert page.found == [("p", {"title": text_of(text)})]
    assert "".join(page.text) == text_of(text)


def text_of(text: str) -> str:
    """As a browser's parser gives it back."""
    return printable(text)


@given(
    st.recursive(
        st.text() | st.integers() | st.none(), lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner)
    )
)
def test_an_island_holds_any_data_and_no_text_leaves_it(data):
    html = json_script(data)
    inside = html.removeprefix('<script type="application/json" id="data">').removesuffix("</script>")
    assert not {*"<>&\u2028\u2029"} & {*inside}
    assert data_of(html) == with_printable_text(data)


def test_half_a_surrogate_pair_can_be_written():
    assert (tag("p", "a\ud800b") + json_script(["\ud800"])).encode("utf-8")


def test_markup_is_not_escaped_twice():
    assert join(tag("b", "<"), "<", [Markup("<br>"), None]) == "<b>&lt;</b>&lt;<br>"


def test_attributes():
    assert tag("td", class_="num", hidden=True, title=None, data_step=3, aria_label=False) == (
        '<td class="num" hidden data-step="3"></td>'
    )


def test_rows_of_a_table_fill_its_columns():
    with pytest.raises(ValueError):
        table(("a", ">b"), [("1",)])


def test_evil_is_escaped():
    assert "<img" not in escaped(EVIL)
    assert "<img" not in json_script({EVIL: EVIL})
