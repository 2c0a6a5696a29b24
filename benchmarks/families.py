"""The error of predicted step times where a whole family of sources is left out of the fit: what one lab published of
one framework. Beside it, by the same fit and on the same records, that of sources left out one by one.

A source that is left out alone may have siblings in the fit, of the same people, machines and habits; a stranger's run
has none.
"""

from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

from benchmarks.published_folder import published_folder
from benchmarks.registry import Figures
from planner.calibrate.framework_fit import LinearisedFit, linearised_fit, measured_logs, predicted_seconds
from planner.calibrate.timed_cases import machines_of_cases, timed_cases
from planner.published import PublishedCase, read_published

LABS = {
    "bigscience": "BigScience", "dgxc": "NVIDIA", "fms": "IBM", "internevo": "InternLM", "korthikanti": "NVIDIA",
    "laer": "LAER", "llm_foundry": "MosaicML", "mbridge": "NVIDIA", "megatron_lm": "NVIDIA", "mlperf": "NVIDIA",
    "moe_modelzoo": "NVIDIA", "narayanan": "NVIDIA", "nemo": "NVIDIA", "primus": "AMD", "torchtitan": "PyTorch",
    "xtuner": "InternLM",
}  # fmt: skip


def run(data: Path | None) -> Iterator[Figures]:
    folder = published_folder(data)
    if folder is None:
        return
    cases = timed_cases(read_published(folder)[0])
    fit = linearised_fit(cases, machines_of_cases(cases))
    for name, group in (("source", source_of), ("family", family_of)):
        yield {"left_out": name, **left_out_figures(fit, group)}


def source_of(case: PublishedCase) -> str:
    return case.origin.source


def family_of(case: PublishedCase) -> str:
    """The lab that published a record, and the framework that it ran."""
    (lab,) = {lab for prefix, lab in LABS.items() if case.origin.source.startswith(prefix)}
    return f"{lab} {case.software}"


def left_out_figures(fit: LinearisedFit, group: Callable[[PublishedCase], str]) -> Figures:
    """Errors of records predicted by a fit without the group that each is in."""
    groups, sources = (np.array([each(case) for case in fit.cases]) for each in (group, source_of))
    errors, target = np.zeros(len(groups)), measured_logs(fit.cases)
    for name in np.unique(groups):
        (places,) = np.nonzero(groups == name)
        own = [fit.cases[place] for place in places], [fit.machines[place] for place in places]
        seconds = predicted_seconds(*own, fit.fitted_to(groups != name).values)
        errors[places] = np.abs(seconds / np.exp(target[places]) - 1.0)
    medians = [np.median(errors[sources == name]) for name in np.unique(sources)]
    return {
        "groups": len(np.unique(groups)),
        "records": len(groups),
        "median": round(float(np.median(errors)), 4),
        "p90": round(float(np.quantile(errors, 0.9, method="inverted_cdf")), 4),
        "mean_over_sources": round(float(np.mean(medians)), 4),
    }
