"""Counts of tokens per expert: from a file as from the job, and what is refused."""

import pytest

from planner.errors import InputError
from planner.specs.base import with_fields
from planner.specs.model import Model
from planner.specs.workload.expert_counts import CountsFile, with_expert_counts
from tests.costs.machines import LLAMA, MIXTRAL

MODEL = Model(format="planner.model/1", name="m", source="a test", modules={"llm": MIXTRAL})
ROWS = ((9.0, 5, 5, 5, 5, 5, 5, 5), (1.0, 2, 3, 4, 5, 6, 7, 8.5))


def test_a_file_says_what_rows_in_the_job_say(tmp_path):
    (tmp_path / "counts.csv").write_text("\n".join(",".join(map(str, row)) for row in ROWS) + "\n\n")
    job = tmp_path / "job.yaml"
    read = with_expert_counts(MODEL, {"llm": CountsFile(path="counts.csv")}, job)
    assert read == with_expert_counts(MODEL, {"llm": ROWS}, job)
    assert read.modules["llm"].moe.counts == ROWS
    assert with_expert_counts(MODEL, {}, job) == MODEL


@pytest.mark.parametrize(
    ("text", "said", "where"),
    [("1,2\n", "2 counts", "counts.csv"), ("1,x\n", "no row of counts", "counts.csv:1"), ("0,-1\n", "no row", ":1")],
)
def test_a_file_that_is_no_counts_is_refused_where_it_is_wrong(tmp_path, text, said, where):
    (tmp_path / "counts.csv").write_text(text)
    with pytest.raises(InputError, match=said) as caught:
        with_expert_counts(MODEL, {"llm": CountsFile(path="counts.csv")}, tmp_path / "job.yaml")
    assert where in str(caught.value)


def test_a_module_without_experts_has_no_counts(tmp_path):
    dense = with_fields(MODEL, modules={"llm": LLAMA})
    with pytest.raises(InputError, match="no module `llm` has experts"):
        with_expert_counts(dense, {"llm": ROWS}, tmp_path / "job.yaml")
    with pytest.raises(InputError, match="name one of llm"):
        with_expert_counts(MODEL, {"vit": ROWS}, tmp_path / "job.yaml")
