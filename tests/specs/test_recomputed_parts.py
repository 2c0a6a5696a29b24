"""Sets of recomputed parts in files: each has one spelling, and what is misspelt is told with its place."""

from itertools import permutations

import pytest

from planner import files
from planner.errors import InputError
from planner.plan.descriptions import flow_text
from planner.specs.job import Job
from planner.specs.parallelism import PART_SETS, RECOMPUTED_PARTS, Parallelism, parts_of, recompute_of

JOB = """format: planner.job/1
name: parts
model: llama-3-8b
cluster: h100x64
strategy: parallel_search
workload: {lengths: 4096, batch_rows: 8}
layout: {recompute: HOW}
"""


def read_recompute(folder, text):
    (folder / "job.yaml").write_text(JOB.replace("HOW", text))
    return files.read(folder / "job.yaml", Job).layout.recompute


def test_every_set_has_one_spelling():
    spelt = {recompute_of(parts) for size in range(5) for parts in permutations(RECOMPUTED_PARTS, size)}
    assert spelt == {"none", "selective", *PART_SETS} and len(spelt) == 2 ** len(RECOMPUTED_PARTS)
    assert all(recompute_of(parts_of(each)) == each for each in spelt)


@pytest.mark.parametrize("how", ["none", "selective", "full", *PART_SETS], ids=flow_text)
def test_what_is_written_is_read(how, tmp_path):
    assert read_recompute(tmp_path, flow_text(how)) == how
    by_range = {"0-3": how, 5: "full"}
    assert read_recompute(tmp_path, flow_text(by_range)) == by_range
    if isinstance(how, tuple):
        assert read_recompute(tmp_path, flow_text(how[::-1])) == how


def test_the_usual_set_is_called_by_its_name(tmp_path):
    assert read_recompute(tmp_path, "[mlp, norm]") == "selective"
    assert Parallelism(recompute={"0-1": ("mlp", "norm")}).recompute == {"0-1": "selective"}


@pytest.mark.parametrize(
    ("text", "message", "fix"),
    [
        ("[norm, mpl]", "`mpl` is not possible here", "did you mean `mlp`?"),
        ("{0-3: [atention]}", "`atention` is not possible here", "did you mean `attention`?"),
        ("[norm, norm]", "names `norm` twice", "each part once"),
        ("[]", "expected a list", "a list"),
        ("selectiv", "`selectiv` is not possible here", "did you mean `selective`?"),
    ],
)
def test_what_is_misspelt_is_told_with_its_place(text, message, fix, tmp_path):
    with pytest.raises(InputError) as raised:
        read_recompute(tmp_path, text)
    assert message in raised.value.message and fix in raised.value.fix and "job.yaml:7:" in raised.value.where
