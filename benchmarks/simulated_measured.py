"""What simulated steps are beside measured ones: the error of each plan, and the order of all."""

from collections.abc import Iterator, Mapping
from statistics import median

from benchmarks.registry import Figures
from planner import pipeline
from planner.ledger.strategy_ranking import spearman
from planner.plan.plan_file import Plan


def simulated_beside(made: Mapping[str, Plan], measured: Mapping[str, float]) -> Iterator[Figures]:
    """Figures of each plan, by name, and of all together. `measured`: seconds of a step."""
    simulated = {name: pipeline.simulate(plan)[0].step_seconds for name, plan in made.items()}
    for name, seconds in measured.items():
        error = round(simulated[name] / seconds - 1, 4)
        yield {"plan": name, "simulated_seconds": simulated[name], "measured_seconds": seconds, "error": error}
    errors = sorted(abs(simulated[name] / seconds - 1) for name, seconds in measured.items())
    fastest = min(simulated, key=lambda name: simulated[name])
    yield {
        "plans": len(made),
        "spearman": round(spearman([(simulated[name], measured[name]) for name in made]), 4),
        "median_error": round(median(errors), 4),
        "worst_error": round(errors[-1], 4),
        "simulated_best_over_best": round(measured[fastest] / min(measured.values()), 4),
    }
