"""When encoders of the best joint layouts run: tried once more at the end of a search, whatever it has spent by then.

Encoders in one pass for all micro-batches repeat no constants, and those that keep up with their readers hold less. It
is cheap to change, and often the last that is left to change.
"""

from planner.strategies.assignment.module_items import micro_batch_count
from planner.strategies.modality.joint_changes import changed, encoder_changes
from planner.strategies.modality.joint_search import CLEARLY_SLOWER, JointSearch

STREAMING = {"ahead", "serves", "backward"}


def stream_encoders(done: JointSearch) -> None:
    """Simulate the best joint layouts with each encoder's passes at other times, one after another."""
    inputs, first = done.inputs, done.best
    for name in [name for name in inputs.model.modules if first and name != inputs.module]:
        start = done.best
        assert start, "a search that found something loses nothing"
        count = micro_batch_count(start.layouts[inputs.module], len(inputs.batches[0].items))
        for change in encoder_changes(start.layouts[name], count):
            layout = changed(inputs, name, start.layouts[name], change)
            if {*change} <= STREAMING and layout != start.layouts[name]:
                done.change(start, {**start.layouts, name: layout}, CLEARLY_SLOWER * start.estimate)
