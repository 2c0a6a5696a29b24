"""What is written reads back the same, in every format, and the same data always gives the same bytes."""

import sys
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from planner import files
from planner.files import yaml_text as reading
from planner.plan.formats import FORMATS
from planner.plan.plan_file import Plan
from planner.specs.base import Indices, Layers, Ranks
from tests.examples import examples
from tests.generate import TEXT, instances

ROOT = Path(__file__).parents[2]
FILES = sorted([*(ROOT / "profiles").rglob("*.yaml"), *(ROOT / "tests/golden").rglob("*.yaml")])


@pytest.mark.slow
@pytest.mark.parametrize("kind", [kind for forms in FORMATS.values() for kind in forms], ids=lambda kind: kind.__name__)
def test_every_format_reads_back_what_was_written(kind):
    @examples(60)
    @given(instances(kind))
    def check(value):
        text = files.dump(value)
        again = files.parse(text, kind, "again")
        assert again == value
        assert files.dump(again) == text

    check()


@given(
    st.recursive(
        TEXT
        | st.integers(-(10**17), 10**17)
        | st.booleans()
        | st.none()
        | st.floats(allow_nan=False, allow_infinity=False),
        lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXT, inner, max_size=4),
        max_leaves=20,
    )
)
def test_plain_data_reads_back(data):
    assert reading.load_yaml(files.dump({"top": data}), "again")[0] == {"top": data}


@given(st.sets(st.integers(0, 500), min_size=1))
def test_indices_read_back(numbers):
    indices = Indices(sorted(numbers))
    assert Indices.from_file(indices.to_file()) == indices
    assert Ranks.from_file(str(indices)) == indices


@pytest.mark.parametrize(
    ("text", "indices"), [("0-3", (0, 1, 2, 3)), ("0-1,4-5", (0, 1, 4, 5)), ("0+2", (0, 2)), (7, (7,))]
)
def test_indices_are_ranges(text, indices):
    assert Layers.from_file(text) == indices


@pytest.mark.parametrize("text", ["", "a", "3-1", "1,1", "2,1", "-1", "0-", "0-200000", 1.5, None, "0-3 ", "١", True])
def test_what_is_no_set_of_indices_is_refused(text):
    with pytest.raises(ValueError, match=r" \| write"):
        Indices.from_file(text)


def test_an_empty_file_of_defaults_is_short():
    from planner.specs.job import Limits

    assert files.dump({"limits": Limits()}) == "limits: {}\n"


@pytest.mark.parametrize("path", FILES, ids=lambda path: "/".join(path.parts[-3:]))
@pytest.mark.every(12)
def test_the_slow_yaml_of_pure_python_says_the_same(path, monkeypatch):
    text = path.read_text(encoding="utf-8")
    data, places = reading.load_yaml(text, "fast")
    written = files.dump(data)
    monkeypatch.setattr(reading, "Loader", yaml.SafeLoader)
    monkeypatch.setattr(sys.modules["planner.files.write"], "Dumper", yaml.SafeDumper)
    assert reading.load_yaml(text, "slow") == (data, places)
    assert files.dump(data) == written


@pytest.mark.parametrize("path", [p for p in FILES if p.name == "plan.yaml" and "by_hand" not in p.parts], ids=str)
def test_plans_in_this_repository_are_written_as_they_stand(path):
    text = path.read_text(encoding="utf-8")
    assert files.dump(files.parse(text, Plan, str(path))) == text


@pytest.mark.parametrize("text", ["3%", "0.5%", "1e3", "12", "null", "true", "~"])
def test_text_that_would_be_read_as_another_value_is_quoted(text):
    assert files.dump({"note": text}) == f"note: '{text}'\n"
