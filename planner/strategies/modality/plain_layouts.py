"""The plainest joint layouts within the noise of predictions, and the conventional ones.

From the quickest on, what is unusual about one module (layouts/space/plainness.py) is left out, one thing after
another, as long as the step takes no longer than the quickest by more than the job's noise: first offload and ranges of
layers that recompute, in place of which all layers of a module recompute alike where something has to give; then single
fields.
"""

from collections.abc import Iterator

from planner.layouts import layout_points, usual_zero
from planner.plan.mesh.even_stages import even_stages
from planner.plan.plan_file import Layout
from planner.specs.inputs import Inputs
from planner.strategies.modality.cheapest_room import bare_layouts
from planner.strategies.modality.joint_changes import Change, changed
from planner.strategies.modality.joint_search import JointSearch
from planner.strategies.static.tried_layouts import TriedLayouts

SHARE = 4  # one simulation for so many of the search
Layouts = dict[str, Layout]


def plainest(done: JointSearch, quickest: TriedLayouts) -> TriedLayouts:
    """The plainest found of joint layouts that take no longer than the quickest by more than the job's noise; of
    equally plain ones the quickest.
    """
    most = (1.0 + done.inputs.job.within) * quickest.seconds
    if most == quickest.seconds:
        return quickest

    def rank(one: TriedLayouts) -> tuple[int, float]:
        return joint_points(done.inputs, one.layouts), one.seconds

    best = min((each for each in (quickest, *done.rising) if each.seconds <= most), key=rank)
    alike, tried = False, set[str]()
    for _ in range(max(2, done.most // SHARE)):
        every = plainer(done.inputs, best.layouts, alike)
        one = next((each for each in every if str(each) not in tried), None)
        if one is None:
            break
        tried.add(str(one))
        found = done.fit_alike(best, one[0], most) if one[1] else done.change(best, most, layouts=one[0])
        if found.plan and found.seconds <= most and rank(found) < rank(best):
            best, alike = found, one[1]
    return best


def plainer(inputs: Inputs, layouts: Layouts, alike: bool) -> Iterator[tuple[Layouts, bool]]:
    """Yield joint layouts with one thing less that is unusual, which say nothing of what is recomputed and offloaded,
    and whether all layers of a module are to recompute alike; `alike`: whether they do already.
    """
    bare = bare_layouts(inputs, layouts)
    if not alike and bare != layouts:
        yield bare, True
    for name, layout in bare.items():
        for change in plainer_fields(inputs, name, layout):
            other = changed(inputs, name, layout, change)
            each = {**bare, name: other}
            if joint_points(inputs, each) < joint_points(inputs, bare):
                yield each, alike


def plainer_fields(inputs: Inputs, name: str, layout: Layout) -> Iterator[Change]:
    """Fields of a module's layout as is usual, one after another."""
    layers = inputs.model.modules[name].layers
    yield {"stages": even_stages(layers, layout.pp * layout.vpp)}
    yield {"zero": usual_zero(inputs.software.knobs)}
    yield {"ulysses": 1}
    yield {"ulysses": layout.cp}
    if layout.vpp > 1 and layout.vpp % 2 == 0:
        yield {"vpp": layout.vpp // 2, "stages": even_stages(layers, layout.pp * layout.vpp // 2)}
    yield {"micro_batch": 1 << (layout.micro_batch.bit_length() - 1)}


def joint_points(inputs: Inputs, layouts: Layouts) -> int:
    """How much is unusual about joint layouts, in points: of each module; that its layers recompute different parts;
    and that features of encoders are kept.
    """
    return sum(
        layout_points(each, inputs.software.knobs)
        + (isinstance(each.recompute, dict) and len({*each.recompute.values()} - {"none"}) > 1)
        + (each.features != "computed")
        for each in layouts.values()
    )


def conventional(done: JointSearch) -> TriedLayouts | None:
    """What guides to the software start with: all modules under ZeRO-3 where weights are what is sharded (FSDP), else
    encoders on the first of even stages; None where it does not fit.
    """
    name = "encoder_first_stage" if usual_zero(done.inputs.software.knobs) == 1 else "fsdp_all"
    (usual,) = (each for each in done.starts if each.kind == name)
    found = done.trials.simulate(usual.layouts, usual.orders, name) if usual.left_out else usual
    return found if found.plan else None
