"""A split as instances of vLLM on the GPUs of a cluster: larger ones first, each within a node."""

from collections.abc import Sequence

from planner.errors import InputError
from planner.serving.served_inputs import ServedInputs
from planner.serving.splits import STAGE_WORDS, Share, Split
from planner.simulate.serving import QueueOrder
from planner.targets import Served, vllm_script

PROXY = (
    "clients ask a proxy: vLLM's examples/disaggregated/disaggregated_encoder/disagg_epd_proxy.py, which is told the"
    " addresses of encoders, prefill and decode"
)
PRIORITY = "shortest work first: each client sends `priority`, its tokens of prompt less 20 for each ms that it waits"


def launch_script(inputs: ServedInputs, split: Split, order: QueueOrder) -> str:
    """The script that starts a split. Raises InputError where instances do not fit the nodes."""
    about = [f"{inputs.job.name}: {split.text}; written by planner serve, simulated"]
    about += [PROXY] * (len(split.shares) > 1) + [PRIORITY] * (order == "shortest")
    setup = inputs.question.setup
    served, nodes = [], node_rooms(inputs)
    memory = 1.0 - inputs.job.limits.memory_margin
    for share in sorted(split.shares, key=lambda each: -each.tp):
        for number in range(share.instances):
            node, gpus = placed(nodes, share.tp)
            fields = instance_fields(share, split, memory, order, setup.prefix_cache > 0)
            words = "+".join(STAGE_WORDS[each] for each in share.stages)
            served.append(Served(f"{words} {number}", node, gpus, fields))
    return vllm_script(served, about)


def node_rooms(inputs: ServedInputs) -> list[list[int]]:
    """The GPUs of each node that are free."""
    kind = inputs.cluster.ranks[0]
    return [[*range(min(kind.per_node, kind.count - first))] for first in range(0, kind.count, kind.per_node)]


def placed(nodes: Sequence[list[int]], tp: int) -> tuple[int, tuple[int, ...]]:
    """So many GPUs of one node, which are taken. Raises InputError where no node has them."""
    for number, free in enumerate(nodes):
        if len(free) >= tp:
            gpus, free[:] = tuple(free[:tp]), free[tp:]
            return number, gpus
    raise InputError(f"no node has {tp} GPUs left", where="cluster.ranks", fix="nodes with more GPUs")


def instance_fields(
    share: Share, split: Split, memory: float, order: QueueOrder, prefixes: bool
) -> dict[str, int | float | str | bool]:
    """What an instance is told."""
    fields: dict[str, int | float | str | bool] = {
        "tp": share.tp,
        "answers": split.answers,
        "tokens": split.tokens,
        "memory": memory,
        "chunked": split.chunked,
        "prefixes": prefixes,
        "order": order,
        "encoder_only": share.stages == "e",
    }
    if any(each.stages == "e" for each in split.shares):
        role = "producer" if share.stages == "e" else "consumer"
        fields |= {"features": role} if share.stages != "d" else {}
    if any(each.stages == "d" for each in split.shares) and share.stages != "e":
        fields["keys"] = "consumer" if share.stages == "d" else "producer"
    return fields
