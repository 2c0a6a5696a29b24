"""MoE parallel folding (arXiv 2504.14960) and MegaScale-MoE (arXiv 2505.11432): does the price choose what they found?

Folding: four models on DGX H100 with 400 Gb/s a GPU, 256 sequences of 4,096 tokens, bf16, experts equally loaded
(capacity factor 1). Each of five methods is a part of the space of layouts, from which the quickest that fits is taken;
its MFU stands beside the published one. Experts are unfolded where ep divides dp and etp is tp. All methods have
Megatron's coefficients, so that they differ by their layouts alone.

MegaScale-MoE: on nodes of 8 H800 with pipelines between them, attention by heads (Ulysses) or by matrices, experts
whole or cut; and by how many experts a token visits, from which number on all-gather dispatch is the quicker one.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise, permutations
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from benchmarks.best_layouts import Allowed, Pick, Step, best_layout, everything
from benchmarks.layout_regret import layout_text
from benchmarks.registry import Figures
from planner.costs import MachineModel, machine_of
from planner.costs.compute import complete_rates
from planner.layouts.space.layout_space import LayoutSpace
from planner.published.published_case import StatedNetwork
from planner.published.shipped_profiles import reachable_network
from planner.specs import library
from planner.specs.base import with_fields
from planner.specs.framework.software import Software
from planner.specs.hardware.cluster import Cluster
from planner.specs.hardware.profile import Profile
from planner.specs.layers import Decoder, Module
from planner.specs.layers.components import Experts
from planner.specs.model import Model
from planner.specs.parallelism import Dispatch, Parallelism, Recompute
from planner.specs.shapes import step_flops

SEQ, BATCH = 4096, 256
MARGIN = 0.02  # points of MFU from which a published order counts
UNFOLDED, FOLDED = "MCore", "folded"
# What the paper's methods recompute is not known here; the second was added after the first's figures had been seen.
SCOPES: dict[str, Recompute | None] = {"any recomputation": None, "no recomputation": "none"}


def shipped(name: str) -> Decoder:
    """The decoder of a shipped model."""
    module = library.read_named(name, Model)[0].modules["llm"]
    assert isinstance(module, Decoder)
    return module


def with_experts(name: str, experts: Experts) -> Decoder:
    """A shipped decoder with these experts."""
    return with_fields(shipped(name), moe=experts)


def qwen2_57b() -> Decoder:
    """Shapes of Qwen/Qwen2-57B-A14B's config.json."""
    return Decoder(
        layers=28, hidden=3584, heads=28, kv_heads=4, ffn=18944, vocab=151936, gated=True, norm="rms", bias="qkv",
        positions="rope", tied=False, moe=Experts(experts=64, topk=8, ffn=2560, shared_ffn=20480),
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class Published:
    """A model of the paper, its GPUs, and its MFU by method; None: it ran out of memory."""

    name: str
    module: Module
    ranks: int
    mfu: dict[str, float | None]


def published() -> tuple[Published, ...]:
    """The paper's main table. 8x70B is Llama 3 70B with eight of its MLPs a layer; G8T8 has eight eighths of each."""
    methods = tuple(METHODS)
    return tuple(
        Published(name, module, ranks, dict(zip(methods, mfu, strict=True)))
        for name, module, ranks, mfu in (
            ("Mixtral-8x22B", shipped("mixtral-8x22b"), 128, (0.043, 0.234, 0.366, 0.463, 0.493)),
            (
                "Llama3-8x70B",
                with_experts("llama-3-70b", Experts(experts=8, topk=2, ffn=28672)),
                256,
                (None, 0.196, None, 0.388, 0.416),
            ),
            ("Qwen2-57B-A14B", qwen2_57b(), 64, (0.099, 0.254, 0.231, 0.353, 0.390)),
            (
                "Mixtral-8x22B-G8T8",
                with_experts("mixtral-8x22b", Experts(experts=64, topk=8, ffn=2048)),
                128,
                (0.022, 0.090, 0.087, 0.171, 0.288),
            ),
        )
    )


def unfolded(ranks: int) -> Allowed:
    """Experts over ranks of data parallelism alone, cut as everything else is. A ring and experts together would be
    further apart than ranks of a layout's `ep` are placed and priced.
    """

    def allowed(space: LayoutSpace) -> NDArray[np.bool_]:
        dp = ranks // (space["tp"] * space["cp"] * space["pp"])
        apart = (space["cp"] > 1) & (space["ep"] > 1)
        return np.asarray((dp % space["ep"] == 0) & (space["etp"] == space["tp"]) & ~apart)

    return allowed


METHODS = {
    "FSDP": Parallelism(zero=3, tp=1, cp=1, pp=1, ep=1, etp=1),
    "FSDP + EP": Parallelism(zero=3, tp=1, cp=1, pp=1, etp=1),
    "TP + EP + DP": Parallelism(zero=1, cp=1, pp=1),
    UNFOLDED: Parallelism(zero=1),
    FOLDED: Parallelism(zero=1),
}


def run(data: Path | None) -> Iterator[Figures]:
    for scope, recompute in SCOPES.items():
        gains = {}
        for model in published():
            reached = {method: pick_of(model, method, recompute) for method in METHODS}
            for method, pick in reached.items():
                yield {"space": scope, **reached_figures(model, method, pick)}
            mfu = {method: mfu_of(model, pick) if pick else None for method, pick in reached.items()}
            gains[model.name] = gain(mfu)
            yield {"space": scope, **order_figures(model, mfu)}
        largest = max(gains, key=lambda name: gains[name] or 0.0)
        yield {"space": scope, "largest_gain": largest, "published_largest_gain": "Mixtral-8x22B-G8T8"}
    yield from megascale_moe()


def reached_figures(model: Published, method: str, pick: Pick | None) -> Figures:
    """The best layout of one method beside the published MFU."""
    return {
        "model": model.name,
        "gpus": model.ranks,
        "method": method,
        "mfu": rounded(mfu_of(model, pick)) if pick else None,
        "published_mfu": model.mfu[method],
        "layout": layout_text(pick.columns) if pick else "none fits in memory",
    }


def order_figures(model: Published, mfu: dict[str, float | None]) -> Figures:
    """What folding gains, and where the order of methods is not the paper's."""
    return {
        "model": model.name,
        "gain_of_folding": rounded(gain(mfu)),
        "published_gain_of_folding": rounded(gain(model.mfu)),
        "folded_is_best": mfu[FOLDED] == max(value for value in mfu.values() if value),
        "pairs_apart": len(pairs_apart(mfu, model.mfu)),
        "out_of_order": out_of_order(mfu, model.mfu),
    }


def pick_of(model: Published, method: str, recompute: Recompute | None = None) -> Pick | None:
    """The quickest layout that a method allows; `recompute`: None lets the search decide it."""
    allowed = everything if method == FOLDED or METHODS[method].zero == 3 else unfolded(model.ranks)
    fixed = with_fields(METHODS[method], recompute=recompute)
    return best_layout(Step(model.module, model.ranks, SEQ, BATCH), eos(), fixed, allowed)


def eos() -> MachineModel:
    """DGX H100 nodes, 400 Gb/s a GPU."""
    device, software = library.read_named("h100-80gb", Profile)[0], library.read_named("megatron", Software)[0]
    cluster = library.read_named("h100x256", Cluster)[0]
    return machine_of(cluster, cluster.ranks[0].kind, device.device, device.rates, software.timing, software.accounting)


def mfu_of(model: Published, pick: Pick) -> float:
    peak = eos().device.tflops["bf16"] * 1e12
    return step_flops(model.module, (SEQ,) * BATCH) / (pick.seconds * model.ranks * peak)


def gain(mfu: dict[str, float | None]) -> float | None:
    """How much quicker folded is than unfolded."""
    folded, plain = mfu[FOLDED], mfu[UNFOLDED]
    return folded / plain - 1 if folded and plain else None


def pairs_apart(ours: dict[str, float | None], theirs: dict[str, float | None]) -> list[tuple[str, str]]:
    """Pairs of methods, better one first, that the paper has apart and that have a figure here too."""
    timed = {method: value for method, value in theirs.items() if value is not None and ours[method] is not None}
    return [pair for pair in permutations(timed, 2) if timed[pair[0]] - timed[pair[1]] > MARGIN]


def out_of_order(ours: dict[str, float | None], theirs: dict[str, float | None]) -> list[str]:
    """Of these pairs those that are in the other order here, or equal."""
    return [
        f"{better} over {worse}"
        for better, worse in pairs_apart(ours, theirs)
        if (ours[better] or 0.0) <= (ours[worse] or 0.0)
    ]


def rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 4)


NODE, LONG = 8, 8192
STRATEGIES = {
    "TP + TP": Parallelism(tp=NODE, cp=1, ep=1, etp=NODE),
    "TP + EP": Parallelism(tp=NODE, cp=1, ep=NODE, etp=1),
    "SP + TP": Parallelism(tp=1, cp=NODE, ulysses=NODE, ep=1, etp=NODE),
    "SP + EP": Parallelism(tp=1, cp=NODE, ulysses=NODE, ep=NODE, etp=1),
}
TOPK = (2, 4, 6, 7, 8, 9, 10, 12)
DISPATCHES: tuple[Dispatch, ...] = ("all_to_all", "all_gather")


def megascale_moe() -> Iterator[Figures]:
    """Attention's and experts' split within a node, pipelines between nodes."""
    for name, nodes in (("mixtral-8x7b", 4), ("mixtral-8x22b", 8)):
        step = Step(shipped(name), NODE * nodes, LONG, 32 * nodes)
        seconds = {way: within_node(step, nodes, way, "all_to_all") for way in STRATEGIES}
        known = {way: value for way, value in seconds.items() if value is not None}
        yield {
            "model": name,
            "gpus": step.ranks,
            "step_seconds": {way: rounded(value) for way, value in seconds.items()},
            "chosen": min(known, key=lambda way: known[way]),
            "published_choice": "SP + EP",
        }
    quicker = {k: quicker_dispatch(k) for k in TOPK}
    yield {
        "model": "mixtral-8x7b, experts cut in eight",
        "quicker_dispatch_by_topk": quicker,
        "all_gather_from_topk": first_change(tuple(quicker.items())),
        "published": "over 6 (measured), over 8 (theory)",
    }


def quicker_dispatch(topk: int) -> Dispatch:
    """All-to-all where the two are equal."""
    step = Step(with_experts("mixtral-8x7b", Experts(experts=64, topk=topk, ffn=1792)), NODE * 4, LONG, 128)
    seconds = {way: within_node(step, 4, "SP + EP", way) or np.inf for way in DISPATCHES}
    return min(DISPATCHES, key=lambda way: seconds[way])


def first_change(quicker: Sequence[tuple[int, Dispatch]]) -> int | None:
    """The first topk at which the quicker dispatch is another one; None if it never is."""
    return next((now[0] for before, now in pairwise(quicker) if before[1] != now[1]), None)


def within_node(step: Step, nodes: int, way: str, dispatch: Dispatch) -> float | None:
    """Seconds of a step, whatever else is searched; None where nothing fits."""
    fixed = with_fields(STRATEGIES[way], pp=nodes, dispatch=dispatch)
    pick = best_layout(step, h800(), fixed)
    return pick.seconds if pick else None


def h800() -> MachineModel:
    """Nodes of eight H800, their usual adapters."""
    profile, software = library.read_named("h800", Profile)[0], library.read_named("megatron", Software)[0]
    rates = complete_rates(profile.rates)
    network = reachable_network(StatedNetwork(NODE), profile.device, rates)
    return MachineModel(profile.device, rates, network, software.timing, software.accounting)
