"""Megatron-LM's arguments: fields of a launch ↔ what `pretrain_gpt.py` is told, in the order in which they depend on
each other. What each means, and its default, is of megatron-core 0.19.2 (megatron/training/arguments.py and
core/transformer/transformer_config.py).
"""

from math import prod

from planner.targets.megatron_layers import EXPERT_ROWS, MODULE_ROWS, MOST_LAYERS, VOCAB_ROW, has_experts
from planner.targets.megatron_stages import PIPELINE_ROW, RECOMPUTE_ROW
from planner.targets.rows import Arguments, Fields, Row, Stated, number, switch, switches

SOFTWARE = "megatron"  # whose knobs say which layouts it can launch
VERSIONS = ("0.19", "0.18", "0.17", "0.16", "0.15", "0.14", "0.13", "0.12", "0.11", "0.10", "0.9")
CHECKED = "megatron-core 0.19.2"
SINCE = {  # the version that first has an argument, where that is none of the first
    "--decoder-first-pipeline-num-layers": "0.9",
    "--expert-tensor-parallel-size": "0.10",
    "--hierarchical-context-parallel-sizes": "0.10",
    "--moe-router-topk-scaling-factor": "0.11",
    "--moe-router-num-groups": "0.11",
    "--mscale-all-dim": "0.11",
    "--mtp-num-layers": "0.12",
    "--recompute-modules": "0.12",
    "--optimizer-cpu-offload": "0.12",
    "--pipeline-model-parallel-layout": "0.13",
    "--use-megatron-fsdp": "0.14",
    "--overlap-moe-expert-parallel-comm": "0.14",
    "--moe-flex-dispatcher-backend": "0.16",
    "--fine-grained-activation-offloading": "0.16",
}
ORDERS = ("tp-cp-dp-replica-pp", "tp-cp-pp-dp-replica")  # the second by --use-tp-pp-dp-mapping
FSDP = {"no_shard": 0, "optim": 1, "optim_grads": 2, "optim_grads_params": 3}  # ZeRO stages of Megatron-FSDP
DISPATCHERS = {"all_to_all": "alltoall", "node_level": "flex", "all_gather": "allgather"}
TP_OVERLAP, EP_OVERLAP = "--tp-comm-overlap", "--overlap-moe-expert-parallel-comm"
OVERLAPPED: dict[tuple[str, ...], tuple[str, ...]] = {
    (): (),
    ("tp",): (TP_OVERLAP,),
    ("ep",): (EP_OVERLAP,),
    ("ep", "tp"): (TP_OVERLAP, EP_OVERLAP),
}
DEGREES = {  # in the order in which they are blamed
    "tp": "--tensor-model-parallel-size",
    "pp": "--pipeline-model-parallel-size",
    "cp": "--context-parallel-size",
    "replica": "--num-distributed-optimizer-instances",
}
FUSED_EXPERTS = "fused_group_mlp"  # of what may be offloaded, since 0.19
FP16_IS_BF16 = "bf16, at whose rates fp16 is priced"


def sharded_sequence(fields: Fields) -> Arguments:
    """Norms and residuals over tp: without tp Megatron drops the switch."""
    return {"--sequence-parallel": ()} if fields["layout.sequence_parallel"] and fields["layout.tp"] > 1 else {}


def write_context(fields: Fields) -> Arguments:
    """Around a ring, by heads, or both: the sizes of both, the all-to-all first."""
    cp, ulysses = fields["layout.cp"], fields["layout.ulysses"]
    if ulysses == 1:
        return {}
    if ulysses == cp:
        return {"--cp-comm-type": ("a2a",)}
    sizes = (str(ulysses), str(cp // ulysses))
    return {"--cp-comm-type": ("a2a+p2p",), "--hierarchical-context-parallel-sizes": sizes}


def read_context(stated: Stated, fields: Fields) -> Fields:
    """`all_gather` is a ring whose keys and values come at once. The help calls it `allgather`, which fails later."""
    kind = stated.choice("--cp-comm-type", ("p2p", "all_gather", "a2a", "a2a+p2p"), "p2p")
    cp = fields["layout.cp"]
    if kind != "a2a+p2p":
        return {"layout.ulysses": cp if kind == "a2a" else 1}
    sizes = stated.many("--hierarchical-context-parallel-sizes")
    if len(sizes) != 2 or not all(size.isdigit() for size in sizes) or int(sizes[0]) * int(sizes[1]) != cp:
        raise stated.error("--cp-comm-type", f"a2a+p2p needs two sizes with the product {cp}", "all-to-all, then ring")
    return {"layout.ulysses": int(sizes[0])}


def write_sharding(fields: Fields) -> Arguments:
    """The distributed optimizer is ZeRO-1, Megatron-FSDP more; HSDP is several instances of its shards."""
    zero, replica = fields["layout.zero"], fields["layout.replica"]
    arguments: dict[str, tuple[str, ...]] = {"--use-distributed-optimizer": ()} if zero else {}
    if zero > 1:
        strategy = next(name for name, stage in FSDP.items() if stage == zero)
        arguments |= {"--use-megatron-fsdp": (), "--data-parallel-sharding-strategy": (strategy,)}
        arguments |= {"--ckpt-format": ("fsdp_dtensor",)}
    return arguments | ({"--num-distributed-optimizer-instances": (str(replica),)} if replica > 1 and zero else {})


def read_sharding(stated: Stated, fields: Fields) -> Fields:
    """Raises InputError for PyTorch's FSDP beside what Megatron asserts that it is not beside."""
    zero = int("--use-distributed-optimizer" in stated)
    if "--use-megatron-fsdp" in stated:
        zero = FSDP[stated.choice("--data-parallel-sharding-strategy", FSDP, "optim_grads_params")]
    elif "--use-torch-fsdp2" in stated:
        beside = [DEGREES["pp"]] * (fields["layout.pp"] > 1) + ["--use-distributed-optimizer"] * zero
        if beside:
            raise stated.error("--use-torch-fsdp2", f"it does not go with {beside[0]}", "one of them")
        zero = 3
    replica = stated.integer("--num-distributed-optimizer-instances", 1) if zero else 1
    return {"layout.zero": zero, "layout.replica": replica}


def read_replicas(stated: Stated, fields: Fields) -> Fields:
    """What is left of the ranks. Raises InputError where the degrees do not divide them."""
    degrees, ranks = {name: fields[f"layout.{name}"] for name in DEGREES}, fields["ranks"]
    product = prod(degrees.values())
    if not product or ranks % product:
        named = [name for name, degree in degrees.items() if degree != 1]
        text = " · ".join(f"{name} {degrees[name]}" for name in named)
        message = f"{text} do not divide {ranks} ranks"
        raise stated.error(DEGREES[named[0]], message, "other degrees, or another --gpus")
    return {"layout.dp": ranks // product}


def write_order(fields: Fields) -> Arguments:
    """The order of the dims of several ranks, where it is the second and not the first."""
    own, first, second = (
        [dim for dim in order.split("-") if fields[f"layout.{dim}"] > 1]
        for order in (fields["layout.rank_order"], *ORDERS)
    )
    return {"--use-tp-pp-dp-mapping": ()} if own == second != first else {}


def write_dtype(fields: Fields) -> Arguments:
    dtype = fields["layout.dtype"]
    arguments: dict[str, tuple[str, ...]] = {} if dtype == "float32" else {"--bf16": ()}
    return arguments | ({"--fp8-format": ("hybrid",)} if dtype == "fp8" else {})


def read_dtype(stated: Stated, fields: Fields) -> Fields:
    """Raises InputError for two at once."""
    if {"--bf16", "--fp16"} <= stated.values.keys():
        raise stated.error("--fp16", "it does not go with --bf16", "one of them")
    if "--fp8-format" in stated:
        stated.choice("--fp8-format", ("hybrid", "e4m3"))
        return {"layout.dtype": "fp8"}
    if "--fp16" in stated or "--bf16" not in stated:
        stated.defaults["--bf16"] = FP16_IS_BF16 if "--fp16" in stated else "not said: float32"
    return {"layout.dtype": "bf16" if {"--bf16", "--fp16"} & stated.values.keys() else "float32"}


def write_dispatch(fields: Fields) -> Arguments:
    return {"--moe-token-dispatcher-type": (DISPATCHERS[fields["layout.dispatch"]],), "--moe-grouped-gemm": ()}


def read_dispatch(stated: Stated, fields: Fields) -> Fields:
    """A flexible dispatcher is DeepEP, or one like it: one copy of a token to each node."""
    named = {program: own for own, program in DISPATCHERS.items()} | {"alltoall_seq": "all_to_all"}
    return {"layout.dispatch": named[stated.choice("--moe-token-dispatcher-type", named, "allgather")]}


def write_host_moments(fields: Fields) -> Arguments:
    share = fields["layout.optimizer_offload"]
    if not share:
        return {}
    own = {"--optimizer-cpu-offload": (), "--use-precision-aware-optimizer": ()}
    return own | ({"--optimizer-offload-fraction": (f"{share:g}",)} if share < 1 else {})


def read_host_moments(stated: Stated, fields: Fields) -> Fields:
    offloads = "--optimizer-cpu-offload" in stated
    return {"layout.optimizer_offload": stated.number("--optimizer-offload-fraction", 1.0) if offloads else 0.0}


def offloaded_modules(fields: Fields) -> dict[str, tuple[str, ...]]:
    """The modules that are named for each kind of activations: of a norm its product's input, and that of routers."""
    norm = ("qkv_linear", "mlp_norm") if has_experts(fields) else ("qkv_linear",)
    return {"attention": ("core_attn", "attn_proj"), "norm": norm, "moe": (FUSED_EXPERTS,)}


def write_host_activations(fields: Fields) -> Arguments:
    kinds, modules = fields["layout.offload"], offloaded_modules(fields)
    if not isinstance(kinds, tuple) or not {*kinds} <= {*modules}:
        return {}
    named = tuple(name for kind in kinds for name in modules[kind])
    fused = {"--use-transformer-engine-op-fuser": ()} if FUSED_EXPERTS in named else {}
    known = not fused or fields["version"] >= (0, 19)
    return {"--fine-grained-activation-offloading": (), "--offload-modules": named, **fused} if known else {}


def read_host_activations(stated: Stated, fields: Fields) -> Fields:
    """Whole kinds of activations. Raises InputError for a part of one."""
    if "--fine-grained-activation-offloading" not in stated:
        return {"layout.offload": 0.0}
    named, modules = {*stated.many("--offload-modules")}, offloaded_modules(fields)
    kinds = tuple(kind for kind, own in modules.items() if named >= {*own})
    if not kinds or named != {name for kind in kinds for name in modules[kind]}:
        known = "; ".join(" ".join(own) for own in modules.values())
        raise stated.error("--offload-modules", "it names no whole kinds of activations", f"some of: {known}")
    return {"layout.offload": kinds}


def read_optimizer(stated: Stated, fields: Fields) -> Fields:
    """Plans have Adam's states. Raises InputError for another optimizer."""
    stated.choice("--optimizer", ("adam",), "adam")
    return {}


def gathers(fields: Fields) -> Arguments:
    early = fields["layout.zero"] and fields["gathers_early"] and fields["reduces_early"]
    return {"--overlap-param-gather": ()} if early else {}


def read_gathers(stated: Stated, fields: Fields) -> Fields:
    """Raises InputError for gathers beside compute where reductions are not."""
    early = "--overlap-param-gather" in stated
    if early and not fields["reduces_early"]:
        raise stated.error("--overlap-param-gather", "it needs --overlap-grad-reduce", "both of them, or none")
    return {"gathers_early": early}


DISPATCH_ROW = Row(
    ("layout.dispatch",),
    ("--moe-token-dispatcher-type",),
    ("--moe-grouped-gemm",),
    write_dispatch,
    read_dispatch,
    has_experts,
)
LAYOUT_ROWS: tuple[Row, ...] = (
    number("layout.tp", "--tensor-model-parallel-size", 1),
    Row(
        ("layout.sequence_parallel",),
        (),
        ("--sequence-parallel",),
        sharded_sequence,
        lambda stated, fields: {"layout.sequence_parallel": "--sequence-parallel" in stated},
    ),
    number("layout.cp", "--context-parallel-size", 1),
    Row(
        ("layout.ulysses",),
        ("--cp-comm-type", "--hierarchical-context-parallel-sizes"),
        (),
        write_context,
        read_context,
    ),
    number("layout.pp", "--pipeline-model-parallel-size", 1, most=MOST_LAYERS),
    PIPELINE_ROW,
    number("layout.ep", "--expert-model-parallel-size", 1),
    number("layout.etp", "--expert-tensor-parallel-size", lambda fields: fields["layout.tp"], when=has_experts),
    DISPATCH_ROW,
    Row(
        ("layout.zero", "layout.replica"),
        ("--data-parallel-sharding-strategy", "--num-distributed-optimizer-instances", "--ckpt-format"),
        ("--use-distributed-optimizer", "--use-megatron-fsdp", "--use-torch-fsdp2"),
        write_sharding,
        read_sharding,
    ),
    Row(("layout.dp",), (), (), lambda fields: {}, read_replicas),
    Row(
        ("layout.rank_order",),
        (),
        ("--use-tp-pp-dp-mapping",),
        write_order,
        lambda stated, fields: {"layout.rank_order": ORDERS["--use-tp-pp-dp-mapping" in stated]},
    ),
    RECOMPUTE_ROW,
    Row(
        (),
        ("--optimizer",),
        (),
        lambda fields: {"--optimizer": ("adam",)},
        read_optimizer,
    ),
    Row(("layout.dtype",), ("--fp8-format",), ("--bf16", "--fp16"), write_dtype, read_dtype),
    switch("layout.gradients", "--grad-reduce-in-bf16", "bf16", "float32"),
    switches(("layout.overlap",), OVERLAPPED),
    Row(
        ("layout.optimizer_offload",),
        ("--optimizer-offload-fraction",),
        ("--optimizer-cpu-offload", "--use-precision-aware-optimizer"),
        write_host_moments,
        read_host_moments,
    ),
    Row(
        ("layout.offload",),
        ("--offload-modules",),
        ("--fine-grained-activation-offloading", "--use-transformer-engine-op-fuser"),
        write_host_activations,
        read_host_activations,
    ),
    switch("reduces_early", "--overlap-grad-reduce"),
    Row(
        ("gathers_early",),
        (),
        ("--overlap-param-gather",),
        gathers,
        read_gathers,
    ),
)

TOKENS_ROW = number("tokens", "--seq-length")
STEP_ROWS: tuple[Row, ...] = (
    number("layout.micro_batch", "--micro-batch-size"),
    number(
        "sequences",
        "--global-batch-size",
        lambda fields: fields["layout.micro_batch"] * fields["layout.dp"] * fields["layout.replica"],
    ),
)

ROWS: tuple[Row, ...] = (TOKENS_ROW, *MODULE_ROWS, *EXPERT_ROWS, *LAYOUT_ROWS, VOCAB_ROW, *STEP_ROWS)


def environment(fields: Fields) -> dict[str, str]:
    """Variables that it insists on. One queue of work to a GPU keeps exchanges of tp and cp in order, before Blackwell;
    Megatron-FSDP refuses it. Activations are offloaded by Transformer Engine's first way of doing so.
    """
    ordered = (fields["layout.tp"] > 1 or fields["layout.cp"] > 1) and not fields["blackwell"]
    connections = {"CUDA_DEVICE_MAX_CONNECTIONS": "1"} if ordered and fields["layout.zero"] < 2 else {}
    return connections | ({"NVTE_CPU_OFFLOAD_V1": "1"} if fields["layout.offload"] else {})
