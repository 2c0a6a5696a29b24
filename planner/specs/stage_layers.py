"""The law of pipeline stages: every layer of the module is in one of them, in rising order."""

from collections import Counter
from collections.abc import Sequence
from itertools import accumulate, pairwise

from planner.specs.base import Layers


def broken_partition(stages: Sequence[Layers], layers: int) -> tuple[str, str] | None:
    """The message about stages that do not hold layers 0 to `layers` - 1 once each, in order, and its fix; None where
    they do. Single numbers that add up to the layers were meant as counts, and the fix says the stages of these.
    """
    held = [layer for stage in stages for layer in stage]
    if held == [*range(layers)]:
        return None
    if all(len(stage) == 1 for stage in stages) and sum(held) == layers and all(held):
        meant = [Layers(range(first, last)) for first, last in pairwise(accumulate(held, initial=0))]
        message = f"the stages are single layers {', '.join(map(str, held))}, and there are {layers} layers"
        return message, f"as counts of layers: stages: [{', '.join(map(str, meant))}]"
    fix = f"cover each of layers 0-{layers - 1} once, in order"
    unknown, repeated = (
        [each for each in held if each >= layers],
        [n for n, count in Counter(held).items() if count > 1],
    )
    missing = sorted({*range(layers)} - {*held})
    if unknown:
        return f"layer {min(unknown)} of the stages does not exist, there are {layers}", fix
    if repeated:
        return f"layer {min(repeated)} is in {held.count(min(repeated))} stages", fix
    if missing:
        return f"{'layer' if len(missing) == 1 else 'layers'} {Layers(missing)} in no stage", fix
    return "the layers of the stages do not rise from one stage to the next", fix
