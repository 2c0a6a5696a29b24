"""Megatron-LM's arguments for layers of pipeline stages, and for what layers recompute."""

import re
from itertools import accumulate, groupby, pairwise

from planner.errors import InputError
from planner.plan.mesh.recomputed_blocks import block_size, chunk_sizes, first_layers
from planner.specs.base import Layers
from planner.specs.parallelism import Parallelism, Recompute, RecomputedPart, parts_of, recompute_of
from planner.targets.megatron_layers import MOST_LAYERS, next_token_layers
from planner.targets.rows import Arguments, Fields, Row, Stated

BY_LAYERS, BY_CHUNKS = "--num-layers-per-virtual-pipeline-stage", "--num-virtual-stages-per-pipeline-rank"
FIRST, LAST = "--decoder-first-pipeline-num-layers", "--decoder-last-pipeline-num-layers"
WITH_EMBEDDING, WITH_LOSS = "--account-for-embedding-in-pipeline-split", "--account-for-loss-in-pipeline-split"
WRITTEN_OUT = "--pipeline-model-parallel-layout"
GRANULARITY, METHOD, COUNT = "--recompute-granularity", "--recompute-method", "--recompute-num-layers"
MODULES, ACTIVATIONS = "--recompute-modules", "--recompute-activations"
PARTS: dict[RecomputedPart, tuple[str, ...]] = {  # what Megatron calls parts of a layer
    "attention": ("core_attn",),
    "norm": ("layernorm",),
    "mlp": ("mlp", "shared_experts"),
    "moe": ("moe",),
}


def write_stages(fields: Fields) -> Arguments:
    """Equal chunks by their layers; others written out, embedding first and loss last; where a version has no such
    argument, the layers of the first and the last stage, with equal ones between.
    """
    pp, vpp, ahead = fields["layout.pp"], fields["layout.vpp"] or 1, fields["module.mtp"]
    sizes = sizes_of(fields)
    if len(set(sizes)) < 2 and (not ahead or pp == 1):
        return {BY_LAYERS: (str(sizes[0]),)} if vpp > 1 else {}
    if ahead > sizes[-1]:
        fix = f"{ahead} layers or more on the last stage"
        raise InputError(f"the {ahead} layers that predict ahead are all on the last stage", where="stages", fix=fix)
    if fields["version"] < (0, 13) and vpp == 1 and len(set(sizes[1:-1])) < 2:
        return {FIRST: (str(sizes[0]),), LAST: (str(sizes[-1] - ahead),)}
    texts = ["t" * size for size in sizes]
    texts[-1] = texts[-1][ahead:] + "m" * ahead
    runs = [(text, len([*same])) for text, same in groupby(["E" + texts[0], *texts[1:-1], texts[-1] + "L"])]
    return {WRITTEN_OUT: ("".join(f"({text}|)*{n}" if n > 1 else f"{text}|" for text, n in runs).removesuffix("|"),)}


def read_stages(stated: Stated, fields: Fields) -> Fields:
    """Chunks and their layers. Raises InputError where the layers do not divide so, or two arguments say chunks."""
    others = (FIRST, LAST, WITH_EMBEDDING, WITH_LOSS) if WRITTEN_OUT in stated else ()
    given = [each for each in (WRITTEN_OUT, BY_LAYERS, BY_CHUNKS, *others) if each in stated]
    if len(given) > 1:
        raise stated.error(given[1], f"it does not go with {given[0]}", "one of them")
    pp, layers = fields["layout.pp"], fields["module.layers"]
    if WRITTEN_OUT in stated:
        sizes = written_out(stated)
    else:
        sizes = counted(stated, pp, next_token_layers(fields))
        sizes[-1] += fields["module.mtp"]
    if pp < 1 or len(sizes) % pp:
        raise stated.error(WRITTEN_OUT, f"{len(sizes)} stages are no multiple of pp = {pp}", "a multiple of pp")
    if sum(sizes) != layers:
        raise stated.error(WRITTEN_OUT, f"its stages have {sum(sizes)} layers, the model {layers}", f"{layers} layers")
    uneven = len(set(sizes)) > 1
    stages = tuple(Layers(range(a, b)) for a, b in pairwise(accumulate(sizes, initial=0))) if uneven else ()
    return {"layout.vpp": len(sizes) // pp, "layout.stages": stages}


def written_out(stated: Stated) -> list[int]:
    """Layers of each stage of `Et|(tt|)*2t*3L`: parts of stages may be repeated. Raises InputError."""
    text = re.sub(r"\s|,", "", stated.one(WRITTEN_OUT)[:MOST_LAYERS]).strip("'\"")
    for pattern in (r"([A-Za-z])\*(\d{1,4})", r"\(([^()]*)\)\*(\d{1,4})"):
        text = re.sub(pattern, lambda found: (found[1] * int(found[2]))[:MOST_LAYERS], text)
    if not re.fullmatch(r"E[t|]*m*L", text):
        fix = "such as Ett|tt|tt|ttL, with layers that predict ahead as m before L"
        raise stated.error(WRITTEN_OUT, "stages other than of layers `t` are no plan's", fix)
    return [stage.count("t") + stage.count("m") for stage in text.split("|")]


def counted(stated: Stated, pp: int, layers: int) -> list[int]:
    """Layers of each chunk where counts say them, without those that predict ahead. Embedding and loss may each take
    the place of a layer. Raises InputError.
    """
    first, last = (stated.integer(name) if name in stated else None for name in (FIRST, LAST))
    ends = (int(WITH_EMBEDDING in stated), int(WITH_LOSS in stated))
    left = layers - (first or 0) - (last or 0) + sum(ends)
    between = pp - sum(end is not None for end in (first, last))
    if pp > 1 and between > 0 and left % between:
        where = FIRST if FIRST in stated else "--pipeline-model-parallel-size"
        raise stated.error(where, f"{left} layers do not divide over {between} stages", "a number that divides them")
    own = left // between if between > 0 else 0
    ranks = [first or own, *[own] * (pp - 2), last or own] if pp > 1 else [layers]
    chunks = stated.integer(BY_CHUNKS, most=MOST_LAYERS) if BY_CHUNKS in stated else 1
    if BY_LAYERS in stated:
        chunks = max(1, ranks[0]) / max(1, stated.integer(BY_LAYERS))  # type: ignore[assignment]
    if chunks < 1 or chunks != int(chunks) or any(rank % int(chunks) for rank in ranks):
        where = BY_LAYERS if BY_LAYERS in stated else BY_CHUNKS
        raise stated.error(where, f"stages of {ranks[0]} layers do not divide into such chunks", "one that divides")
    sizes = [rank // int(chunks) for _ in range(int(chunks)) for rank in ranks]
    sizes[0], sizes[-1] = sizes[0] - ends[0], sizes[-1] - ends[1]
    return sizes


def sizes_of(fields: Fields) -> list[int]:
    """Layers of each chunk of a launch."""
    chunks = fields["layout.pp"] * (fields["layout.vpp"] or 1)
    return chunk_sizes(Parallelism(stages=fields["layout.stages"] or None), fields["module.layers"], chunks)


def write_recompute(fields: Fields) -> Arguments:
    how: Recompute | dict[str | int, Recompute] = fields["layout.recompute"]
    if isinstance(how, dict):
        sizes, ahead = sizes_of(fields), fields["module.mtp"]
        count = block_size(how, sizes)
        if ahead and count > sizes[-1] - ahead:
            fix = "full, or none of the last layers"
            raise InputError(
                "of some layers, those that predict ahead are never recomputed", where="recompute", fix=fix
            )
        block = {GRANULARITY: ("full",), METHOD: ("block",), COUNT: (str(count),)}
        return block if count else {}
    if how == "full":
        return {GRANULARITY: ("full",), METHOD: ("uniform",), COUNT: ("1",)}
    named = [module for part, modules in PARTS.items() if part in parts_of(how) for module in modules]
    shared = fields.get("module.moe.shared_ffn")
    named = [module for module in named if module != "shared_experts" or shared]
    return {GRANULARITY: ("selective",), MODULES: tuple(named)} if named else {}


def read_recompute(stated: Stated, fields: Fields) -> Fields:
    """All layers, the first ones of each chunk, or parts of every layer. Raises InputError."""
    if GRANULARITY not in stated and ACTIVATIONS not in stated:
        return {"layout.recompute": "none"}
    how = "selective" if ACTIVATIONS in stated else stated.choice(GRANULARITY, ("full", "selective"))
    if how == "selective":
        known = {module: part for part, modules in PARTS.items() for module in modules}
        modules = stated.many(MODULES, ("core_attn",))
        unknown = [module for module in modules if module not in known]
        if unknown:
            fix = f"some of {', '.join(known)}: a plan has parts as large as these"
            raise stated.error(MODULES, f"`{unknown[0]}` is a part that no plan has", fix)
        return {"layout.recompute": recompute_of({known[module] for module in modules})}
    count = stated.integer(COUNT, 1)
    if stated.choice(METHOD, ("uniform", "block"), "uniform") == "block":
        return {"layout.recompute": first_layers(count, sizes_of(fields))}
    if count > 1:
        message = f"one input is kept of {count} layers, and a plan keeps that of each layer"
        raise stated.error(COUNT, message, f"{COUNT} 1, or {METHOD} block")
    return {"layout.recompute": "full"}


PIPELINE_ROW = Row(
    ("layout.vpp", "layout.stages"),
    (BY_LAYERS, BY_CHUNKS, FIRST, LAST, WRITTEN_OUT),
    (WITH_EMBEDDING, WITH_LOSS),
    write_stages,
    read_stages,
)
RECOMPUTE_ROW = Row(
    ("layout.recompute",), (GRANULARITY, METHOD, COUNT, MODULES), (ACTIVATIONS,), write_recompute, read_recompute
)
