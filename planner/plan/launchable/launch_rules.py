"""Which layouts a framework refuses to launch: a table of rules over its knobs (specs/framework/knobs.py).

A rule's condition broadcasts: a `LaunchCase` has the numbers of one layout, or columns of a million. Its reason is for
a person, of one layout. A rule that asks for a field which is not decided yet refuses nothing.
"""

from collections.abc import Callable, Container, Iterable, Mapping
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Any, get_args

import numpy as np

from planner.plan.descriptions import flow_text
from planner.plan.mesh.even_stages import has_even_stages
from planner.plan.mesh.recomputed_blocks import block_size, chunk_sizes
from planner.specs.framework.knobs import RECOMPUTE_KINDS, ZERO_STAGES, Knobs
from planner.specs.layers import Module, module_parts
from planner.specs.layers.head_widths import kv_heads
from planner.specs.parallelism import (
    DEFAULT_RANK_ORDER,
    PART_SETS,
    RECOMPUTED_PARTS,
    Dispatch,
    Parallelism,
    RecomputedPart,
    Schedule,
)

Number = Any  # an int64, or an array (layouts,) of them
Truth = Any  # a truth value, or an array (layouts,) of them
NUMERIC_FIELDS = ("tp", "cp", "ulysses", "pp", "vpp", "ep", "etp", "dp", "replica", "zero", "micro_batch")
DEGREES = ("tp", "cp", "ulysses", "pp", "vpp", "ep", "etp", "replica", "micro_batch")  # without dp: it is the rest
# Fields that are words, or sets of words, as places among these.
CODED_FIELDS: dict[str, tuple[Any, ...]] = {
    "recompute": (*RECOMPUTE_KINDS, *PART_SETS),
    "dispatch": get_args(Dispatch),
    "schedule": get_args(Schedule),
}
# What fields are where nobody decided them: degrees of 1, all_to_all, and 1F1B, or interleaved where there are chunks.
USUAL_VALUES = {"ulysses": 1, "replica": 1, "dispatch": 0, "schedule": 0}


class UndecidedError(Exception):
    """A rule asked for a field that is not decided."""


@dataclass(frozen=True, slots=True)
class TrainedFacts:
    """What the rules ask of a module and of its batch. None, where sequences differ: frameworks pack or pad those."""

    ranks: int
    layers: int
    heads: int
    kv_heads: int
    tied: bool  # the head shares the embedding's weights
    sequences: int | None = None  # of a step
    tokens: int | None = None  # of each sequence
    parts: tuple[RecomputedPart, ...] = RECOMPUTED_PARTS  # of some layer


def trained_facts(module: Module, ranks: int, sizes: tuple[int, ...] = ()) -> TrainedFacts:
    """The facts of a module on so many ranks, with the tokens of each of a step's sequences."""
    equal = len(set(sizes)) == 1
    return TrainedFacts(
        ranks=ranks,
        layers=module.layers,
        heads=module.heads,
        kv_heads=kv_heads(module),
        tied=any(end.tied for end in module.embedding_head),
        sequences=len(sizes) if equal else None,
        tokens=sizes[0] if equal else None,
        parts=module_parts(module),
    )


@dataclass(frozen=True, slots=True)
class LaunchCase:
    """Layouts, what they train, and the knobs that they are judged by. `at["tp"]` is a field that is a number."""

    columns: Mapping[str, Number]
    options: Parallelism  # the fields that are no numbers, the same for all
    facts: TrainedFacts
    knobs: Knobs

    def __getitem__(self, name: str) -> Number:
        """Raises UndecidedError where nobody decided it."""
        if name in self.columns:
            return self.columns[name]
        if name in USUAL_VALUES:
            return np.int64(USUAL_VALUES[name])
        if name == "dp":
            return np.maximum(1, self.facts.ranks // (self["tp"] * self["cp"] * self["pp"] * self["replica"]))
        raise UndecidedError(name)

    @property
    def data_ranks(self) -> Number:
        """Ranks that hold the same dense parameters before ZeRO shards them."""
        return self["dp"] * self["cp"] * self["replica"]

    @property
    def micro_batches(self) -> Number:
        """Micro-batches of a replica in a step, of equal sequences. Raises UndecidedError where they are not equal."""
        if self.facts.sequences is None:
            raise UndecidedError("sequences")
        return -(-self.facts.sequences // (self["dp"] * self["replica"] * self["micro_batch"]))

    @property
    def tokens(self) -> int:
        """Tokens of each sequence. Raises UndecidedError where they are not equal."""
        if self.facts.tokens is None:
            raise UndecidedError("tokens")
        return self.facts.tokens


def with_defaults(at: LaunchCase) -> LaunchCase:
    """One layout with the defaults of what nobody decided, for texts that say more than the condition asked."""
    ones = dict.fromkeys(DEGREES, np.int64(1))
    return replace(at, columns={**ones, "zero": np.int64(0), "recompute": np.int64(0), **at.columns})


def numbers_of(layout: Parallelism) -> dict[str, Number]:
    """The decided fields of a layout as numbers."""
    fields = {name: getattr(layout, name) for name in NUMERIC_FIELDS}
    for name, words in CODED_FIELDS.items():
        word = getattr(layout, name)
        if word is not None:
            fields[name] = words.index("ranges" if isinstance(word, dict) else word)
    return {name: np.int64(value) for name, value in fields.items() if value is not None}


FULL, RANGES = RECOMPUTE_KINDS.index("full"), RECOMPUTE_KINDS.index("ranges")
NODE_LEVEL = CODED_FIELDS["dispatch"].index("node_level")
PLAIN_1F1B = CODED_FIELDS["schedule"].index("1f1b")


@dataclass(frozen=True, slots=True)
class Rule:
    """Which layouts are refused, and what is wrong with one and what to do, as `wrong | fix`."""

    name: str
    refuses: Callable[[LaunchCase], Truth]
    why: Callable[[LaunchCase], str]


def refuses_stages(at: LaunchCase) -> Truth:
    """Stages have unequal numbers of layers."""
    divides = at.facts.layers % (at["pp"] * at["vpp"]) == 0
    return (not at.knobs.uneven_stages) & ~(divides & has_even_stages(at.options))


def refuses_context(at: LaunchCase) -> Truth:
    """Sequences are sharded in a way that the framework has not."""
    allowed, cp, ulysses = at.knobs.cp, at["cp"], at["ulysses"]
    ring, by_heads = ulysses == 1, ulysses == cp
    return (cp > 1) & ~(
        (("ring" in allowed) & ring) | (("ulysses" in allowed) & by_heads) | (("both" in allowed) & ~ring & ~by_heads)
    )


def refuses_kv_heads(at: LaunchCase) -> Truth:
    """Over tp, key/value heads can be neither sharded evenly nor, where that is possible, replicated evenly."""
    groups, tp = at.facts.kv_heads, at["tp"]
    replicated = (at.knobs.kv_heads == "replicated") & (tp % groups == 0)
    return (at.knobs.kv_heads != "any") & (groups % tp != 0) & ~replicated


def refuses_lengths(at: LaunchCase) -> Truth:
    """The length of equal sequences is not a multiple of what shards it."""
    if at.knobs.sequence_multiple == "any":
        return False
    halves = np.where(at["cp"] > 1, 2 * at["cp"], 1)
    return at.tokens % (halves * (at["tp"] if at.knobs.sequence_multiple == "tp_2cp" else 1)) != 0


def refuses_rounds(at: LaunchCase) -> Truth:
    """An interleaved pipeline cannot group its micro-batches."""
    if at.knobs.interleaved_micro_batches == "any":
        return False
    pp, count = at["pp"], at.micro_batches
    left = {"stages": count < pp, "multiple": count % pp != 0, "rounds": count % np.maximum(1, count // pp) != 0}
    return (at["vpp"] > 1) & left[at.knobs.interleaved_micro_batches]


def refuses_expert_width(at: LaunchCase) -> Truth:
    """Experts are sharded over a number of ranks that the framework does not offer."""
    etp, tp, allowed = at["etp"], at["tp"], at.knobs.etp
    return ~(
        (("one" in allowed) & (etp == 1))
        | (("tp" in allowed) & (etp == tp))
        | (("other" in allowed) & (etp != 1) & (etp != tp))
    )


def refuses_expert_mesh(at: LaunchCase) -> Truth:
    """The ranks that hold all experts do not divide those over which the framework shards them."""
    if at.knobs.expert_mesh == "stage":
        return False
    ep, etp = at["ep"], at["etp"]
    if at.knobs.expert_mesh == "dp":
        return (ep > 1) & (at["dp"] % ep != 0)
    return (ep * etp > 1) & (at["tp"] * at["cp"] * at["dp"] % (ep * etp) != 0)


def refuses_unsharded(at: LaunchCase) -> Truth:
    """Replicas that shard nothing stand beside another kind of parallelism."""
    if at.knobs.unsharded_replicas == "any":
        return False
    others = (at["tp"] > 1) | (at["cp"] > 1) | (at["pp"] > 1) | (at["ep"] > 1)
    return (at["zero"] == 0) & (at.data_ranks > 1) & others


def refuses_ep_overlap(at: LaunchCase) -> Truth:
    """Tokens are exchanged beside compute in a pipeline of one chunk a rank, or layers or experts are recomputed."""
    if at.knobs.ep_overlap == "any" or "ep" not in (at.options.overlap or ()):
        return False
    by_range = at.options.recompute.values() if isinstance(at.options.recompute, dict) else ()
    full = (at["recompute"] == FULL) | ((at["recompute"] == RANGES) & ("full" in by_range))
    return full | recomputes_any(at, {"moe"}) | ((at["pp"] > 1) & (at["vpp"] == 1))


def refuses_recompute(at: LaunchCase) -> Truth:
    """Layers recompute what the framework cannot, or as it cannot say it: ranges that are no blocks."""
    named = PART_SETS if "selective" in at.knobs.recompute else ()
    refused: Truth = ~is_among("recompute", (*at.knobs.recompute, *named), at)
    how = at.options.recompute
    if not (at.knobs.recompute_block and "full" in at.knobs.recompute and isinstance(how, dict)):
        return refused

    def is_block(chunks: int) -> bool:
        return block_size(how, chunk_sizes(at.options, at.facts.layers, chunks)) > 0

    return refused & ~np.vectorize(is_block, otypes=[np.bool_])(at["pp"] * at["vpp"])


def refuses_parts(at: LaunchCase) -> Truth:
    """Parts of layers are recomputed that the framework cannot name."""
    return recomputes_any(at, {*RECOMPUTED_PARTS} - {*at.knobs.recomputed_parts})


def recomputes_any(at: LaunchCase, parts: Container[RecomputedPart]) -> Truth:
    """Whether a layout recomputes any of these parts by its name, in all layers or in a range of them."""
    by_range = at.options.recompute.values() if isinstance(at.options.recompute, dict) else ()
    ranged = any(part in parts for how in by_range if isinstance(how, tuple) for part in how)
    sets = [CODED_FIELDS["recompute"].index(each) for each in PART_SETS if any(part in parts for part in each)]
    return np.isin(at["recompute"], sets) | ((at["recompute"] == RANGES) & ranged)


def refuses_offload(at: LaunchCase) -> Truth:
    """Activations are offloaded, and the framework cannot, or not beside a pipeline or recomputation."""
    if not at.options.offload or at.knobs.offload == "any":
        return False
    return (at.knobs.offload == "none") | (at["pp"] > 1) | (at["recompute"] > 0)


def refuses_offloaded_kinds(at: LaunchCase) -> Truth:
    """A share is offloaded where the framework offloads kinds of modules alone, or kinds are that it cannot name; or
    experts that are recomputed, of which nothing is kept.
    """
    parts = at.options.offloaded_parts
    if not parts:
        return bool(at.options.offload) and at.knobs.offload_shares == "none"
    if not {*parts} <= {*at.knobs.offloaded_parts}:
        return True
    return "moe" in parts and recomputes_any(at, {"moe"})


def refuses_optimizer_offload(at: LaunchCase) -> Truth:
    """Moments of the optimizer are offloaded, and the framework cannot, or not beside the ZeRO stage."""
    stages = at.knobs.optimizer_offload
    if not at.options.optimizer_offload or stages == ZERO_STAGES:
        return False
    return (not stages) | ((at.data_ranks > 1) & ~np.isin(at["zero"], stages))


def refuses_rank_order(at: LaunchCase) -> Truth:
    """In each order that the framework has, some two dims that are in use stand the other way round."""
    orders, named = at.knobs.rank_orders, (at.options.rank_order or DEFAULT_RANK_ORDER).split("-")
    refused: Truth = bool(orders)
    for order in orders:
        place = {dim: number for number, dim in enumerate(order.split("-"))}
        turned: Truth = False
        for inner, outer in combinations([dim for dim in named if dim in place], 2):
            if place[inner] > place[outer]:
                turned = turned | ((at[inner] > 1) & (at[outer] > 1))
        refused = refused & turned
    return refused


def is_among(name: str, allowed: Iterable[object], at: LaunchCase) -> Truth:
    """Whether a field that is a word, or a set of words, is one of these."""
    return np.isin(at[name], [CODED_FIELDS[name].index(word) for word in allowed])


def word(at: LaunchCase, name: str) -> str:
    """A field that is a word, of one layout."""
    return flow_text(CODED_FIELDS[name][at[name]])


def stages_of_zero(at: LaunchCase) -> str:
    """ZeRO stages that a pipeline and experts of the layout leave, as text."""
    left = set(at.knobs.zero)
    left &= set(at.knobs.zero_in_pipeline) if at["pp"] > 1 else left
    left &= set(at.knobs.zero_with_experts) if at["ep"] > 1 else left
    return choices(sorted(left))


def nearest_kinds(at: LaunchCase) -> str:
    """The kinds of activations nearest to those that a layout offloads that its framework can."""
    wanted = at.options.offloaded_parts or at.facts.parts
    again = bool(np.any(recomputes_any(at, {"moe"})))
    able = tuple(part for part in at.knobs.offloaded_parts if part in wanted and not (again and part == "moe"))
    return flow_text(able) if able else "0"


def choices(allowed: Iterable[object]) -> str:
    """Allowed values as text for a fix."""
    values = [str(value).lower() for value in allowed]
    return " or ".join(values) or "none"


RULES = (
    Rule(
        "tensor parallelism",
        lambda at: (not at.knobs.tp) & (at["tp"] > 1),
        lambda at: f"it has no tensor parallelism, and tp is {at['tp']} | tp: 1",
    ),
    Rule(
        "sequence parallelism",
        lambda at: (at["tp"] > 1) & ((at.options.sequence_parallel is not False) not in at.knobs.sequence_parallel),
        lambda at: (
            f"tp goes with sequence_parallel: {choices(at.knobs.sequence_parallel)}"
            f" | sequence_parallel: {choices(at.knobs.sequence_parallel)}"
        ),
    ),
    Rule(
        "key/value heads",
        refuses_kv_heads,
        lambda at: f"{at.facts.kv_heads} key/value heads do not divide over tp = {at['tp']} | a tp that divides them",
    ),
    Rule(
        "context parallelism",
        refuses_context,
        lambda at: (
            f"cp = {at['cp']} with ulysses = {at['ulysses']} is none of its ways to shard sequences"
            f" ({choices(at.knobs.cp)}) | "
            + ("cp: 1" if "ulysses" not in at.knobs.cp else f"cp: 1, or ulysses: {at['cp']}")
        ),
    ),
    Rule(
        "heads of Ulysses",
        lambda at: (
            (at.knobs.ulysses_heads == "key_value")
            & (at["ulysses"] > 1)
            & (at.facts.kv_heads % (at["tp"] * at["ulysses"]) != 0)
        ),
        lambda at: (
            f"{at.facts.kv_heads} key/value heads do not divide over tp · ulysses = {at['tp'] * at['ulysses']}"
            " | a smaller ulysses, or a ring"
        ),
    ),
    Rule(
        "length of sequences",
        refuses_lengths,
        lambda at: (
            f"sequences of {at.tokens} tokens are no multiple of {at.knobs.sequence_multiple.replace('_', ' · ')}"
            f" with tp = {at['tp']}, cp = {at['cp']} | another length, or smaller degrees"
        ),
    ),
    Rule(
        "pipeline",
        lambda at: (not at.knobs.pp) & (at["pp"] > 1),
        lambda at: f"it has no pipeline, and pp is {at['pp']} | pp: 1",
    ),
    Rule(
        "chunks need a pipeline",
        lambda at: ("interleaved" not in at.knobs.schedules) & (at["vpp"] > 1),
        lambda at: f"it has no interleaved pipeline, and vpp is {at['vpp']} | vpp: 1",
    ),
    Rule(
        "schedule",
        lambda at: ~is_among("schedule", ("1f1b", *at.knobs.schedules), at),
        lambda at: f"it has no schedule {word(at, 'schedule')} | schedule: {choices(('1f1b', *at.knobs.schedules))}",
    ),
    Rule(
        "even stages",
        refuses_stages,
        lambda at: (
            f"{at.facts.layers} layers do not divide evenly over pp · vpp = {at['pp'] * at['vpp']}"
            " | degrees that divide them, and no stages"
        ),
    ),
    Rule(
        "tied embedding in a pipeline",
        lambda at: (not at.knobs.tied_stages) & at.facts.tied & (at["pp"] > 1),
        lambda at: "the head shares the embedding's weights, which its pipelines refuse | pp: 1, or an untied model",
    ),
    Rule(
        "micro-batches of 1F1B",
        lambda at: (
            at.knobs.least_micro_batches == "stages"
            and (at["schedule"] == PLAIN_1F1B) & (at["vpp"] == 1) & (at.micro_batches < at["pp"])
        ),
        lambda at: f"{at.micro_batches} micro-batches are fewer than pp = {at['pp']} | a larger batch, or a smaller pp",
    ),
    Rule(
        "micro-batches of interleaving",
        refuses_rounds,
        lambda at: (
            f"{at.micro_batches} micro-batches cannot be interleaved over pp = {at['pp']} | a multiple of pp, or vpp: 1"
        ),
    ),
    Rule(
        "even batch",
        lambda at: (
            at.knobs.even_batch
            and at.facts.sequences is not None
            and at.facts.sequences % (at["dp"] * at["replica"] * at["micro_batch"]) != 0
        ),
        lambda at: (
            f"{at.facts.sequences} sequences are no multiple of dp · replica · micro-batch ="
            f" {at['dp'] * at['replica'] * at['micro_batch']} | batch_rows that are"
        ),
    ),
    Rule(
        "expert parallelism",
        lambda at: (not at.knobs.ep) & (at["ep"] > 1),
        lambda at: f"it has no expert parallelism, and ep is {at['ep']} | ep: 1",
    ),
    Rule(
        "width of experts",
        refuses_expert_width,
        lambda at: f"etp is {at['etp']}, and it has {choices(at.knobs.etp)} | etp: {choices(at.knobs.etp)}",
    ),
    Rule(
        "mesh of experts",
        refuses_expert_mesh,
        lambda at: (
            f"ep = {at['ep']}, etp = {at['etp']} do not divide the ranks that it shards experts over"
            f" ({'dp' if at.knobs.expert_mesh == 'dp' else 'tp · cp · dp'}) | degrees that divide them"
        ),
    ),
    Rule(
        "dispatch",
        lambda at: ~is_among("dispatch", at.knobs.dispatch, at) & (at["ep"] * at["etp"] > 1),
        lambda at: f"it has no dispatch {word(at, 'dispatch')} | dispatch: {choices(at.knobs.dispatch)}",
    ),
    Rule(
        "dispatch to nodes",
        lambda at: (at.knobs.node_level_etp == "one") & (at["dispatch"] == NODE_LEVEL) & (at["etp"] > 1),
        lambda at: f"dispatch node_level needs etp 1, and etp is {at['etp']} | etp: 1, or dispatch: all_to_all",
    ),
    Rule(
        "ZeRO stage",
        lambda at: (at.data_ranks > 1) & ~np.isin(at["zero"], at.knobs.zero),
        lambda at: f"it has no ZeRO stage {at['zero']} | zero: {stages_of_zero(at)}",
    ),
    Rule(
        "ZeRO stage in a pipeline",
        lambda at: (at["pp"] > 1) & (at.data_ranks > 1) & ~np.isin(at["zero"], at.knobs.zero_in_pipeline),
        lambda at: f"ZeRO stage {at['zero']} does not go with a pipeline | zero: {stages_of_zero(at)}, or pp: 1",
    ),
    Rule(
        "ZeRO stage of experts",
        lambda at: (at["ep"] > 1) & (at.data_ranks > 1) & ~np.isin(at["zero"], at.knobs.zero_with_experts),
        lambda at: f"ZeRO stage {at['zero']} does not go with ep = {at['ep']} | zero: {stages_of_zero(at)}, or ep: 1",
    ),
    Rule(
        "unsharded replicas",
        refuses_unsharded,
        lambda at: (
            f"without ZeRO it has data parallelism alone | zero: {choices([stage for stage in at.knobs.zero if stage])}"
        ),
    ),
    Rule(
        "replicas of shards",
        lambda at: (not at.knobs.replica) & (at["replica"] > 1),
        lambda at: f"it has one replica of ZeRO's shards, and replica is {at['replica']} | replica: 1",
    ),
    Rule(
        "replicas without shards",
        lambda at: (
            (at.knobs.replica_shards == "sharded")
            & (at["replica"] > 1)
            & (at["dp"] == 1)
            & ((at["tp"] > 1) | (at["cp"] > 1))
        ),
        lambda at: f"replica = {at['replica']} beside tp or cp needs dp > 1 | replica: 1, or a larger dp",
    ),
    Rule(
        "recomputation",
        refuses_recompute,
        lambda at: f"it cannot recompute {word(at, 'recompute')} | recompute: {choices(at.knobs.recompute)}",
    ),
    Rule(
        "recomputed parts",
        refuses_parts,
        lambda at: (
            f"it recomputes {choices(at.knobs.recomputed_parts)} by name, not {flow_text(at.options.recompute)}"
            f" | recompute: {choices(at.knobs.recompute)}"
        ),
    ),
    Rule(
        "offload",
        refuses_offload,
        lambda at: (
            "it offloads no activations | offload: 0"
            if at.knobs.offload == "none"
            else "it offloads activations only without pipeline and recomputation | pp: 1 and recompute: none"
        ),
    ),
    Rule(
        "offloaded kinds",
        refuses_offloaded_kinds,
        lambda at: (
            f"it offloads {choices(at.knobs.offloaded_parts)} as whole kinds of activations that are not recomputed,"
            f" not {flow_text(at.options.offload)} | offload: {nearest_kinds(at)}"
        ),
    ),
    Rule(
        "optimizer offload",
        refuses_optimizer_offload,
        lambda at: (
            f"it offloads the optimizer's moments beside ZeRO {choices(at.knobs.optimizer_offload)} alone"
            f" | zero: {choices(at.knobs.optimizer_offload)}, or optimizer_offload: 0"
            if at.knobs.optimizer_offload
            else "it keeps the optimizer's moments on the device | optimizer_offload: 0"
        ),
    ),
    Rule(
        "dtype",
        lambda at: at.options.dtype not in (None, *at.knobs.dtypes),
        lambda at: f"it does not train in {at.options.dtype} | dtype: {choices(at.knobs.dtypes)}",
    ),
    Rule(
        "dtype of gradients",
        lambda at: at.options.gradients not in (None, *at.knobs.gradients),
        lambda at: f"it does not send gradients as {at.options.gradients} | gradients: {choices(at.knobs.gradients)}",
    ),
    Rule(
        "overlap",
        lambda at: not set(at.options.overlap or ()) <= set(at.knobs.overlap),
        lambda at: (
            f"it overlaps {choices(at.knobs.overlap)} with compute, not {choices(at.options.overlap or ())}"
            " | leave it out of `overlap`"
        ),
    ),
    Rule(
        "overlap of tp",
        lambda at: (
            at.knobs.tp_overlap == "sequence_parallel"
            and "tp" in (at.options.overlap or ())
            and at.options.sequence_parallel is False
        ),
        lambda at: "overlap of tp needs sequence parallelism | sequence_parallel: true, or leave tp out of `overlap`",
    ),
    Rule(
        "overlap of ep",
        refuses_ep_overlap,
        lambda at: (
            "overlap of ep needs vpp > 1 in a pipeline, and neither layers nor experts recomputed"
            " | a larger vpp and recompute: selective, or leave ep out of `overlap`"
        ),
    ),
    Rule(
        "kept features",
        lambda at: not at.knobs.kept_features and (at.options.features or "computed") != "computed",
        lambda at: "it computes features of frozen encoders in every epoch | features: computed",
    ),
    Rule(
        "rank order",
        refuses_rank_order,
        lambda at: (
            f"it does not lay ranks out as {at.options.rank_order or DEFAULT_RANK_ORDER}"
            f" | rank_order: {choices(at.knobs.rank_orders)}"
        ),
    ),
)
