"""Smaller passes in place of recomputation: of the LLM's micro-batches, or of encoders, which then keep less at once.

A change of one field does not show it: more micro-batches alone repeat constants, encoders that keep everything alone
do not fit, and more passes alone change what recomputing encoders keep by little. So the best joint layouts are tried
with all three at once, the quickest by estimate first, until one of them fits.
"""

from collections.abc import Iterator

from planner.plan.plan_file import Layout
from planner.strategies.modality.joint_changes import changed
from planner.strategies.modality.joint_search import JointSearch
from planner.strategies.static.static_plan import micro_batch_count

SHARES = (1, 2, 4)  # of a micro-batch that is tried
PASSES = (1, 2, 4)  # of encoders


def shrink_passes(done: JointSearch) -> None:
    """Simulate the best joint layouts with smaller passes, and encoders that recompute nothing."""
    start = done.best
    if not start or not any(recomputes(done, name, layout) for name, layout in start.layouts.items()):
        return
    tried = [*smaller_passes(done, start.layouts)]
    for layouts in sorted(tried, key=lambda layouts: done.trials.estimate(layouts, start.rule)):
        if done.trials.estimate(layouts) >= start.estimate or done.change(start, layouts).seconds < start.seconds:
            return


def recomputes(done: JointSearch, name: str, layout: Layout) -> bool:
    """Whether it is an encoder that recomputes something."""
    return name != done.inputs.module and layout.recompute != "none"


def smaller_passes(done: JointSearch, layouts: dict[str, Layout]) -> Iterator[dict[str, Layout]]:
    """Joint layouts with smaller micro-batches of the LLM, and encoders in few passes that keep all until they end."""
    inputs, llm = done.inputs, layouts[done.inputs.module]
    for share in SHARES:
        reader = changed(inputs, inputs.module, llm, {"micro_batch": max(1, llm.micro_batch // share)})
        count = micro_batch_count(reader, len(inputs.batches[0].items))
        for passes in (each for each in PASSES if each <= count):
            change = {"serves": count // passes, "ahead": 0, "recompute": "none", "offload": 0.0}
            change["backward"] = "last" if passes == 1 else "at_once"
            yield {
                name: reader if name == inputs.module else changed(inputs, name, layout, change)
                for name, layout in layouts.items()
            }
