"""JSON answers of the verbs, one object each. Their keys are promises to other people's scripts."""

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from planner.check import Finding, verdict
from planner.ledger import ComparedRun, SlowRank
from planner.plan.plan_file import Plan
from planner.scoring import Score, gap_use, objective_value, plan_answer, score
from planner.specs.hardware.profile import Profile
from planner.strategies import SolvedJob
from planner.units import GIB
from planner.workflows.demo import DemoResult
from planner.workflows.elastic import ElasticRun
from planner.workflows.multimodal_demo import MultimodalDemoResult

Summary = dict[str, Any]


def solve_answer(result: SolvedJob, path: Path) -> Summary:
    plan = result.plan
    common = plan_answer(plan, [score(plan, number) for number in range(len(plan.steps))])
    outcomes = [step.outcome or plan.outcome for step in plan.steps]
    return {
        **common,
        "status": plan.outcome.status,
        "value": plan.outcome.value,
        "seconds": result.seconds,
        "plan": str(path),
        "strategy": plan.made.strategy,
        **({"told": result.told} if result.told else {}),
        "spread": plan.prediction.spread,
        "peak_memory_gib": plan.prediction.peak_memory_gib,
        "measured_share": plan.prediction.measured_share,
        "steps": [
            {"value": o.value, "bound": o.bound, "gap": o.gap, "seconds": seconds}
            for o, seconds in zip(outcomes, result.step_seconds, strict=True)
        ],
    }


def simulation_answer(plan: Plan, scores: Sequence[Score]) -> Summary:
    parts = [score.breakdown for score in scores]
    return {
        **plan_answer(plan, scores),
        **gap_answer(plan, scores),
        "plan": plan.name,
        "breakdown": {
            "compute": sum(p.compute for p in parts) / len(parts),
            "exposed_comm": sum(p.exposed_comm for p in parts) / len(parts),
            "idle": sum(p.idle for p in parts) / len(parts),
        },
        "memory_gib": [max(peaks) / GIB for peaks in zip(*(score.memory.peaks for score in scores), strict=True)],
        "steps": [
            {
                "step_seconds": score.step_seconds,
                "bound": objective_value(plan, score.bound.seconds, [number]),
                "bound_by": score.bound.by,
            }
            for number, score in enumerate(scores)
        ],
    }


def gap_answer(plan: Plan, scores: Sequence[Score]) -> Summary:
    """Of the first step: the share of encoders' work in gaps, and these by kind; nothing without shared ranks."""
    use = gap_use(plan, scores[0])
    gaps = {name: getattr(use, name) for name in ("within_passes", "once_a_step")} if use else {}
    return {"scheduling_efficiency": {"coarse": use.coarse, "fine": use.fine}, "gaps": gaps} if use else {}


def run_answer(result: ComparedRun) -> Summary:
    return {
        "plan": result.plan.name,
        "machine": result.machine,
        "step_seconds": result.step_seconds,
        "predicted_step_seconds": result.predicted_step_seconds,
        "losses": list(result.losses),
        "steps_before": result.steps_before,
        "ended": result.stop_reason,
        "tokens_per_second": result.tokens_per_second,
        "kinds": [{"name": k.name, "predicted": k.predicted, "measured": k.measured} for k in result.kinds],
        "memory_bytes": [asdict(rank) for rank in result.memory] or None,
        "sent_bytes": list(result.sent_bytes) or None,
        "features": [each._asdict() for each in result.features] or None,
        "ranks": [
            {"work": work, "usual": usual} for work, usual in zip(result.ranks.work, result.ranks.usual, strict=True)
        ],
        "slow_ranks": [slow_rank_answer(each) for each in result.ranks.slow],
        "planning": planning_answer(result),
        "verify": parity_answer(result),
    }


def slow_rank_answer(slow: SlowRank) -> Summary:
    return {"rank": slow.rank, "ratio": slow.ratio, "cause": {**slow.cause._asdict(), "text": slow.cause.text}}


def elastic_answer(result: ElasticRun) -> Summary:
    """The answer of a run, with every time that it was planned anew for other devices."""
    answer = run_answer(result.ran)
    if not result.options.elastic:
        return answer
    changes = [
        {
            "because": continuation.change.because,
            "lost_devices": list(continuation.change.lost),
            "steps_done": continuation.change.steps_done,
            "resumed_from": continuation.resumed_from,
            "devices": list(continuation.devices),
            "planning_seconds": continuation.planning_s,
        }
        for continuation in result.continuations
    ]
    return {**answer, "changes": changes}


def parity_answer(result: ComparedRun) -> Summary | None:
    """How far losses and gradients are from those of one process, and whether that is within rounding."""
    from planner.runtime import within_tolerance
    from planner.runtime.measure import finite_or_none

    errors = result.verified
    if not errors or not result.tolerance:
        return None
    return {
        "loss_rel_err": finite_or_none(errors.loss_rel_err),
        "grad_rel_err": finite_or_none(errors.grad_rel_err) if errors.worst else None,
        "worst": errors.worst or None,
        "steps": errors.steps,
        "items": errors.items,
        "within": within_tolerance(errors, result.tolerance),
    }


def planning_answer(result: ComparedRun) -> Summary | None:
    """Seconds of planning hidden behind training and exposed, step by step; None if all was planned ahead."""
    steps = result.plannings
    return (
        {
            "hidden_seconds": sum(step.hidden_s for step in steps),
            "exposed_seconds": sum(step.exposed_s for step in steps),
            "steps": [{"hidden": step.hidden_s, "exposed": step.exposed_s} for step in steps],
        }
        if steps
        else None
    )


def profile_answer(profile: Profile, path: Path) -> Summary:
    found: Summary = {
        "profile": str(path),
        "name": profile.name,
        "modules": profile.modules,
        "collectives": profile.collectives,
    }
    return found | ({"shares": profile.shares} if profile.shares else {})


def demo_answer(result: DemoResult) -> Summary:
    solved_there = solve_answer(result.solved, result.folder / "plan.yaml")
    return {
        "folder": str(result.folder),
        "solve": solved_there,
        "run": run_answer(result.ran),
        **findings_answer(result.findings),
    }


def multimodal_demo_answer(result: MultimodalDemoResult) -> Summary:
    return {
        "folder": str(result.folder),
        "solve": solve_answer(result.solved, result.folder / "plan.yaml"),
        "run": run_answer(result.ran),
        "least_loss": result.least_loss,
        "usual": [
            {"name": usual.name, "step_seconds": usual.step_seconds, "layouts": usual.layouts, "because": usual.because}
            for usual in result.usual
        ],
    }


def findings_answer(listed: Sequence[Finding]) -> Summary:
    return {"verdict": verdict(listed), "findings": [*listed]}
