"""Launch scripts out and in: two commands from a model to a script, one from a script to a job, and what is refused."""

import json

import pytest
from typer.testing import CliRunner

from planner import files
from planner.cli.app import app
from planner.errors import InputError
from planner.specs.job import Job
from planner.specs.library import read_named, shipped_folder, shipped_names
from planner.specs.model import Model
from tests.examples import soaked
from tests.targets.launches import LAUNCHES
from tests.targets.parsers import script_of

ASKED = (
    "torchrun --nproc_per_node 8 pretrain_gpt.py --tensor-model-parallel-size 4 --pipeline-model-parallel-size 2 "
    "--num-layers 40 --hidden-size 5120 --num-attention-heads 40 --seq-length 4096 --micro-batch-size 1 "
    "--global-batch-size 128\n"
)
MEGATRON_JOBS = [name for name in shipped_names(Job) if read_named(name, Job)[0].software == "megatron"]
MORE = "--bf16 --use-distributed-optimizer --overlap-grad-reduce --overlap-param-gather --sequence-parallel"


def planner(*words, code=0):
    """What the command prints."""
    done = CliRunner().invoke(app, [*map(str, words)])
    assert done.exit_code == code, (done.output, done.exception)
    return done.stdout


def refused(*words):
    """The error of a command that writes nothing."""
    done = CliRunner().invoke(app, [*map(str, words)])
    assert isinstance(done.exception, InputError), done.output
    return done.exception


@pytest.fixture
def script(tmp_path):
    """A script with more arguments, or others."""

    def write(more="", text=ASKED):
        path = tmp_path / "launch.sh"
        path.write_text(text.replace("pretrain_gpt.py", f"pretrain_gpt.py {more}"))
        return path

    return write


def test_a_line_that_people_ask_about_becomes_a_job(script, tmp_path):
    """With the defaults of Megatron where it says nothing: no sequence parallelism, no ZeRO, no overlap, float32."""
    answer = json.loads(planner("import", "megatron", script(), "--gpus", "64xh100", "-o", tmp_path / "j", "--json"))
    job, model = files.read(tmp_path / "j" / "job.yaml", Job), files.read(tmp_path / "j" / "model.yaml", Model)
    layout, llm = job.fix.layouts["llm"], model.modules["llm"]
    assert (layout.tp, layout.pp, layout.zero, layout.dtype, layout.sequence_parallel) == (4, 2, 0, "float32", False)
    assert (llm.layers, llm.ffn, llm.vocab, llm.positions, llm.gated) == (40, 20480, 50688, "learned", False)
    assert answer["defaults"]["--vocab-size"] == "50257" and answer["defaults"]["--ffn-hidden-size"] == "20480"
    assert (tmp_path / "j" / "software.yaml").exists()  # of a program that exchanges nothing beside compute
    for verb in ("fits", "predict"):
        assert "40" not in planner(verb, tmp_path / "j" / "job.yaml", "--json")[:1]


def test_the_job_that_is_exported_is_the_script_again(script, tmp_path):
    planner("import", "megatron", script(MORE), "--gpus", "64xh100", "-o", tmp_path / "a")
    planner("export", tmp_path / "a" / "job.yaml", "--to", "megatron", "-o", tmp_path / "again.sh")
    planner("import", "megatron", tmp_path / "again.sh", "--gpus", "64xh100", "-o", tmp_path / "b")
    first, second = (files.read(tmp_path / folder / "job.yaml", Job) for folder in "ab")
    assert first.fix == second.fix and first.workload == second.workload and first.software == second.software
    again = [files.read(tmp_path / folder / "model.yaml", Model).modules for folder in "ab"]
    assert again[0] == again[1]


@pytest.mark.soak
def test_what_is_better_is_a_diff_of_flags(script, tmp_path):
    """No slower than before; every flag that goes is one of the script's."""
    planner("import", "megatron", script(), "--gpus", "64xh100", "-o", tmp_path / "j")
    first, *lines = planner(
        "export", tmp_path / "j" / "job.yaml", "--to", "megatron", "--better", "-o", "-"
    ).splitlines()
    before, after = (float(part.split(" s a step")[0].split()[-1]) for part in first.split("; "))
    assert after <= before and "less" in first
    assert "+ --overlap-grad-reduce" in lines
    assert {line.split()[1] for line in lines if line.startswith("-")} <= {*ASKED.split(), "--vocab-size"}
    answer = json.loads(planner("why-not", tmp_path / "j" / "job.yaml", "recompute=full", "--json"))
    assert answer["seconds"] > 0


REFUSED = {  # arguments, and what is told of which
    "--num-layerz 3": ("is not known", "--num-layerz", "--num-layers"),
    "--tensor-model-parallel-size 3": ("do not divide", "--tensor-model-parallel-size", "--gpus"),
    "--num-attention-heads 30": ("30 heads cannot", "--tensor-model-parallel-size", "divides"),
    "--micro-batch-size 0": ("micro_batch is 0", "--micro-batch-size", "another"),
    "--num-layers many": ("no whole number", "--num-layers", "8"),
    "--num-layers 41": ("41 layers", "--pipeline-model-parallel-size", "divides"),
    "--optimizer muon": ("none that a plan can have", "--optimizer", "adam"),
    "--bf16 yes": ("has no value", "--bf16", "leave"),
    "--recompute-granularity full --recompute-num-layers 2": ("one input", "--recompute-num-layers", "block"),
    "--use-torch-fsdp2": ("does not go with --pipeline-model-parallel-size", "--use-torch-fsdp2", "one of them"),
    "--bf16 --fp16": ("does not go with --bf16", "--fp16", "one of them"),
    "--overlap-param-gather": ("needs --overlap-grad-reduce", "--overlap-param-gather", "both"),
    "--fp8-format hybrid false": ("2 values", "--fp8-format", "VALUE"),
    "--num-layers-per-virtual-pipeline-stage 5 --num-virtual-stages-per-pipeline-rank 2": (
        "does not go with --num-layers-per-virtual-pipeline-stage",
        "--num-virtual-stages-per-pipeline-rank",
        "one of them",
    ),
    "--pipeline-model-parallel-layout 'Et*20|t*20L' --num-virtual-stages-per-pipeline-rank 2": (
        "does not go with",
        "--num-virtual-stages-per-pipeline-rank",
        "one of them",
    ),
    "--global-batch-size 100": ("no multiple", "--global-batch-size", "batch_rows"),
    "--num-experts 128 --expert-model-parallel-size 128": (
        "mesh holds 512",
        "--expert-model-parallel-size",
        "ep x etp",
    ),
}


@pytest.mark.parametrize("more", REFUSED)
def test_bad_input_is_refused_at_its_argument_and_nothing_is_written(more, script, tmp_path):
    message, argument, fix = REFUSED[more]
    text = ASKED.strip() + f" {more}\n"
    error = refused("import", "megatron", script(text=text), "--gpus", "64xh100", "-o", tmp_path / "none")
    assert message in error.message and fix in error.fix
    assert error.where.startswith(f"{tmp_path / 'launch.sh'}:1 (") and argument in error.where
    assert not (tmp_path / "none").exists()


@pytest.mark.parametrize(
    ("ranks", "said"),
    [
        ("--nproc_per_node 8 --nnodes 8", ""),
        ("--nproc_per_node 4 --nnodes 16", "64 ranks, 4 a node"),
        ("--nproc_per_node 8", "8 ranks, 8 a node"),
        ("--nproc_per_node $GPUS", ""),
    ],
)
def test_other_ranks_than_those_that_are_asked_about_are_said(ranks, said, script, tmp_path):
    text = ASKED.replace("--nproc_per_node 8", ranks)
    shown = planner("import", "megatron", script(text=text), "--gpus", "64xh100", "-o", tmp_path / "j")
    assert (f"the file starts: {said}, and not 64, 8 a node" in shown) == ("the file starts" in shown) == bool(said)


def test_no_other_file_is_written_over_nor_beside(script, tmp_path):
    (tmp_path / "j").mkdir()
    (tmp_path / "j" / "notes.txt").write_text("mine\n")
    error = refused("import", "megatron", script(), "--gpus", "64xh100", "-o", tmp_path / "j")
    assert "other files, such as notes.txt" in error.message and "-o" in error.fix
    assert [path.name for path in (tmp_path / "j").iterdir()] == ["notes.txt"]
    for _ in range(2):  # its own files once more
        planner("import", "megatron", script(MORE), "--gpus", "64xh100", "-o", tmp_path / "a")
    error = refused("import", "megatron", script(), "--gpus", "64xh100", "-o", tmp_path / "a")
    assert error.message == "there is another file already" and "-o" in error.fix
    (tmp_path / "mine.sh").write_text("mine\n")
    job = tmp_path / "a" / "job.yaml"
    assert refused("export", job, "--to", "megatron", "-o", tmp_path / "mine.sh").message == error.message
    assert (tmp_path / "mine.sh").read_text() == "mine\n"
    for words in (("export", job, "--to", "megatron"), ("import", "megatron", script(MORE), "--gpus", "64xh100")):
        error = refused(*words, "-o", tmp_path / "none" / "deeper" / "x")
        assert error.message == f"there is no folder {tmp_path / 'none'}" and "mkdir -p" in error.fix
        assert not (tmp_path / "none").exists()


@pytest.mark.slow
def test_what_it_cannot_launch_has_the_best_that_it_can_as_its_fix(tmp_path):
    text = "format: planner.job/1\nname: own\nmodel: llama-3-8b\ncluster: h100x64\nsoftware: any\n"
    text += "workload: {lengths: 4096, batch_rows: 256}\nfix: {layouts: {llm: {pp: 4, schedule: gpipe, zero: 1}}}\n"
    (tmp_path / "job.yaml").write_text(text)
    error = refused("export", tmp_path / "job.yaml", "--to", "megatron", "-o", tmp_path / "none.sh")
    assert "no schedule gpipe (rule: schedule)" in error.message and "layouts.llm" in error.where
    assert "whose best is {tp:" in error.fix and "% less" in error.fix
    assert not (tmp_path / "none.sh").exists()


def test_the_shipped_script_is_the_one_that_its_launch_exports():
    assert (shipped_folder() / "launches" / "llama-3-70b-h100x64.sh").read_text() == script_of("dense-vpp")
    assert LAUNCHES["dense-vpp"].ranks == 64


@pytest.mark.slow
@pytest.mark.parametrize("name", soaked(MEGATRON_JOBS, ["k2-65b-h100x480"]))
def test_every_shipped_job_for_megatron_exports_its_best(name, tmp_path):
    planner("solve", name, "-o", tmp_path / "plan.yaml")
    planner("export", tmp_path / "plan.yaml", "--to", "megatron", "-o", tmp_path / "launch.sh")
    assert "torchrun" in (tmp_path / "launch.sh").read_text()
