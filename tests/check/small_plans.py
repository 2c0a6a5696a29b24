"""Small plans as the pipeline makes them, and edits of them that stay true to what the plan states."""

from pathlib import Path

from planner import pipeline
from planner.plan.plan_file import Plan, SourceFile
from planner.scoring.score import with_score
from planner.specs.base import with_fields
from planner.specs.inputs import JobOptions
from tests.plans import degrees_of

JOB = """\
format: planner.job/1
name: small
model: tiny-decoder
cluster: cpu-4
profile: cpu
workload:
  lengths: {lengths}
  batch_rows: {rows}
  max_tokens: 2048
layout: {{zero: 3, dtype: float32}}
degrees: {degrees}
limits: {{tokens_per_rank: 1600}}
"""
MIX = "{from: mix, parts: [{weight: 1, median: 300, sigma: 0.8}]}"
WEB = "{from: distribution, name: web}"


def write_job(folder: Path, rows: int = 16, degrees: str = "[1, 2]", lengths: str = MIX) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "job.yaml"
    path.write_text(JOB.format(rows=rows, degrees=degrees, lengths=lengths))
    return path


def solve(job: Path, **options: int) -> Plan:
    return pipeline.solve(str(job), JobOptions(**{"effort": 1, **options})).plan


def with_rows(plan: Plan, rows: tuple[dict, ...], number: int = 0) -> Plan:
    """Other micro-batches in one step."""
    steps = list(plan.steps)
    steps[number] = with_fields(steps[number], micro_batches=rows)
    return with_fields(plan, steps=tuple(steps))


def restated(plan: Plan) -> Plan:
    """A plan of one step that states what it is worth."""
    return with_score(plan, plan.outcome.effort)


def one_by_one(plan: Plan) -> Plan:
    """The slow way: an item a micro-batch, on the widest group there is."""
    widest = max(plan.groups, key=degrees_of(plan).__getitem__)
    items = sorted(plan.uses.items["llm"])
    return restated(with_rows(plan, tuple({widest: (item,)} for item in items)))


def other_digest(plan: Plan, role: str = "profile") -> Plan:
    source = SourceFile(path=plan.uses.sources[role].path, sha256="0123456789abcdef")
    return with_fields(plan, uses=with_fields(plan.uses, sources={**plan.uses.sources, role: source}))


def repriced(plan: Plan, factor: float) -> Plan:
    """The same decisions where every kernel takes `factor` times as long."""
    ((kind, rates),) = plan.uses.prices.rates.items()
    slower = with_fields(
        rates,
        gemm={n: with_fields(c, share=c.share / factor, launch_us=c.launch_us * factor) for n, c in rates.gemm.items()},
        attention={
            name: with_fields(c, share=c.share / factor, backward_share=c.backward_share / factor)
            for name, c in rates.attention.items()
        },
        memory_share=rates.memory_share / factor,
        launch_us=rates.launch_us * factor,
    )
    return restated(
        with_fields(plan, uses=with_fields(plan.uses, prices=with_fields(plan.uses.prices, rates={kind: slower})))
    )


def categories(findings) -> list[str]:
    return [finding.category for finding in findings]


def at(findings, where: str):
    """The findings in one place."""
    return [finding for finding in findings if finding.where == where]
