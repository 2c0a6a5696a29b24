"""Settings of torchtitan: fields of a launch ↔ what its TOML (0.2.2) and its flags (0.3.0) say, in the order in which
they depend on each other. What each means, and its default, is of the config and distributed folders of both.
"""

from math import ceil

from planner.errors import InputError
from planner.specs.base import Layers
from planner.targets.keyed_file import always, is_true, only
from planner.targets.rows import Arguments, Fields, Row, Stated
from planner.targets.torchtitan_models import EP, FLAVORS, FLOAT8, TP, flavor_module, flavor_of

FLAGS = (0, 3)  # the first version that is told by flags
EAGER = "training.disable_cuda_graphs"  # every reading of flags has it, and none of a TOML
SEQUENCE_PARALLEL = "parallelism.enable_sequence_parallel"
CP, PP = "parallelism.context_parallel_degree", "parallelism.pipeline_parallel_degree"
REPLICATE, SHARD = "parallelism.data_parallel_replicate_degree", "parallelism.data_parallel_shard_degree"
RESHARD = "parallelism.fsdp_reshard_after_forward"
SCHEDULE = "parallelism.pipeline_parallel_schedule"
PER_STAGE = "parallelism.pipeline_parallel_layers_per_stage"
FIRST_LESS = "parallelism.pipeline_parallel_first_stage_less_layers"
LAST_LESS = "parallelism.pipeline_parallel_last_stage_less_layers"
PARTS = "parallelism.module_fqns_per_model_part"
MICRO_BATCH = "parallelism.pipeline_parallel_microbatch_size"
LOCAL, GLOBAL = "training.local_batch_size", "training.global_batch_size"
ASYNC_TP = {False: "parallelism.enable_async_tensor_parallel", True: "compile.enable_async_tensor_parallel"}
ETP, BACKEND = "parallelism.expert_tensor_parallel_degree", "parallelism.expert_parallel_comm_backend"
BACKENDS = {"standard": "all_to_all", "deepep": "node_level"}
GATHERS_FP8 = "quantize.linear.float8.enable_fsdp_float8_all_gather"
EXPERTS_FP8 = "quantize.grouped_mm.float8"
SCHEDULES = {"gpipe": "GPipe", None: "1F1B"}
NO_PIPELINE, NO_CONTEXT = ("qwen3", "gpt_oss"), ("deepseek_v3", "gpt_oss")  # in 0.2.2
NO_WEIGHTS = ((0, 0), (1, 1), (0, 1), (1, 0))  # layers that embedding and head count as, that are tried
SINCE = {
    EAGER: "0.3",
    SEQUENCE_PARALLEL: "0.3",
    "compile.enable_async_tensor_parallel": "0.3",
}
UNTIL_2 = frozenset((ETP, BACKEND, ASYNC_TP[False], "parallelism.context_parallel_rotate_method"))  # not in 0.3


def by_flags(fields: Fields) -> bool:
    """Whether arguments are written for flags."""
    return bool(fields["version"] >= FLAGS)


def write_model(fields: Fields) -> Arguments:
    """Raises InputError for a model that has no name there."""
    found = flavor_of(fields["module"], fields["layout.tp"])
    if not found:
        known = ", ".join(f"{name} {flavor}" for name, flavor in FLAVORS)
        raise InputError("torchtitan has no flavor of this model", where="module", fix=f"one of {known}")
    return {"model.name": (found[0],), "model.flavor": (found[1],)}


def read_model(stated: Stated, fields: Fields) -> Fields:
    if "module" in fields:
        return {}
    name = stated.choice("model.name", dict.fromkeys(name for name, _ in FLAVORS), "llama3")
    flavor = stated.choice("model.flavor", [flavor for own, flavor in FLAVORS if own == name], "debugmodel")
    return {"module": flavor_module(name, flavor)}


def split(layers: int, stages: int, first: int, last: int) -> list[int]:
    """Layers of each stage, where embedding and head count as so many; none where torchtitan refuses."""
    each, more = divmod(layers + first + last, stages)
    if stages < 2 or max(first, last, 1) > each:
        return []
    sizes = [each + (stage < more) for stage in range(stages)]
    return [sizes[0] - first, *sizes[1:-1], sizes[-1] - last]


def spans(sizes: list[int]) -> tuple[Layers, ...]:
    """Stages of so many layers each."""
    return tuple(Layers(range(sum(sizes[:at]), sum(sizes[: at + 1]))) for at in range(len(sizes)))


def write_pipeline(fields: Fields) -> Arguments:
    """Stages by their number of layers, or by the names of their modules where that does not say them.

    Raises InputError for one that has none.
    """
    arguments = {PP: (str(fields["layout.pp"]),)}
    if fields["layout.pp"] == 1:
        return arguments
    interleaved = fields["layout.vpp"] > 1
    schedule = "Interleaved1F1B" if interleaved else SCHEDULES.get(fields["layout.schedule"], "1F1B")
    sizes, layers = [len(stage) for stage in fields["layout.stages"]], fields["module"].layers
    arguments[SCHEDULE] = (schedule,)
    if not all(sizes):
        raise InputError("torchtitan has no stage without layers", where="layout.stages", fix="fewer stages")
    for first, last in NO_WEIGHTS:
        each = ceil((layers + first + last) / len(sizes))
        if split(layers, len(sizes), first, last) == sizes and ceil((layers + first + last) / each) == len(sizes):
            return arguments | {PER_STAGE: (str(each),), FIRST_LESS: (str(first),), LAST_LESS: (str(last),)}
    parts = [[f"layers.{layer}" for layer in stage] for stage in fields["layout.stages"]]
    parts[0].insert(0, "tok_embeddings")
    parts[-1] += ["norm", "lm_head" if by_flags(fields) else "output"]
    return arguments | {PARTS: tuple(",".join(part) for part in parts)}


def read_pipeline(stated: Stated, fields: Fields) -> Fields:
    """Raises InputError for stages that do not divide over the ranks, or that a schedule cannot have."""
    pp, layers = stated.integer(PP, 1), fields["module"].layers
    if pp < 2:
        return {"layout.pp": pp, "layout.vpp": 1}
    schedule = stated.choice(SCHEDULE, ("1F1B", "GPipe", "Interleaved1F1B"), "1F1B")
    interleaved = schedule == "Interleaved1F1B"
    first, last = stated.integer(FIRST_LESS, 1), stated.integer(LAST_LESS, 1)
    count = pp * (1 + interleaved)
    if PARTS in stated and stated.many(PARTS) != ("none",):
        named = [[part[7:] for part in each.split(",") if part.startswith("layers.")] for each in stated.many(PARTS)]
        if not all(number.isascii() and number.isdigit() and len(number) < 6 for each in named for number in each):
            raise stated.error(PARTS, "a layer is none that a model has", "layers.0, layers.1, and so on")
        stages = tuple(Layers(map(int, each)) for each in named)
    else:
        if PER_STAGE in stated and stated.one(PER_STAGE) != "none":
            count = ceil((layers + first + last) / max(1, stated.integer(PER_STAGE)))
        stages = spans(split(layers, count, first, last))
    argument = next((each for each in (PARTS, PER_STAGE, SCHEDULE) if each in stated), PP)
    fits = len(stages) // pp > 1 if interleaved else len(stages) == pp
    if not stages or len(stages) % pp or not fits or not all(map(len, stages)):
        needed = f"{'a multiple of ' if interleaved else ''}{pp}{', at least twice' if interleaved else ''}"
        message = (
            f"{len(stages) or count} stages of {layers} layers, and {schedule} on {pp} ranks needs {needed}, none empty"
        )
        raise stated.error(argument, message, f"{PER_STAGE} = {ceil(layers / pp)}, {FIRST_LESS} = 0, {LAST_LESS} = 0")
    own = {"layout.pp": pp, "layout.vpp": len(stages) // pp, "layout.stages": stages}
    return own | {"layout.schedule": "gpipe" if schedule == "GPipe" else None}


def write_experts(fields: Fields) -> Arguments:
    """The width of experts and how tokens get there are settings of TOML alone. Raises InputError where flags are to
    say them.
    """
    if not fields["module"].routed_experts:
        return {}
    arguments: dict[str, tuple[str, ...]] = {EP: (str(fields["layout.ep"]),)}
    for name, usual in (("etp", 1), ("dispatch", "all_to_all")) if by_flags(fields) else ():
        own = fields[f"layout.{name}"]
        if own != usual and fields["layout.ep"] > 1:
            fix = f"--version 0.2, or {name}: {usual}"
            raise InputError(f"torchtitan 0.3 has no flag for {name}: {own}", where=f"layout.{name}", fix=fix)
    if not by_flags(fields) and fields["layout.ep"] > 1:
        backend = next((each for each, own in BACKENDS.items() if own == fields["layout.dispatch"]), "standard")
        arguments |= {ETP: (str(fields["layout.etp"]),), BACKEND: (backend,)}
    return arguments


def read_experts(stated: Stated, fields: Fields) -> Fields:
    if not fields["module"].routed_experts:
        return {"layout.ep": 1}
    ep = stated.integer(EP, 1)
    etp = stated.integer(ETP, 1) if ep > 1 and EAGER not in stated else 1
    dispatch = BACKENDS[stated.choice(BACKEND, BACKENDS, "standard")] if EAGER not in stated else "all_to_all"
    return {"layout.ep": ep, "layout.etp": etp, "layout.dispatch": dispatch}


def write_sharding(fields: Fields) -> Arguments:
    """FSDP2 keeps gathered weights after forward (ZeRO-2) or not (ZeRO-3); DDP is replicas without shards."""
    zero, dp, replica = (fields[f"layout.{name}"] for name in ("zero", "dp", "replica"))
    arguments = {REPLICATE: (str(replica if zero else dp * replica),), SHARD: (str(dp if zero else 1),)}
    return arguments | ({RESHARD: ("always" if zero == 3 else "never",)} if zero else {})


def read_sharding(stated: Stated, fields: Fields) -> Fields:
    """Shards are what is left of the ranks, where nobody says them. Raises InputError where degrees make others."""
    tp, cp, pp, ranks = (fields[name] for name in ("layout.tp", "layout.cp", "layout.pp", "ranks"))
    replicate, told = stated.integer(REPLICATE, 1), stated.value(SHARD, "-1")
    others = replicate * tp * cp * pp
    shard = ranks // max(1, others) if told == "-1" else stated.integer(SHARD)
    if shard * others != ranks:
        text = f"replicate {replicate} · shard {told} · cp {cp} · tp {tp} · pp {pp} are no {ranks} ranks"
        named = next((each for each in (SHARD, TP, PP, CP, REPLICATE) if each in stated and told != "-1"), TP)
        raise stated.error(named, text, "other degrees, or another --gpus")
    if shard * cp == 1:
        return {"layout.zero": 0, "layout.dp": replicate, "layout.replica": 1}
    reshard = stated.choice(RESHARD, ("default", "always", "never"), "default")
    zero = 3 if reshard == "always" or (reshard == "default" and pp == 1) else 2
    return {"layout.zero": zero, "layout.dp": shard, "layout.replica": replicate}


def write_recompute(fields: Fields) -> Arguments:
    how = fields["layout.recompute"]
    mode = how if how in ("none", "full") else "selective"
    option = {"activation_checkpoint.selective_ac_option": ("op",)} if mode == "selective" else {}
    return {"activation_checkpoint.mode": (mode,), **({} if by_flags(fields) else option)}


def read_recompute(stated: Stated, fields: Fields) -> Fields:
    """Selective is by operators: every n-th layer, which a TOML has by default, is a choice that no plan has."""
    mode = stated.choice("activation_checkpoint.mode", ("none", "selective", "full"), "selective")
    if mode == "selective" and EAGER not in stated:
        stated.choice("activation_checkpoint.selective_ac_option", ("op",), "2")
    return {"layout.recompute": mode}


def write_dtype(fields: Fields) -> Arguments:
    dtype = fields["layout.dtype"]
    if dtype == "fp8":
        experts = bool(fields["module"].routed_experts)
        arguments = {"model.converters": (FLOAT8, *([EXPERTS_FP8] if experts else []))}
        if by_flags(fields):
            return arguments
        more = {GATHERS_FP8: ("true",)} | ({f"{EXPERTS_FP8}.fqns": ("experts",)} if experts else {})
        return arguments | more
    return {"training.mixed_precision_param": ("float32" if dtype == "float32" else "bfloat16",)}


def read_dtype(stated: Stated, fields: Fields) -> Fields:
    """In 0.2.2, without FSDP, a model over tp or pp is computed in the dtype of its weights."""
    stated.choice("training.dtype", ("float32",), "float32")
    param = stated.choice("training.mixed_precision_param", ("bfloat16", "float32"), "bfloat16")
    for converter in stated.many("model.converters"):
        if converter not in (FLOAT8, EXPERTS_FP8):
            raise stated.error("model.converters", f"`{converter[:40]}` is none that a plan can have", f'["{FLOAT8}"]')
    if FLOAT8 in stated.many("model.converters"):
        if EAGER not in stated and not is_true(stated, GATHERS_FP8, False):
            stated.defaults[GATHERS_FP8] = "false; priced as gathered in fp8"
        return {"layout.dtype": "fp8"}
    alone = EAGER not in stated and not fields["layout.zero"] and fields["layout.ep"] == 1
    mixed = param == "bfloat16" and not (alone and fields["layout.tp"] * fields["layout.pp"] > 1)
    return {"layout.dtype": "bf16" if mixed else "float32", "layout.gradients": "float32"}


def write_compile(fields: Fields) -> Arguments:
    """Prices are of compiled layers, and of steps without CUDA graphs."""
    arguments: dict[str, tuple[str, ...]] = {"compile.enable": ("true",)}
    overlaps = "tp" in (fields["layout.overlap"] or ())
    if overlaps or by_flags(fields):
        arguments[ASYNC_TP[by_flags(fields)]] = (str(overlaps).lower(),)
    return arguments | ({EAGER: ("true",)} if by_flags(fields) else {})


def read_compile(stated: Stated, fields: Fields) -> Fields:
    """Raises InputError for what excludes each other."""
    compiled = is_true(stated, "compile.enable", False)
    overlaps = any(is_true(stated, each, False) for each in ASYNC_TP.values() if each in stated)
    if overlaps and not compiled:
        named = next(each for each in ASYNC_TP.values() if each in stated)
        raise stated.error(named, "async tensor parallelism is part of compilation", "compile.enable = true")
    if not compiled:
        stated.defaults["compile.enable"] = "false; priced as compiled"
    if EAGER in stated and not is_true(stated, EAGER, False):
        if fields["layout.pp"] > 1 or fields["layout.ep"] > 1:
            raise stated.error(EAGER, "CUDA graphs exclude pipelines and experts over ranks", f"--{EAGER}")
        stated.defaults[EAGER] = "false; priced without CUDA graphs"
    return {"layout.overlap": ("tp",) if overlaps and fields["layout.tp"] > 1 else ()}


def write_batch(fields: Fields) -> Arguments:
    """Without a pipeline, micro-batches are accumulated; a pipeline has all of them in one local batch."""
    micro, replicas = fields["layout.micro_batch"], fields["layout.dp"] * fields["layout.replica"]
    local = micro if fields["layout.pp"] == 1 else fields["sequences"] // replicas
    own = {LOCAL: (str(local),), GLOBAL: (str(fields["sequences"]),)}
    return own | ({MICRO_BATCH: (str(micro),)} if fields["layout.pp"] > 1 else {})


def read_batch(stated: Stated, fields: Fields) -> Fields:
    """Raises InputError where a batch does not divide, or a step has several pipelines one after the other."""
    local, replicas = stated.integer(LOCAL, 8), fields["layout.dp"] * fields["layout.replica"]
    total = local * replicas if stated.value(GLOBAL, "-1") == "-1" else stated.integer(GLOBAL)
    if not local or not total or total % (local * replicas):
        message = f"{total} sequences are no multiple of {local} for each of {replicas} replicas"
        raise stated.error(GLOBAL if GLOBAL in stated else LOCAL, message, f"a multiple of {max(1, local) * replicas}")
    if fields["layout.pp"] == 1:
        return {"layout.micro_batch": local, "sequences": total}
    micro = stated.integer(MICRO_BATCH, 1)
    if not micro or local % micro:
        raise stated.error(MICRO_BATCH, f"{micro} does not divide the local batch of {local}", "a divisor")
    if total != local * replicas:
        message = f"a step would be {total // (local * replicas)} pipelines one after the other, which no plan is"
        raise stated.error(GLOBAL, message, f"{LOCAL} = {total // replicas}")
    return {"layout.micro_batch": micro, "sequences": total}


def read_limits(stated: Stated, fields: Fields) -> Fields:
    """Raises InputError for what 0.2.2 refuses of a model: pipelines, or sharded sequences of flexible attention."""
    name = stated.value("model.name", "llama3") if EAGER not in stated else ""
    if name in NO_PIPELINE and fields["layout.pp"] > 1:
        raise stated.error(PP, f"torchtitan 0.2.2 has no pipeline for {name}", "pp: 1, or --version 0.3")
    if name in NO_CONTEXT and fields["layout.cp"] > 1:
        raise stated.error(CP, f"torchtitan 0.2.2 shards no sequences of {name}", "cp: 1, or --version 0.3")
    return {}


def read_sequence_parallel(stated: Stated, fields: Fields) -> Fields:
    sharded = EAGER not in stated or is_true(stated, SEQUENCE_PARALLEL, True)
    return {"layout.sequence_parallel": sharded}


ROWS: tuple[Row, ...] = (
    Row(("module",), ("model.name", "model.flavor"), (), write_model, read_model),
    always("tokens", "training.seq_len", 2048),
    always("layout.tp", TP, 1),
    Row(
        ("layout.sequence_parallel",),
        (SEQUENCE_PARALLEL,),
        (),
        lambda fields: {SEQUENCE_PARALLEL: (str(fields["layout.sequence_parallel"]).lower(),)},
        read_sequence_parallel,
        lambda fields: by_flags(fields) if "version" in fields else True,
    ),
    always("layout.cp", CP, 1),  # around a ring: keys and values are gathered, or shuffled, which is priced alike
    Row(
        ("layout.pp", "layout.vpp", "layout.stages", "layout.schedule"),
        (PP, SCHEDULE, PER_STAGE, FIRST_LESS, LAST_LESS, PARTS),
        (),
        write_pipeline,
        read_pipeline,
    ),
    Row(("layout.ep", "layout.etp", "layout.dispatch"), (EP, ETP, BACKEND), (), write_experts, read_experts),
    Row(("layout.zero", "layout.dp", "layout.replica"), (REPLICATE, SHARD, RESHARD), (), write_sharding, read_sharding),
    Row(
        ("layout.recompute",),
        ("activation_checkpoint.mode", "activation_checkpoint.selective_ac_option"),
        (),
        write_recompute,
        read_recompute,
    ),
    Row(
        ("layout.dtype", "layout.gradients"),
        ("training.mixed_precision_param", "training.dtype", "model.converters", GATHERS_FP8, f"{EXPERTS_FP8}.fqns"),
        (),
        write_dtype,
        read_dtype,
    ),
    Row(("layout.overlap",), ("compile.enable", *ASYNC_TP.values(), EAGER), (), write_compile, read_compile),
    Row(("layout.micro_batch", "sequences"), (LOCAL, GLOBAL, MICRO_BATCH), (), write_batch, read_batch),
    Row((), (), (), lambda fields: {}, read_limits),
    only("training.mixed_precision_reduce", "float32"),
    only("training.enable_cpu_offload", "false"),
    only("parallelism.pipeline_parallel_schedule_csv", ""),
    only("fault_tolerance.enable", "false"),
    only("optimizer.name", "AdamW"),
)
