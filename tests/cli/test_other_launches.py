"""torchtitan, DeepSpeed, Accelerate and launchers through both verbs: files out, jobs in, and what is refused."""

import json

import pytest

from planner import files
from planner.specs.job import Job
from tests.cli.test_launches import planner, refused
from tests.targets.torchtitan_parsers import file_of as torchtitan_file

JOB = """format: planner.job/1
name: mine
model: llama-3-8b
cluster: h100x64
software: {software}
workload: {{lengths: 4096, batch_rows: 256}}
fix: {{layouts: {{llm: {layout}}}}}
"""
LAYOUTS = {
    "torchtitan": "{tp: 2, pp: 2, zero: 2, micro_batch: 1, recompute: full}",
    "deepspeed": "{zero: 2, micro_batch: 1, recompute: full}",
    "accelerate": "{tp: 2, zero: 3, micro_batch: 1}",
}
LEFT = ("model=llama-3-8b", "seq_length=4096", "recompute=full", "micro_batch_size=1", "batch_size=256")


@pytest.fixture
def job(tmp_path):
    def write(to, layout=""):
        path = tmp_path / "job.yaml"
        software = {"accelerate": "fsdp"}.get(to, to)
        path.write_text(JOB.format(software=software, layout=layout or LAYOUTS[to]))
        return path

    return write


@pytest.mark.slow
@pytest.mark.parametrize(
    ("to", "version", "name"),
    [
        ("torchtitan", "0.2", "x.toml"),
        ("torchtitan", "0.3", "x.sh"),
        ("deepspeed", "", "x.json"),
        ("accelerate", "", "x.yaml"),
    ],
)
def test_a_layout_goes_out_and_comes_back(to, version, name, job, tmp_path):
    file, folder = tmp_path / name, tmp_path / "back"
    options = ("--version", version) if version else ()
    planner("export", job(to), "--to", to, "-o", file, *options)
    keys = {"deepspeed": LEFT[:3], "accelerate": (*LEFT[:2], *LEFT[3:])}.get(to, ())
    given = [word for each in keys for word in ("--set", each)]
    planner("import", to, file, "--gpus", "64xh100", "-o", folder, *given)
    before = json.loads(planner("predict", job(to), "--json"))
    after = json.loads(planner("predict", folder / "job.yaml", "--json"))
    assert after["step_seconds"] == pytest.approx(before["step_seconds"])
    assert files.read(folder / "job.yaml", Job).fix.layouts["llm"].micro_batch


@pytest.mark.parametrize("launcher", ["torchrun", "slurm", "kubernetes"])
@pytest.mark.parametrize("to", ["torchtitan", "deepspeed", "planner"])
@pytest.mark.every(3)
def test_a_launcher_starts_it(launcher, to, job, tmp_path):
    made = job("deepspeed" if to == "deepspeed" else "torchtitan")
    planner("export", made, "--to", to, "--launcher", launcher, "-o", tmp_path / "out")
    text = (tmp_path / "out").read_text()
    started = {"torchtitan": "-m torchtitan.train", "deepspeed": "--deepspeed_config", "planner": "-m planner.runtime"}
    assert started[to] in text and "--nproc-per-node 8 --nnodes 8" in text


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--to", "torchtitan", "--launcher", "lsf"), "no launcher is called `lsf`"),
        (("--to", "torch-csv", "--launcher", "slurm"), "nothing starts a file of torch-csv"),
        (("--to", "planner", "--version", "1"), "planner runs plans of its own version"),
        (("--to", "torchtitan", "--version", "0.1"), "no files are written for torchtitan 0.1"),
        (("--to", "torchtitan", "--better", "--launcher", "slurm"), "a change of arguments starts nothing"),
    ],
)
@pytest.mark.every(2)
def test_what_nothing_can_write_is_refused(words, message, job, tmp_path):
    error = refused("export", job("torchtitan"), *words, "-o", tmp_path / "out")
    assert message in error.message and error.fix and not (tmp_path / "out").exists()


def test_a_refusal_has_the_best_that_the_program_can_be_told(job, tmp_path):
    """It has no ZeRO-1: another stage, with what that takes."""
    error = refused(
        "export", job("deepspeed", "{tp: 8, zero: 1, micro_batch: 1}"), "--to", "accelerate", "-o", tmp_path / "x"
    )
    assert "it has no ZeRO stage 1" in error.message
    assert "software: fsdp in the job, whose best is {tp: " in error.fix and "s a step" in error.fix


def test_settings_of_the_other_version_are_refused_at_their_line(tmp_path):
    path = tmp_path / "x.toml"
    path.write_text(torchtitan_file("vpp", "0.2") + "\n[training.x]\n")
    path.write_text(path.read_text().replace("[training]\n", "[training]\ndisable_cuda_graphs = true\n"))
    error = refused("import", "torchtitan", path, "--gpus", "64xh100", "-o", tmp_path / "j")
    assert "torchtitan 0.3, which has flags" in error.message and error.where.startswith(f"{path}:")
    assert not (tmp_path / "j").exists()


@pytest.mark.parametrize(
    ("form", "text", "where", "message"),
    [
        (
            "accelerate",
            "distributed_type: DEEPSPEED\ndeepspeed_config: {zero_stage: 3}\n",
            "(distributed_type)",
            "`DEEPSPEED` is none",
        ),
        (
            "deepspeed",
            """{"train_batch_size": 64, "bf16": {"enabled": true},
            "zero_optimization": {"offload_optimizer": {"device": "cpu", "pin_memory": true}}}""",
            "(zero_optimization.offload_optimizer.device)",
            "`cpu` is none",
        ),
    ],
)
def test_what_is_not_supported_is_blamed_and_none_of_its_details(form, text, where, message, tmp_path):
    path = tmp_path / {"accelerate": "x.yaml", "deepspeed": "x.json"}[form]
    path.write_text(text)
    given = [word for each in LEFT[:2] for word in ("--set", each)]
    error = refused("import", form, path, "--gpus", "64xh100", "-o", tmp_path / "j", *given)
    assert error.where.endswith(where) and message in error.message


@pytest.mark.slow
def test_a_version_that_cannot_be_told_a_plan_is_offered_none_that_it_cannot_either(job, tmp_path):
    path = job("megatron", "{zero: 3, micro_batch: 1}")
    error = refused("export", path, "--to", "megatron", "--version", "0.12", "-o", tmp_path / "x.sh")
    assert error.fix == "--version 0.14, or later"
