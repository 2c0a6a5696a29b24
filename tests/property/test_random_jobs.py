"""Whatever a job fixes of layouts, it has a plan that keeps its promises, or an error that somebody can act on.

Nothing else escapes: not from solving it, nor from asking what a change of its plan would cost.
"""

import random

import pytest

from planner import files, pipeline
from planner.errors import PlannerError
from planner.plan.plan_file import Plan
from planner.specs.inputs import JobOptions

LLM = "  llm: {{kind: decoder, layers: {layers}, hidden: 32, heads: 4, ffn: 48, vocab: 64{experts}}}"
ENCODER_MODULES = """  vit: {{kind: vit, layers: 2, hidden: 16, heads: 4, ffn: 32, patch: 2, merge: 2, out: 32}}
  ear: {{kind: audio, layers: 1, hidden: 16, heads: 4, ffn: 32, mels: 4, pool: 2, out: 32}}
edges: [{{from: vit, to: llm}}, {{from: ear, to: llm}}]"""
MODELS = {"decoder": f"modules:\n{LLM}\n", "senses": f"modules:\n{LLM}\n{ENCODER_MODULES}\n"}
STREAMS = """  streams:
    vit: {from: file, path: images.csv, column: patches, reads: row}
    ear: {from: file, path: clips.csv, column: frames, reads: row}
"""
STRATEGIES = {"decoder": ("parallel_search", "sequence_groups", "data_ranks"), "senses": ("modality_layout",)}
FIELDS = {
    "tp": (1, 2, 4), "cp": (1, 2), "pp": (1, 2, 4), "dp": (1, 2, 4), "vpp": (1, 2), "ulysses": (1, 2), "ep": (1, 2),
    "replica": (1, 2), "zero": (0, 1, 2, 3), "recompute": ("none", "selective", "full", "{0: full}"),
    "micro_batch": (1, 2, 4), "offload": (0, 0.5), "optimizer_offload": (0, 0.5), "sequence_parallel": ("true",),
    "schedule": ("1f1b", "gpipe", "interleaved", "zb_h1", "zb_h2"), "rank_order": ("tp-cp-dp-pp", "tp-pp-cp-dp"),
}  # fmt: skip
ENCODERS = {
    "features": ("computed", "host"),
    "ranks": ("0", "0-1", "2-3", "first_stage", "0-7"),
}  # fmt: skip
CASES, BATCHES = 240, 60  # drawn jobs, and tests that they are spread over


def drawn_fields(rng: random.Random, encoder: bool) -> dict[str, object]:
    """Some fields with some values, few of which may exclude each other."""
    able = {**FIELDS, **(ENCODERS if encoder else {})}
    share = rng.choice([0.03, 0.06, 0.12])
    return {name: rng.choice(values) for name, values in able.items() if rng.random() < share}


def flow(fields: dict[str, object]) -> str:
    return "{" + ", ".join(f"{name}: {value}" for name, value in fields.items()) + "}"


def drawn_job(rng: random.Random, folder) -> tuple[str, str]:
    """The path of a job, and whether it is of several modules."""
    kind, rows = rng.choice([*MODELS]), rng.choice([1, 2, 3, 5, 8, 16])
    several, experts = kind == "senses", rng.choice(["", "", ", moe: {experts: 4, topk: 2, ffn: 12}"])
    names = ("llm", "vit", "ear") if several else ("llm",)
    fixed = {name: drawn_fields(rng, name != "llm") for name in names if rng.random() < 0.6}
    limits = rng.choice(["", "", "limits: {tokens_per_rank: 300}\n", "limits: {memory_margin: 0.5}\n"])
    model = MODELS[kind].format(layers=rng.choice([1, 2, 4, 5]), experts=experts)
    job = f"""\
format: planner.job/1
name: drawn
model: ./model.yaml
cluster: cpu-4
profile: cpu
strategy: {rng.choice((*STRATEGIES[kind], "best"))}
layout: {flow(drawn_fields(rng, False) if rng.random() < 0.2 else {})}
fix: {{layouts: {{{", ".join(f"{name}: {flow(fields)}" for name, fields in fixed.items() if fields)}}}}}
{limits}workload:
  lengths: {{from: file, path: rows.txt}}
  batch_rows: {rows}
  max_tokens: {rng.choice([220, 500])}
  module: llm
{STREAMS if several else ""}"""
    images = "".join(f"{4 * rng.randint(1, 10)},{rng.randrange(rows)}\n" for _ in range(rng.randint(0, rows)))
    clips = "".join(f"{rng.randrange(rows)},{4 * rng.randint(1, 6)}\n" for _ in range(rng.randint(0, rows)))
    texts = {
        "model.yaml": f"format: planner.model/1\nname: {kind}\nsource: made up\n{model}",
        "rows.txt": "".join(f"{rng.randint(60, 220)}\n" for _ in range(rows)),
        "images.csv": "patches,row\n" + images,
        "clips.csv": "row,frames\n" + clips,
        "job.yaml": job,
    }
    for name, text in texts.items():
        (folder / name).write_text(text)
    return str(folder / "job.yaml"), several


def require_sound(plan: Plan, path) -> Plan:
    """What is written reads back, scores as it says, and no bound is above what it bounds."""
    files.write(path, plan)
    again = pipeline.read_plan(str(path))
    assert files.dump(again) == files.dump(plan)
    pipeline.verify(again)
    assert again.outcome.bound is None or again.outcome.bound <= again.outcome.value * (1 + 1e-9)
    return again


def require_told(error: PlannerError) -> None:
    assert error.exit_code in (2, 3) and error.message and error.fix, repr(error)


def marks_of(batch):
    return pytest.mark.slow if batch == 0 else pytest.mark.soak


@pytest.mark.parametrize("batch", [pytest.param(each, marks=marks_of(each)) for each in range(BATCHES)])
def test_a_job_has_a_sound_plan_or_an_error_with_its_fix(tmp_path, batch):
    solved = 0
    for seed in range(batch, CASES, BATCHES):
        rng = random.Random(seed)
        job, several = drawn_job(rng, tmp_path)
        try:
            plan = require_sound(pipeline.solve(job, JobOptions(effort=1)).plan, tmp_path / "plan.yaml")
        except PlannerError as error:
            require_told(error)
            continue
        solved += 1
        name = rng.choice(["llm", "vit", "ear"]) if several else "llm"
        wish = drawn_fields(rng, name != "llm") or {"tp": 2}
        words = tuple(f"{name}.{key}={value}" if several else f"{key}={value}" for key, value in wish.items())
        try:
            pipeline.why_not(plan, words)
        except PlannerError as error:
            require_told(error)
    assert solved
