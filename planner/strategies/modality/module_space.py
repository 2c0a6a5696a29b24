"""The static layouts of one module of several on so many ranks, the quickest that fit beside the others first."""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from planner.costs import distinct_values
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
    screen_each,
)
from planner.plan.plan_file import Layout
from planner.specs.base import with_fields
from planner.specs.inputs import Inputs
from planner.specs.workload.items import part_lengths
from planner.units import GIB

MEMORY_SHARES = (0.5, 0.25, 0.1)  # of a rank's memory that encoders beside the LLM may have
# Passes of an encoder one of which is kept at a time: all of it, where backwards come last, or a part
WHOLE, IN_PARTS = 1, 8
FIRST_TRIED = 256  # quickest layouts that are screened again with less memory; doubled until they are enough


@dataclass(frozen=True, slots=True)
class ModuleOption:
    """One layout of a module, on ranks 0 to n − 1, by the closed form."""

    layout: Layout
    seconds: float  # of a step of this module alone
    bytes_held: float  # on its fullest rank, without what the device's context takes once for all modules


class KnownOptions(NamedTuple):
    """What was found when so many options were asked for."""

    asked: int
    options: list[ModuleOption]


@dataclass(frozen=True)
class ModuleSpace:
    """The layouts of one module on its ranks that are looked at."""

    problem: LayoutProblem
    layouts: LayoutSpace
    part: ScreenedLayouts | None = None  # these layouts as a larger space has screened them
    known: dict[float, KnownOptions] = field(default_factory=dict)  # by the bytes beside the module
    parts: dict[tuple[tuple[str, int], ...], "ModuleSpace"] = field(default_factory=dict)  # by values of fields

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
        self.find(count, (beside,))
        return self.known[beside].options[:count]

    def find(self, count: int, besides: Iterable[float]) -> None:
        """Look for what `quickest` gives beside each of these bytes: together that takes little longer than for one."""
        asked = [each for each in dict.fromkeys(besides) if each not in self.known or self.known[each].asked < count]
        problems = [replace(self.problem, beside=self.problem.beside + each) for each in asked]
        for beside, options in zip(asked, self.found(problems, count) if asked else (), strict=True):
            self.known[beside] = KnownOptions(count, options)

    def found(self, problems: Sequence[LayoutProblem], count: int) -> list[list[ModuleOption]]:
        """The options of each problem, looked for."""
        if all(each.beside == self.problem.beside for each in problems):
            return [self.options(each, self.screened, self.rising_kinds, count) for each in problems]
        tried = max(self.enough(each, count) for each in problems)
        while True:
            again = self.narrowed(problems, self.rising[:tried])
            kinds = [self.fitting_kinds(*each, tried) for each in zip(problems, again, strict=True)]
            if tried >= len(self.rising) or all(len(each) >= count for each in kinds):
                return [self.options(*each, count) for each in zip(problems, again, kinds, strict=True)]
            tried *= 4

    def fitting_kinds(self, problem: LayoutProblem, again: ScreenedLayouts, tried: int) -> LayoutIndices:
        """The quickest layout of each kind, of the `tried` quickest with less memory, that is in front of those that
        were not.
        """
        order = np.argsort(again.seconds, kind="stable")
        order = order[again.fits(problem)[order]]
        if tried < len(self.rising):
            order = order[again.seconds[order] <= self.screened.seconds[self.rising[tried]]]
        return distinct_kinds(again.layouts, order)

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

    def narrowed(self, problems: Sequence[LayoutProblem], places: LayoutIndices) -> list[ScreenedLayouts]:
        """Some of the layouts with the memory of each problem. Those that fit as they are stay so: they offload and
        recompute as little as fits with more.
        """
        whole = self.screened
        columns = {name: column[places] for name, column in whole.layouts.items()}
        seconds, needed = whole.seconds[places], whole.bytes_needed[places]
        (beyond,) = np.nonzero(needed > min(each.allowed for each in problems))
        if not len(beyond):
            return [ScreenedLayouts(columns, seconds, needed)] * len(problems)
        again = screen_each(problems, {name: column[beyond] for name, column in columns.items()})
        return [
            ScreenedLayouts(
                {name: with_others(column, beyond, each.layouts[name]) for name, column in columns.items()},
                with_others(seconds, beyond, each.seconds),
                with_others(needed, beyond, each.bytes_needed),
            )
            for each in again
        ]

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


def with_others(column: NDArray[Any], places: LayoutIndices, others: NDArray[Any]) -> NDArray[Any]:
    """A column with others' values at some places."""
    found: NDArray[Any] = column.copy()
    found[places] = others
    return found


def distinct_kinds(found: LayoutSpace, order: LayoutIndices) -> LayoutIndices:
    """The first layout of each mesh, micro-batch size and schedule, with ZeRO-3 and without it."""
    if not len(order):
        return order
    names = ("tp", "cp", "pp", "micro_batch", SCHEDULE)
    first, _ = distinct_values([*(found[name][order] for name in names), found["zero"][order] == 3])
    return order[np.sort(first)]


def samples_space(inputs: Inputs, ranks: int) -> ModuleSpace:
    """The layouts of the module of the samples on so many ranks. Raises InputError for fields that exclude each
    other.
    """
    problem = layout_problem(inputs)
    problem = replace(problem, trained=replace(problem.trained, ranks=ranks))
    return ModuleSpace(problem, layouts_of(problem, problem.trained.fixed))


def encoder_space(inputs: Inputs, name: str, ranks: int, piped: bool, passes: int) -> ModuleSpace:
    """The layouts of an encoder on so many ranks; `piped`: of any number of stages, where the job fixes none. Raises
    InputError.

    Its items are in so many `passes`, one of which is kept until its backward. Attention never crosses the parts of an
    item, and replicas need not have equally many.
    """
    return encoder_spaces(inputs, name, ranks, piped, (passes,))[passes]


def encoder_spaces(
    inputs: Inputs, name: str, ranks: int, piped: bool, passes: Collection[int]
) -> dict[int, ModuleSpace]:
    """The layouts of an encoder on so many ranks for each of these numbers of passes, which are screened together;
    where it has few items, they have one space. Raises InputError.
    """
    one = replace(inputs, module=name)
    problem, given = layout_problem(one), fixed_fields(one)
    kept = {"vpp": 1, **({} if piped else {"pp": 1})}
    left = {key: value for key, value in kept.items() if getattr(given, key) is None} | {"micro_batch": None}
    parts = encoder_parts(inputs, name)
    left_out, every = with_fields(given, **left), problem.trained.overlap
    trained = TrainingSetup(inputs.model.modules[name], ranks, parts, left_out, any_assignment=True, overlap=every)
    problem = replace(problem, trained=trained)
    found = layouts_of(problem, trained.fixed)
    able = {each: in_passes(found, trained, each) for each in passes}
    some = np.any([*able.values()], axis=0)
    whole, spaces = ModuleSpace(problem, {key: column[some] for key, column in found.items()}), dict[int, ModuleSpace]()
    for each, tried in able.items():
        alike = next((other for other in spaces if np.array_equal(able[other], tried)), None)
        part = whole if tried[some].all() else whole.where(tried[some])
        spaces[each] = part if alike is None else spaces[alike]
    return spaces


def in_passes(found: LayoutSpace, trained: TrainingSetup, passes: int) -> NDArray[np.bool_]:
    """Whether the micro-batches of each layout, on its mesh, are about so many."""
    pipelines = trained.ranks // (found["tp"] * found["cp"] * found["pp"])
    each = np.maximum(1, len(trained.sizes) // (pipelines * passes))
    most = 2 ** np.floor(np.log2(each)).astype(np.int64)
    return np.asarray(found["micro_batch"] == np.where(trained.equal_lengths, found["micro_batch"], most))


def encoder_parts(inputs: Inputs, name: str) -> tuple[int, ...]:
    """Tokens of each part of an encoder's items; of one output's where the batch has none of them."""
    sizes = inputs.batches[0].streams.get(name, {}).values()
    return tuple(tokens for size in sizes for tokens in part_lengths(size)) or (
        inputs.model.modules[name].tokens_per_output,
    )
