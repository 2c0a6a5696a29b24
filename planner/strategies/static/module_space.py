"""The static layouts of one module of several on so many ranks, the quickest that fit beside the others first."""

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from planner.layouts import (
    SCHEDULE,
    LayoutIndices,
    LayoutProblem,
    LayoutSpace,
    ScreenedLayouts,
    TrainingSetup,
    fixed_fields,
    layout_at,
    layout_problem,
    layouts_of,
    screen,
)
from planner.plan.plan_file import Layout
from planner.specs.base import with_fields
from planner.specs.inputs import Inputs
from planner.specs.parallelism import EncoderBackward, Parallelism, decided_fields
from planner.specs.workload.items import part_lengths
from planner.units import GIB

TIMING = "ahead", "serves", "backward"  # fields of an encoder's layout that say when its passes run
MEMORY_SHARES = (0.5, 0.25, 0.1)  # of a rank's memory that encoders beside the LLM may have
# Passes whose activations encoders keep a part of, by when their backwards run: all are kept until the last.
PASSES: dict[EncoderBackward, int] = {"last": 1, "at_once": 8}
FIRST_TRIED = 256  # quickest layouts that are screened again with less memory; doubled until they are enough


@dataclass(frozen=True, slots=True)
class ModuleOption:
    """One layout of a module, on ranks 0 to n − 1, by the closed form."""

    layout: Layout
    seconds: float  # of a step of this module alone
    bytes_held: float  # on its fullest rank, without what the device's context takes once for all modules


@dataclass(frozen=True)
class ModuleSpace:
    """The layouts of one module on its ranks that are looked at."""

    problem: LayoutProblem
    layouts: LayoutSpace
    part: ScreenedLayouts | None = None  # these layouts as a larger space has screened them
    known: dict[tuple[int, float], list[ModuleOption]] = field(default_factory=dict)  # what was asked for → its answer
    parts: dict[tuple[tuple[str, int], ...], "ModuleSpace"] = field(default_factory=dict)  # by values of fields

    def has_layouts_of(self, other: "ModuleSpace") -> bool:
        """Whether another space of the same problem has the same layouts: where a module has few items, however many
        passes they are in.
        """
        return all(np.array_equal(column, other.layouts[name]) for name, column in self.layouts.items())

    @cached_property
    def screened(self) -> ScreenedLayouts:
        """All of them, where the module is alone on its ranks."""
        return self.part or screen(self.problem, self.layouts)

    @cached_property
    def rising(self) -> LayoutIndices:
        """Places of layouts that fit alone, the quickest first."""
        order = np.argsort(self.screened.seconds, kind="stable")
        return order[self.screened.fits(self.problem)[order]]

    @cached_property
    def in_stages(self) -> "ModuleSpace":
        """The layouts with a pipeline."""
        return self.where(self.layouts["pp"] > 1)

    @cached_property
    def without_zero3(self) -> "ModuleSpace":
        """The layouts below ZeRO-3, where one of them fits; else all."""
        light = self.where(self.layouts["zero"] < 3)
        return light if len(light.rising) else self

    def with_values(self, **values: int) -> "ModuleSpace":
        """The layouts with these values of the fields that the job leaves open."""
        fixed = self.problem.trained.fixed
        able = tuple((name, value) for name, value in values.items() if getattr(fixed, name) is None)
        if able not in self.parts:
            kept = np.ones(len(self.layouts["tp"]), dtype=np.bool_)
            for name, value in able:
                kept &= self.layouts[name] == value
            self.parts[able] = self.where(kept)
        return self.parts[able]

    def where(self, kept: NDArray[np.bool_]) -> "ModuleSpace":
        """Some of the layouts: what each takes does not depend on the others."""
        whole = self.screened
        columns = {name: column[kept] for name, column in whole.layouts.items()}
        part = ScreenedLayouts(columns, whole.seconds[kept], whole.bytes_needed[kept])
        return ModuleSpace(self.problem, {name: column[kept] for name, column in self.layouts.items()}, part)

    @cached_property
    def rising_kinds(self) -> LayoutIndices:
        """Places of the quickest layout of each kind that fits alone, the quickest first."""
        return distinct_kinds(self.screened.layouts, self.rising)

    def quickest(self, count: int, beside: float = 0.0) -> list[ModuleOption]:
        """Up to `count` layouts of different kinds that fit where other modules hold so many bytes, quickest first.

        A layout takes no less time with less memory, so of those in front of the first one left out none is missed.
        """
        if (count, beside) not in self.known:
            self.known[count, beside] = self.found(count, beside)
        return self.known[count, beside]

    def found(self, count: int, beside: float) -> list[ModuleOption]:
        """The same, looked for."""
        narrow = replace(self.problem, beside=self.problem.beside + beside)
        if not beside:
            return self.options(narrow, self.screened, self.rising_kinds, count)
        tried = self.enough(narrow, count)
        while True:
            again = self.narrowed(narrow, self.rising[:tried])
            order = np.argsort(again.seconds, kind="stable")
            order = order[again.fits(narrow)[order]]
            if tried < len(self.rising):
                order = order[again.seconds[order] <= self.screened.seconds[self.rising[tried]]]
            kinds = distinct_kinds(again.layouts, order)
            if len(kinds) >= count or tried >= len(self.rising):
                return self.options(narrow, again, kinds, count)
            tried *= 4

    def enough(self, narrow: LayoutProblem, count: int) -> int:
        """How many of the quickest layouts are looked at with less memory: at most as many as take no longer than the
        first of so many kinds that fit as they are.
        """
        seconds, needed = self.screened.seconds[self.rising], self.screened.bytes_needed[self.rising]
        kinds = distinct_kinds(self.screened.layouts, self.rising[needed <= narrow.allowed])
        if len(kinds) < count:
            return FIRST_TRIED
        last = float(self.screened.seconds[kinds[count - 1]])
        return min(FIRST_TRIED, int(np.searchsorted(seconds, last, side="right")))

    def narrowed(self, narrow: LayoutProblem, places: LayoutIndices) -> ScreenedLayouts:
        """Some of the layouts with less memory. Those that fit as they are stay so: they offload and recompute as
        little as fits with more.
        """
        whole = self.screened
        columns = {name: column[places] for name, column in whole.layouts.items()}
        seconds, needed = whole.seconds[places], whole.bytes_needed[places]
        (beyond,) = np.nonzero(needed > narrow.allowed)
        if len(beyond):
            again = screen(narrow, {name: column[beyond] for name, column in columns.items()})
            seconds[beyond], needed[beyond] = again.seconds, again.bytes_needed
            for name, column in again.layouts.items():
                columns[name][beyond] = column
        return ScreenedLayouts(columns, seconds, needed)

    def options(
        self, problem: LayoutProblem, screened: ScreenedLayouts, places: LayoutIndices, count: int
    ) -> list[ModuleOption]:
        """The layouts at the first places."""
        context = problem.accounting.context_gib * GIB
        return [
            ModuleOption(
                layout_at(problem.trained, screened.layouts, int(place)),
                float(screened.seconds[place]),
                max(0.0, float(screened.bytes_needed[place]) - context),
            )
            for place in places[:count]
        ]


def distinct_kinds(found: LayoutSpace, order: LayoutIndices) -> LayoutIndices:
    """The first layout of each mesh, micro-batch size and schedule, with ZeRO-3 and without it."""
    if not len(order):
        return order
    names = ("tp", "cp", "pp", "micro_batch", SCHEDULE)
    kinds = np.stack([found[name][order] for name in names] + [found["zero"][order] == 3])
    _, first = np.unique(kinds, axis=1, return_index=True)
    return order[np.sort(first)]


def samples_space(inputs: Inputs, ranks: int) -> ModuleSpace:
    """The layouts of the module of the samples on so many ranks. Raises InputError for fields that exclude each
    other.
    """
    problem = layout_problem(inputs)
    problem = replace(problem, trained=replace(problem.trained, ranks=ranks))
    return ModuleSpace(problem, layouts_of(problem, problem.trained.fixed))


def fixed_timing(inputs: Inputs, name: str) -> dict[str, Any]:
    """When an encoder's passes run, as far as the job fixes it."""
    fixed = decided_fields(inputs.job.fix.layouts.get(name, Parallelism()))
    return {key: fixed[key] for key in TIMING if key in fixed}


def encoder_space(inputs: Inputs, name: str, ranks: int, piped: bool, passes: int) -> ModuleSpace:
    """The layouts of an encoder on so many ranks; `piped`: of any number of stages, where the job fixes none. Raises
    InputError.

    Its items are in so many `passes`, one of which is kept until its backward. Attention never crosses the parts of an
    item, and replicas need not have equally many.
    """
    one = replace(inputs, module=name)
    problem, given = layout_problem(one), fixed_fields(one)
    kept = {"vpp": 1, **({} if piped else {"pp": 1})}
    left = {key: value for key, value in kept.items() if getattr(given, key) is None} | {"micro_batch": None}
    parts = encoder_parts(inputs, name)
    trained = TrainingSetup(inputs.model.modules[name], ranks, parts, with_fields(given, **left), any_assignment=True)
    problem = replace(problem, trained=trained)
    return ModuleSpace(problem, of_passes(layouts_of(problem, trained.fixed), trained, passes))


def of_passes(found: LayoutSpace, trained: TrainingSetup, passes: int) -> LayoutSpace:
    """The layouts whose micro-batches, on their mesh, are about so many."""
    pipelines = trained.ranks // (found["tp"] * found["cp"] * found["pp"])
    each = np.maximum(1, len(trained.sizes) // (pipelines * passes))
    most = 2 ** np.floor(np.log2(each)).astype(np.int64)
    kept = found["micro_batch"] == np.where(trained.equal_lengths, found["micro_batch"], most)
    return {key: column[kept] for key, column in found.items()}


def encoder_parts(inputs: Inputs, name: str) -> tuple[int, ...]:
    """Tokens of each part of an encoder's items; of one output's where the batch has none of them."""
    sizes = inputs.batches[0].streams.get(name, {}).values()
    return tuple(tokens for size in sizes for tokens in part_lengths(size)) or (
        inputs.model.modules[name].tokens_per_output,
    )
