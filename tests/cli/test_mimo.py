"""Encoders beside an LLM go out to Megatron's MIMO examples and come back; what these are not told of is refused."""

import pytest

from planner import files
from planner.errors import InputError
from planner.export import export_plan
from planner.specs.job import Job
from planner.workflows import launching
from tests.cli.test_launches import planner, refused

MODEL = """format: planner.model/1
name: seeing
source: made for this test
modules:
  vision: {kind: vit, layers: 3, hidden: 96, heads: 4, ffn: 256, patch: 4, merge: 2, out: 192,
           resize: {rule: smart, min_pixels: 256, max_pixels: 4096}}
  llm: {kind: decoder, layers: 4, hidden: 192, heads: 4, ffn: 512, vocab: 128, gated: true, norm: rms, bias: none,
        positions: rope, tied: false}
edges: [{from: vision, to: llm}]
"""
JOB = """format: planner.job/1
name: seen
model: ./model.yaml
cluster: h200x8
software: megatron
strategy: modality_layout
workload: {{lengths: {{from: sample_mix, text: {text}, images: {{sizes: [[64, 64]]}}}}, batch_rows: 16, module: llm}}
fix:
  layouts:
    vision: {{zero: 1, recompute: none, overlap: [], {vision}}}
    llm: {{zero: 1, recompute: none, micro_batch: 1, overlap: [], {llm}}}
"""
APART = {"vision": "ranks: 0-3", "llm": "ranks: 4-7"}
TOGETHER = {"vision": "tp: 2", "llm": "tp: 2"}


@pytest.fixture
def job(tmp_path):
    """A job with these layouts."""

    def write(vision, llm, text=48):
        (tmp_path / "model.yaml").write_text(MODEL)
        (tmp_path / "job.yaml").write_text(JOB.format(vision=vision, llm=llm, text=text))
        return tmp_path / "job.yaml"

    return write


@pytest.mark.parametrize(("layouts", "program"), [(APART, "-m examples.mimo.pretrain_mimo"), (TOGETHER, "train.py")])
@pytest.mark.every(2)
def test_encoders_go_out_and_come_back(layouts, program, job, tmp_path):
    wanted = files.read(job(**layouts), Job)
    planner("export", tmp_path / "job.yaml", "--to", "megatron", "-o", tmp_path / "a.sh")
    assert program in (tmp_path / "a.sh").read_text()
    asked = refused("import", "megatron", tmp_path / "a.sh", "--gpus", "8xh200", "-o", tmp_path / "j")
    assert asked.fix.startswith("--set encoders=")
    given = ("--set", f"encoders={tmp_path / 'model.yaml'}", "--set", "images=64x64")
    planner("import", "megatron", tmp_path / "a.sh", "--gpus", "8xh200", "-o", tmp_path / "j", *given)
    read = files.read(tmp_path / "j" / "job.yaml", Job)
    assert read.workload == wanted.workload
    planner("export", tmp_path / "j" / "job.yaml", "--to", "megatron", "-o", tmp_path / "b.sh")
    first, second = ((tmp_path / name).read_text().splitlines() for name in ("a.sh", "b.sh"))
    assert first[2:] == second[2:]


REFUSED = {  # changed layouts → where, and part of the message
    "zero": (APART, "llm", "zero: 3", "layouts.llm.zero", "zero: 3"),
    "cp": (APART, "llm", "cp: 2, micro_batch: 2", "layouts.llm.cp", "cp is 1, and not 2"),
    "recompute": (TOGETHER, "vision", "recompute: full", "layouts.vision.recompute", "recompute: full"),
    "other tp": (TOGETHER, "vision", "tp: 1", "steps", "on other ranks"),
    "pipeline": (TOGETHER, "llm", "tp: 1, pp: 2", "steps", "on other ranks"),
    "last ranks": ({"vision": "ranks: 4-7", "llm": "ranks: 0-3"}, "llm", "tp: 1", "layouts.llm.ranks", "4-7"),
}


@pytest.mark.parametrize("case", REFUSED)
@pytest.mark.every(2)
def test_what_no_argument_says_is_refused_with_its_field(case, job):
    layouts, module, changed, where, message = REFUSED[case]
    own = {key: value for key, _, value in (part.partition(": ") for part in changed.split(", "))}
    path = job(**layouts)
    lines = path.read_text().splitlines()
    at = next(number for number, line in enumerate(lines) if line.startswith(f"    {module}: "))
    fields = dict(part.split(": ") for part in lines[at].partition(": ")[2].strip("{}").split(", "))
    text = ", ".join(f"{key}: {value}" for key, value in (fields | own).items())
    lines[at] = f"    {module}: {{{text}}}"
    path.write_text("\n".join([*lines, ""]))
    with pytest.raises(InputError) as error:
        export_plan(launching.plan_at(str(path))[0], "megatron")
    assert error.value.where == where and message in error.value.message, error.value


def test_samples_of_unlike_lengths_are_refused(job, tmp_path):
    path = job(**APART, text="{from: mix, parts: [{weight: 1, median: 64, sigma: 1}]}")
    error = refused("export", path, "--to", "megatron", "-o", tmp_path / "none.sh")
    assert "one length of sequences" in error.message and "images of one size" in error.fix


@pytest.mark.soak
def test_a_search_beside_a_refusal_ends_in_a_plan_that_can_be_told(job, tmp_path):
    error = refused("export", job("tp: 2, gradients: bf16", "tp: 2"), "--to", "megatron", "-o", tmp_path / "n")
    assert "of all modules alike vision {tp: 1" in error.fix and " less" in error.fix
    for layouts, told in ((APART, "less, simulated\n- --encoder-tp"), (TOGETHER, "less, simulated\n- --tensor-model")):
        assert told in planner("export", job(**layouts), "--to", "megatron", "--better", "-o", "-")
