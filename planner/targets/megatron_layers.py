"""Megatron-LM's arguments for the layers of a decoder, experts among them: fields of a `Decoder` ↔ arguments.

Published records state these arguments too (planner/published/megatron_arguments.py).
"""

import re

from planner.specs.layers.rope_scaling import LinearScaling, Llama3Scaling, RopeScaling, YarnScaling
from planner.targets.rows import Arguments, Fields, Row, Stated, number, switch, switches, word

MOST_LAYERS = 10_000  # of a model file
VOCAB_MULTIPLE = 128  # times tp: what the rows of the embedding are padded to
GPT2_TOKENS = 50257  # of its usual tokenizer
ACTIVATIONS = {  # gated, activation
    (True, "silu"): ("--swiglu",),
    (True, "quick_gelu"): ("--quick-geglu",),
    (False, "relu2"): ("--squared-relu",),
    (False, "gelu_tanh"): ("--openai-gelu",),
    (False, "gelu"): (),
}
BIASES = {"none": ("--disable-bias-linear",), "qkv": ("--disable-bias-linear", "--add-qkv-bias"), "all": ()}
KINDS = {"learned": "learned_absolute", "rope": "rope", "none": "none"}
SECTIONS = "--mrope-section"  # pairs that turn by time, row and column of an image's tokens
POSITIONS, MOST, SCALED = "--position-embedding-type", "--max-position-embeddings", "--use-rope-scaling"
LLAMA3_ORIGINAL = 8192  # tokens; `--use-rope-scaling` has no other
YARN_FACTOR, ALL_DIMS = "--rotary-scaling-factor", "--mscale-all-dim"
LATENT_ORIGINAL = 4096  # tokens of documents before YaRN, which no argument says
QK_NORM = "--qk-layernorm"
FREQUENCY, FACTOR = "--moe-layer-freq", "--rope-scaling-factor"
WINDOW, SKIPS = "--window-size", "--window-attn-skip-freq"


def gated_ffn(hidden: int) -> int:
    """The width of a gated MLP where none is given: two thirds of 4·hidden, in multiples of 64."""
    return int(4 * hidden * 2 / 3 / 64) * 64


def padded_vocab(tokens: int, multiple: int, tp: int) -> int:
    """Rows of the embedding, padded to a multiple on each of tp's ranks."""
    return -(-tokens // (multiple * tp)) * multiple * tp


def usual_ffn(fields: Fields) -> int:
    return gated_ffn(fields["module.hidden"]) if fields["module.gated"] else 4 * fields["module.hidden"]


def usual_head(fields: Fields) -> int:
    return int(fields["module.hidden"] // max(1, fields["module.heads"]))


def has_experts(fields: Fields) -> bool:
    return bool(fields.get("module.moe.experts"))


def next_token_layers(fields: Fields) -> int:
    """Layers without those that predict ahead, which Megatron counts apart."""
    layers, ahead = fields["module.layers"], fields.get("module.mtp", 0)
    return int(layers - ahead)


def is_latent(fields: Fields) -> bool:
    return bool(fields.get("module.latent"))


def is_plain(fields: Fields) -> bool:
    return not is_latent(fields)


def write_groups(fields: Fields) -> Arguments:
    """Key/value heads, where they are fewer."""
    groups = fields["module.kv_heads"]
    fewer = groups is not None and groups != fields["module.heads"]
    return {"--group-query-attention": (), "--num-query-groups": (str(groups),)} if fewer else {}


def read_groups(stated: Stated, fields: Fields) -> Fields:
    grouped = "--group-query-attention" in stated
    return {"module.kv_heads": stated.integer("--num-query-groups", 1) if grouped else fields["module.heads"]}


def write_norms(fields: Fields) -> Arguments:
    """Of each head's queries and keys; latent attention always has norms, of the compressed vectors."""
    return {QK_NORM: ()} if fields["module.qk_norm"] is True or is_latent(fields) else {}


def read_norms(stated: Stated, fields: Fields) -> Fields:
    return {"module.qk_norm": QK_NORM in stated and is_plain(fields)}


def write_positions(fields: Fields) -> Arguments:
    """A table has a size, and any other kind as many positions as a sequence has tokens."""
    kind, most = fields["module.positions"], max(fields["module.max_positions"], fields.get("tokens", 0))
    sections = fields["module.rope_sections"]
    named = "mrope" if sections else str(KINDS.get(kind, kind))
    arguments: dict[str, tuple[str, ...]] = {} if kind == "learned" else {POSITIONS: (named,)}
    arguments |= {SECTIONS: tuple(map(str, sections))} if sections else {}
    arguments[MOST] = (str(most),)
    if kind == "rope":
        arguments["--rotary-base"] = (f"{fields['module.rope_base']:.10g}",)
        if fields["module.rotary_share"] != 1:
            arguments["--rotary-percent"] = (f"{fields['module.rotary_share']:g}",)
        arguments |= write_scaling(fields["module.rope_scaling"], is_latent(fields))
    return arguments


def write_scaling(rule: RopeScaling | None, latent: bool) -> Arguments:
    """Latent attention has YaRN alone, whose factor of scores is 1 where `--mscale-all-dim` is."""
    if isinstance(rule, YarnScaling) and latent and rule.attention in (1.0, None):
        return {YARN_FACTOR: (f"{rule.factor:g}",), ALL_DIMS: ("1" if rule.attention else "0",)}
    if isinstance(rule, Llama3Scaling):
        return {SCALED: (), FACTOR: (f"{rule.factor:g}",)}
    if isinstance(rule, LinearScaling):
        return {"--rotary-seq-len-interpolation-factor": (f"{rule.factor:g}",)}
    return {}


def read_positions(stated: Stated, fields: Fields) -> Fields:
    """Of rotary positions, `yarn` is one rule of scaling, and its own arguments say the rest."""
    kind = stated.choice(POSITIONS, (*KINDS.values(), "yarn", "mrope"), "learned_absolute")
    if "--use-rotary-position-embeddings" in stated and POSITIONS not in stated:
        kind = "rope"
    most = stated.integer(MOST, fields.get("tokens", 1)) if kind == "learned_absolute" else 0
    rotary = kind in ("rope", "yarn", "mrope")
    found = {"module.positions": next((own for own, name in KINDS.items() if name == kind), "rope")}
    found |= {"module.max_positions": most}  # type: ignore[dict-item]
    if not rotary:
        return found
    return found | {
        "module.rope_base": stated.number("--rotary-base", 10000),
        "module.rotary_share": stated.number("--rotary-percent", 1.0),
        "module.rope_scaling": read_latent_scaling(stated) if is_latent(fields) else read_scaling(stated, kind),
        "module.rope_sections": read_sections(stated) if kind == "mrope" else (),
    }


def read_sections(stated: Stated) -> tuple[int, ...]:
    sections = stated.many(SECTIONS)
    if not sections or not all(part.isascii() and part.isdigit() and len(part) < 6 for part in sections):
        raise stated.error(
            SECTIONS if SECTIONS in stated else POSITIONS, "it needs three sections", f"{SECTIONS} 16 24 24"
        )
    return tuple(map(int, sections))


def read_scaling(stated: Stated, kind: str) -> RopeScaling | None:
    interpolated = "--rotary-seq-len-interpolation-factor"
    if SCALED in stated:
        return Llama3Scaling(factor=stated.number(FACTOR, 8.0), original=LLAMA3_ORIGINAL)
    if interpolated in stated:
        return LinearScaling(factor=stated.number(interpolated))
    if kind == "yarn":
        return YarnScaling(factor=stated.number(YARN_FACTOR, 1.0), original=stated.integer(MOST, 4096))
    return None


def read_latent_scaling(stated: Stated) -> RopeScaling | None:
    """YaRN, of which only a factor above 1 changes anything. Raises InputError."""
    factor, scale = stated.number(YARN_FACTOR, 1.0), stated.number("--mscale", 1.0)
    whole = stated.number(ALL_DIMS, 0.0)
    if stated.choice("--rope-type", ("rope", "yarn"), "yarn") == "rope" or factor == 1:
        return None
    if scale != 1 or whole not in (0, 1):
        raise stated.error("--mscale" if scale != 1 else ALL_DIMS, "no YaRN of a plan has it", "1, or 0 of all dims")
    return YarnScaling(factor=factor, original=LATENT_ORIGINAL, attention=1.0 if whole else None)


def write_window(fields: Fields) -> Arguments:
    """Tokens before a token, without itself; layers with full attention, counted from 1."""
    window, full = fields["module.window"], fields["module.full_every"]
    own = {WINDOW: (f"{window - 1},0",)} if window else {}
    return own | ({SKIPS: (str(full),)} if window and full else {})


def read_window(stated: Stated, fields: Fields) -> Fields:
    if WINDOW not in stated:
        return {}
    found = re.fullmatch(r"\(?\s*(\d{1,8})\s*,\s*0\s*\)?", stated.one(WINDOW))
    if not found:
        raise stated.error(WINDOW, f"`{stated.one(WINDOW)[:40]}` is no window of earlier tokens", "such as 127,0")
    return {"module.window": int(found[1]) + 1, "module.full_every": stated.integer(SKIPS) if SKIPS in stated else 0}


def write_vocab(fields: Fields) -> Arguments:
    """Padded by as little as tp allows, so that as many rows are trained as the plan has."""
    words, tp = fields["module.vocab"], fields["layout.tp"]
    multiple = next(m for m in (128, 64, 32, 16, 8, 4, 2, 1) if m == 1 or words % (m * tp) == 0)
    own: Arguments = {"--vocab-size": (str(words),)}
    return own if multiple == VOCAB_MULTIPLE else {**own, "--make-vocab-size-divisible-by": (str(multiple),)}


def read_vocab(stated: Stated, fields: Fields) -> Fields:
    """`--padded-vocab-size` is said as it is; tokenizers know theirs, of which no file says how many it has."""
    if "--padded-vocab-size" in stated:
        return {"module.vocab": stated.integer("--padded-vocab-size")}
    words = stated.integer("--vocab-size", GPT2_TOKENS)
    multiple = stated.integer("--make-vocab-size-divisible-by", VOCAB_MULTIPLE)
    return {"module.vocab": padded_vocab(max(1, words), max(1, multiple), max(1, fields["layout.tp"]))}


def write_layers(fields: Fields) -> Arguments:
    return {"--num-layers": (str(next_token_layers(fields)),)}


def read_layers(stated: Stated, fields: Fields) -> Fields:
    """All layers, with those that predict ahead. Raises InputError."""
    return {"module.layers": stated.integer("--num-layers", most=MOST_LAYERS) + fields.get("module.mtp", 0)}


LATENT_ROWS: tuple[Row, ...] = (
    number("module.latent.q_rank", "--q-lora-rank", 0, when=is_latent),
    number("module.latent.kv_rank", "--kv-lora-rank", 32, when=is_latent),
    number("module.latent.rope_dim", "--qk-pos-emb-head-dim", 64, when=is_latent),
    number("module.latent.nope_dim", "--qk-head-dim", 128, when=is_latent),
    number("module.latent.value_dim", "--v-head-dim", 128, when=is_latent),
)
MODULE_ROWS: tuple[Row, ...] = (
    number("module.mtp", "--mtp-num-layers", 0, most=MOST_LAYERS),
    Row(("module.layers",), ("--num-layers",), (), write_layers, read_layers),
    number("module.hidden", "--hidden-size"),
    number("module.heads", "--num-attention-heads"),
    Row(("module.kv_heads",), ("--num-query-groups",), ("--group-query-attention",), write_groups, read_groups),
    switches(("module.gated", "module.activation"), ACTIVATIONS),
    number("module.ffn", "--ffn-hidden-size", usual_ffn),
    Row(
        ("module.latent",),
        (),
        ("--multi-latent-attention",),
        lambda fields: {"--multi-latent-attention": ()} if is_latent(fields) else {},
        lambda stated, fields: {"module.latent": True} if "--multi-latent-attention" in stated else {},
    ),
    *LATENT_ROWS,
    number("module.head_dim", "--kv-channels", usual_head, when=is_plain),
    word("module.norm", "--normalization", {"layer": "LayerNorm", "rms": "RMSNorm"}, "layer"),
    number("module.norm_eps", "--norm-epsilon", 1e-5, float),
    switches(("module.bias",), BIASES),
    Row(("module.qk_norm",), (), (QK_NORM,), write_norms, read_norms),
    switch("module.tied", "--untie-embeddings-and-output-weights", on=False, off=True),
    Row(
        (
            *("module.positions", "module.max_positions", "module.rope_base", "module.rotary_share"),
            *("module.rope_scaling", "module.rope_sections"),
        ),
        (
            *(POSITIONS, MOST, FACTOR, SECTIONS, "--rotary-base", "--rotary-percent", YARN_FACTOR),
            *("--rotary-seq-len-interpolation-factor", "--rope-type", "--mscale", ALL_DIMS),
        ),
        (SCALED, "--use-rotary-position-embeddings"),
        write_positions,
        read_positions,
    ),
    Row(("module.window", "module.full_every"), (WINDOW, SKIPS), (), write_window, read_window),
    word("module.sinks", "--softmax-type", {False: "vanilla", True: "learnable"}, False),
)

VOCAB_ROW = Row(
    ("module.vocab",),
    ("--vocab-size", "--padded-vocab-size", "--make-vocab-size-divisible-by"),
    (),
    write_vocab,
    read_vocab,
)


def write_frequency(fields: Fields) -> Arguments:
    """A number for each layer, 1 where it has experts."""
    first, every, layers = fields["module.moe.dense_layers"], fields["module.moe.every"], next_token_layers(fields)
    if every == 1:
        own = f"([0]*{first}+[1]*{layers - first})" if first else ""
    else:
        own = "[" + ",".join(str(int(n > 0 and n % every == 0)) for n in range(1 - first, layers + 1 - first)) + "]"
    return {FREQUENCY: (own,)} if own else {}


def read_frequency(stated: Stated, fields: Fields) -> Fields:
    """Raises InputError for layers that are not the first ones dense, then each so-many-th with experts."""
    text, layers = stated.value(FREQUENCY, 1), next_token_layers(fields)
    pattern = [int(n % int(text) == 0) for n in range(layers)] if text.isdigit() and int(text) else repeated(text)
    with_experts = [layer for layer, has in enumerate(pattern) if has]
    if len(pattern) != layers or not with_experts:
        raise stated.error(
            FREQUENCY, f"`{text[:40]}` does not say which of {layers} layers have experts", "([0]*3+[1]*9)"
        )
    every = with_experts[1] - with_experts[0] if len(with_experts) > 1 else 1
    dense = with_experts[0] + 1 - every
    if dense < 0 or with_experts != [n for n in range(dense, layers) if (n + 1 - dense) % every == 0]:
        fix = "the first layers dense, then every so-many-th with experts"
        raise stated.error(FREQUENCY, f"no plan has experts in such layers: `{text[:40]}`", fix)
    return {"module.moe.dense_layers": dense, "module.moe.every": every}


def repeated(text: str) -> list[int]:
    """The numbers of `([0]*3+[1]*58)` or `([1]+[0])*4`; none where it is no such expression."""
    text = re.sub(r"\s", "", text[:MOST_LAYERS]).strip("'\"")
    text = re.sub(r"\[([01,]*)\]", lambda found: found[1].replace(",", ""), text)
    for pattern in (r"([01]+)\*(\d{1,4})", r"\(([01+]+)\)\*(\d{1,4})"):
        text = re.sub(pattern, lambda found: (found[1].replace("+", "") * int(found[2]))[:MOST_LAYERS], text)
    digits = re.sub(r"[+()]", "", text)
    return [int(digit) for digit in digits] if re.fullmatch("[01]*", digits) else []


def read_normalised(stated: Stated, fields: Fields) -> Fields:
    """Raises InputError where the weight of the only expert would be 1 whatever its score, which it refuses."""
    before, balanced = "--moe-router-pre-softmax" in stated, stated.values.get("--moe-router-load-balancing-type")
    if fields["module.moe.topk"] == 1 and not before and balanced != ("sinkhorn",):
        raise stated.error("--moe-router-topk", "the weight of one expert is its score", "add --moe-router-pre-softmax")
    return {"module.moe.normalised": not before}


EXPERT_ROWS: tuple[Row, ...] = (
    Row(
        ("module.moe.experts", "module.moe"),
        ("--num-experts",),
        (),
        lambda fields: {"--num-experts": (str(fields["module.moe.experts"]),)} if has_experts(fields) else {},
        lambda stated, fields: {"module.moe.experts": n} if (n := stated.integer("--num-experts", 0)) else {},
    ),
    number("module.moe.topk", "--moe-router-topk", 2, when=has_experts),
    number("module.moe.ffn", "--moe-ffn-hidden-size", lambda fields: fields["module.ffn"], when=has_experts),
    number("module.moe.shared_ffn", "--moe-shared-expert-intermediate-size", 0, when=has_experts),
    Row(
        ("module.moe.dense_layers", "module.moe.every"), (FREQUENCY,), (), write_frequency, read_frequency, has_experts
    ),
    switch("module.moe.router_bias", "--moe-router-enable-expert-bias", when=has_experts),
    word(
        "module.moe.scores",
        "--moe-router-score-function",
        {"softmax": "softmax", "sigmoid": "sigmoid"},
        "softmax",
        has_experts,
    ),
    Row(
        ("module.moe.normalised",),
        (),
        ("--moe-router-pre-softmax",),
        lambda fields: {} if fields["module.moe.normalised"] else {"--moe-router-pre-softmax": ()},
        read_normalised,
        has_experts,
    ),
    number("module.moe.scale", "--moe-router-topk-scaling-factor", 1.0, float, has_experts),
    number("module.moe.groups", "--moe-router-num-groups", 1, when=has_experts),
    number("module.moe.group_topk", "--moe-router-group-topk", 1, when=has_experts),
    number("module.moe.balance", "--moe-aux-loss-coeff", 0.0, float, has_experts),
    number("module.moe.capacity", "--moe-expert-capacity-factor", None, float, has_experts),
)
