"""Layouts of all modules of a job together, ranked by a closed form: where each encoder is, and with which layout.

The module of the samples, the LLM, has all ranks, or leaves some to encoders, or unused where all divide badly
(layouts/space/rank_counts.py). Each encoder is

all          on every rank, with a layout of its own: the LLM's tensor, context and pipeline ranks are its replicas
beside       on the ranks of the LLM, where there are others
first_stage  on the ranks of the LLM's first pipeline stage
apart        on the ranks that the LLM leaves, beside other encoders there

and all combinations of these over encoders are candidates. Encoders that share ranks with the LLM are given a share of
their memory, small or large, and the LLM has the rest. A step takes about the LLM's seconds and those of encoders that
share its ranks; or those of encoders apart if they are more, and their first pass and last backward in any case.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import chain, product
from typing import Any, Literal, get_args

from planner.layouts import rank_counts
from planner.plan.gradient_flow import GradientFlow, gradient_flows
from planner.plan.mesh.rank_mesh import stage_ranks
from planner.plan.plan_file import Layout
from planner.specs.base import FirstStage, RankChoice, Ranks, with_fields
from planner.specs.inputs import Inputs
from planner.specs.parallelism import decided_fields
from planner.strategies.assignment.encoder_orders import FRONT, STREAMED, Orders, possible_order
from planner.strategies.assignment.module_items import micro_batch_count
from planner.strategies.modality.kept_features import KEEPS_NOTHING, kept_variants, must_keep
from planner.strategies.modality.module_space import (
    IN_PARTS,
    MEMORY_SHARES,
    WHOLE,
    ModuleOption,
    ModuleSpace,
    encoder_spaces,
    samples_space,
)
from planner.units import GIB

Place = Literal["all", "beside", "first_stage", "apart"]
HOPELESS = 1.1  # times the quickest candidate's seconds: an LLM that takes as much by its work alone is not looked at
RANKS_APART = 4  # numbers of ranks that are tried for encoders apart


@dataclass(frozen=True, slots=True)
class JointCandidate:
    """A layout of every module, and what its step takes about."""

    layouts: dict[str, Layout]
    orders: Orders  # of encoders' passes
    places: dict[str, str]  # encoder → Place, or `fixed`; with where its features are kept, if they are
    seconds: float
    crowded: bool = False  # each module fits alone, and by the closed form perhaps not all together

    @property
    def kind(self) -> str:
        """Where the encoders are, as `vision all, audio apart`."""
        return ", ".join(f"{name} {place}" for name, place in self.places.items())


@dataclass(frozen=True)
class JointSpace:
    """The layouts of all modules of a job, of each module on the ranks that it may have."""

    inputs: Inputs
    spaces: dict[tuple[str, int, bool, int], ModuleSpace] = field(default_factory=dict)

    @property
    def encoders(self) -> list[str]:
        """All modules but that of the samples."""
        return [name for name in self.inputs.model.modules if name != self.inputs.module]

    @property
    def size(self) -> int:
        """The number of ranks."""
        return self.inputs.cluster.size

    def llm(self, ranks: int) -> ModuleSpace:
        """The LLM's layouts on so many ranks."""
        return self.space(self.inputs.module, ranks, piped=True)

    def space(self, name: str, ranks: int, piped: bool, passes: int = 1) -> ModuleSpace:
        """A module's layouts on so many ranks; of an encoder, whose items are in so many passes, or apart (`piped`) in
        as many as there are micro-batches: under ZeRO-3 each would gather the parameters anew, so that it is there for
        one pass, or where nothing else fits.
        """
        whole = self.whole_space(name, ranks, piped, passes)
        one_pass = passes == 1 and not piped
        return whole if name == self.inputs.module or one_pass else whole.without_zero3

    def whole_space(self, name: str, ranks: int, piped: bool, passes: int) -> ModuleSpace:
        """A module's layouts on so many ranks, also those under ZeRO-3 of an encoder with several passes."""
        key = (name, ranks, piped, passes)
        if key not in self.spaces and name == self.inputs.module:
            self.spaces[key] = samples_space(self.inputs, ranks)
        elif key not in self.spaces:
            each = encoder_spaces(self.inputs, name, ranks, piped, (WHOLE, IN_PARTS))
            self.spaces.update({(*key[:3], passes): made for passes, made in each.items()})
        return self.spaces[key]

    def fixed_ranks(self, name: str) -> RankChoice | None:
        """The ranks that the job fixes for a module."""
        fixed = self.inputs.job.fix.layouts.get(name)
        return fixed.ranks if fixed else None

    @cached_property
    def llm_counts(self) -> list[int]:
        """How many ranks the LLM may have though no encoder is on others: as many as the job fixes; else all, or fewer
        that divide better.
        """
        return [*rank_counts(self.size, self.inputs.fixed_of(self.inputs.module))]

    @cached_property
    def llm_work(self) -> float:
        """Seconds of the LLM's step alone times its ranks, where these are least; none where it does not fit."""
        each = [count * option.seconds for count in self.llm_counts for option in self.llm(count).quickest(1)]
        return min(each, default=0.0)

    @cached_property
    def passed_shares(self) -> dict[str, float]:
        """Encoder → of the closed form's seconds, which are of both passes, those of the passes that it has: of one
        through whose layers no gradients go, the forward, as of frozen weights a backward takes as long.
        """
        return {name: 1.0 if self.flows[name].through_layers else 0.5 for name in self.encoders}

    @cached_property
    def flows(self) -> dict[str, GradientFlow]:
        """Through what of each module gradients go."""
        return gradient_flows(self.inputs.model.modules, self.inputs.model.edges)

    def forward_alone(self, name: str) -> dict[str, Any]:
        """The fields of an encoder's layout that mean nothing without a backward through its layers, and that the job
        leaves open: the closed form, which is of both passes, may have made room by them.
        """
        if self.flows[name].through_layers:
            return {}
        fixed = decided_fields(self.inputs.fixed_of(name))
        return {each: value for each, value in KEEPS_NOTHING.items() if each not in fixed}

    @property
    def context(self) -> float:
        """Bytes that a device takes once for all modules, and the closed form counts for each."""
        return self.llm(self.size).problem.accounting.context_gib * GIB

    def most_ranks(self, name: str) -> Ranks:
        """All ranks that a module may have: as the job fixes them, else every one."""
        fixed = self.fixed_ranks(name)
        return fixed if isinstance(fixed, Ranks) else Ranks(range(self.size))

    @property
    def allowed(self) -> float:
        """Bytes that all modules may hold on a rank together."""
        return self.llm(self.size).problem.allowed


def joint_candidates(space: JointSpace, llm_layouts: int = 4) -> list[JointCandidate]:
    """The candidates, the quickest by the closed form first; `llm_layouts`: of the LLM, in each place and with each
    share of memory. Behind them those that fit alone: whether they do together, with what they recompute then, the
    simulation says. The closed form knows no assignment, and when passes run.
    """
    found = candidates_within(space, llm_layouts, space.allowed)
    crowded = candidates_within(space, llm_layouts, 0.0)
    more = (replace(each, crowded=True) for key, each in crowded.items() if key not in found)
    each = (sorted(some, key=lambda each: each.seconds) for some in (found.values(), more))
    return [*chain(*each)]


def candidates_within(space: JointSpace, llm_layouts: int, shared: float) -> dict[str, JointCandidate]:
    """The candidates by their layouts, that leave each other room in the `shared` bytes of a rank."""
    found: dict[str, JointCandidate] = {}
    for ranks in llm_rank_sets(space):
        if too_few(space, ranks, found.values()):
            continue
        for places in combined_places(space, ranks):
            for each in placed_candidates(space, ranks, places, llm_layouts, shared):
                key = str((each.layouts, each.orders))
                if key not in found or each.seconds < found[key].seconds:
                    found[key] = each
    return found


def too_few(space: JointSpace, ranks: Ranks, found: Collection[JointCandidate]) -> bool:
    """Whether an LLM on so few ranks has so much more to do on each that candidates with it are hopeless beside those
    `found` in which it leaves others to encoders as well.
    """
    leaving = [each.seconds for each in found if len(each.layouts[space.inputs.module].ranks) < space.size]
    return bool(leaving) and space.llm_work / len(ranks) > HOPELESS * min(leaving)


def llm_rank_sets(space: JointSpace) -> list[Ranks]:
    """The ranks that the LLM may have: as the job fixes them; else all, or without those that divide badly or are of
    encoders apart.
    """
    every, fixed = Ranks(range(space.size)), space.fixed_ranks(space.inputs.module)
    if isinstance(fixed, Ranks):
        return [fixed]
    taken = {rank for name in space.encoders if isinstance(own := space.fixed_ranks(name), Ranks) for rank in own}
    if taken:
        rest = Ranks(rank for rank in every if rank not in taken)
        return [every, rest] if rest else [every]
    counts = (*space.llm_counts, *(space.size - count for count in counts_apart(space)))
    return [Ranks(range(count)) for count in dict.fromkeys(counts)]


def counts_apart(space: JointSpace) -> list[int]:
    """Numbers of ranks for encoders apart, next to the one at which they and the LLM take equally long, the nearest
    first: where there are more than two nodes, those that leave the LLM whole ones.
    """
    per_node = space.inputs.cluster.ranks[0].per_node
    step = per_node if space.size > 2 * per_node else 1
    llm, work = space.llm_work / space.size, 0.0
    for name, share in space.passed_shares.items():
        work += sum(share * option.seconds for option in space.space(name, space.size, piped=False).quickest(1))
    even = space.size * work / (work + llm) if work and llm else float(step)
    counts = range(space.size % step or step, space.size // 2 + 1, step)
    return sorted(counts, key=lambda count: (abs(count - even), count))[:RANKS_APART]


def combined_places(space: JointSpace, ranks: Ranks) -> Iterator[dict[str, str]]:
    """Where each encoder may be; one of them at least on the ranks that the LLM leaves, unless the job fixes the LLM's,
    or all divide badly: what is left may be worth less than what it costs to reach it.
    """
    whole = len(ranks) == space.size
    may_idle = len(ranks) in space.llm_counts
    able: list[Sequence[str]] = []
    for name in space.encoders:
        fixed = space.fixed_ranks(name)
        if isinstance(fixed, FirstStage):
            able.append(("first_stage",))
        elif isinstance(fixed, Ranks):
            able.append(("fixed",))
        else:
            able.append(("all", "first_stage") if whole else get_args(Place))
    for chosen in product(*able):
        if whole or may_idle or {*chosen} & {"all", "apart", "fixed"}:
            yield dict(zip(space.encoders, chosen, strict=True))


def placed_candidates(
    space: JointSpace, ranks: Ranks, places: Mapping[str, str], llm_layouts: int, shared: float
) -> Iterator[JointCandidate]:
    """The candidates with the LLM on these ranks and each encoder in its place, within the `shared` bytes of a rank."""
    sharing = [name for name in space.encoders if places[name] != "apart"]
    able = space.llm(len(ranks))
    if "first_stage" in places.values() and able.in_stages.quickest(1):
        able = able.in_stages  # without stages it is the same as on all of the LLM's ranks
    shares = MEMORY_SHARES if sharing and shared else (0.0,)
    able.find(llm_layouts, [share * shared for share in shares])
    for share in shares:
        for llm in able.quickest(llm_layouts, beside=share * shared):
            layout = with_fields(llm.layout, ranks=ranks)
            for order, passes in ((FRONT, WHOLE), (STREAMED, IN_PARTS)):
                options = encoder_options(space, layout, places, passes, share, shared)
                if not options:
                    continue
                variants = [*kept_variants(space.inputs, options, places)]
                if not any(must_keep(space.inputs, name) for name in options):
                    variants.insert(0, (options, {**places}))
                for chosen, called in variants:
                    layouts = {space.inputs.module: layout, **{name: each.layout for name, each in chosen.items()}}
                    in_order = {name: layouts[name] for name in space.inputs.model.modules}
                    orders = {name: possible_order(space.inputs, in_order, name, order) for name in chosen}
                    yield JointCandidate(in_order, orders, called, candidate_seconds(space, llm, chosen, places))


def encoder_options(
    space: JointSpace, llm: Layout, places: Mapping[str, str], passes: int, share: float, shared: float
) -> dict[str, ModuleOption] | None:
    """The quickest layout of each encoder in its place, in so many passes, where all have this share of the `shared`
    bytes beside the LLM, or all of them apart; None where one has none.
    """
    found: dict[str, ModuleOption] = {}
    apart = [name for name in space.encoders if places[name] == "apart"]
    for name in space.encoders:
        ranks = place_ranks(space, name, places[name], llm)
        able = space.space(name, len(ranks), name in apart, passes)
        if name in apart:
            options = able.quickest(1, beside=(1.0 - 1.0 / len(apart)) * shared)
        else:
            options = options_of_share(space, able, share, len(space.encoders) - len(apart), shared)
        if not options:
            return None
        (option,) = options
        placed = {"ranks": ranks, "schedule": None, "micro_batch": 1, **space.forward_alone(name)}
        layout = with_fields(option.layout, **placed)
        found[name] = ModuleOption(layout, space.passed_shares[name] * option.seconds, option.bytes_held)
    return found


def options_of_share(
    space: JointSpace, able: ModuleSpace, share: float, encoders: int, shared: float
) -> list[ModuleOption]:
    """The quickest layout of one of so many encoders that have a share of the `shared` bytes beside the LLM, which
    counts the context already. Those with other shares and encoders, which are asked for next, are found with it.
    """

    def beside(share: float, encoders: int) -> float:
        return (1.0 - share / encoders) * shared - space.context

    able.find(1, [beside(*each) for each in product(MEMORY_SHARES, range(1, len(space.encoders) + 1))])
    return able.quickest(1, beside(share, encoders))


def place_ranks(space: JointSpace, name: str, place: str, llm: Layout) -> Ranks:
    """The ranks of an encoder in a place, beside this layout of the LLM."""
    if place == "fixed":
        fixed = space.fixed_ranks(name)
        assert isinstance(fixed, Ranks), "only then its place is called so"
        return fixed
    if place == "first_stage":
        return stage_ranks(llm, 0)
    if place == "apart":
        return Ranks(rank for rank in range(space.size) if rank not in {*llm.ranks})
    return llm.ranks if place == "beside" else Ranks(range(space.size))


def candidate_seconds(
    space: JointSpace, llm: ModuleOption, encoders: Mapping[str, ModuleOption], places: Mapping[str, str]
) -> float:
    """Seconds of a step, about: of the LLM and what shares its ranks, or of encoders apart, whichever is more; and the
    pass in front of the first micro-batch, and behind the last.
    """
    apart = sum(each.seconds for name, each in encoders.items() if places[name] == "apart")
    sharing = sum(each.seconds for name, each in encoders.items() if places[name] != "apart")
    samples = len(space.inputs.batches[0].items)
    return max(llm.seconds + sharing, apart) + apart / micro_batch_count(llm.layout, samples)
