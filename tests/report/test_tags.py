from hypothesis import given
from hypothesis import strategies as st

from planner.printable import printable
from planner.report.tags import json_script, tag, with_printable_text
from tests.report.decoding import Elements, data_of


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
