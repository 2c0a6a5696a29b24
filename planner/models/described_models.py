"""An architecture that transformers knows as a described model: built on the meta device from transformers' own
classes, never from code that a file names, and read matrix by matrix. Parameters are exact.
"""

import re
import warnings
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import permutations
from typing import Any, NamedTuple

import torch
from torch import nn

from planner.errors import InputError
from planner.hf import HfConfig, Note
from planner.specs.base import with_fields
from planner.specs.layers import Described
from planner.specs.layers.components import Experts, LayerTable, Matrix
from planner.specs.layers.embedding_head import ShardedDim

MOST_LAYERS, MOST_SIZE = 2_000, 10**9  # beyond which nothing is built
ATTENDS = re.compile(r"Attention|Attn|SelfAtt|MLA", re.I)
SCANS = re.compile(r"DeltaNet|DeltaAttention|Mamba|SSM|LightningAttention|ShortConv|Recurrent|R[wW][kK][vV]|xLSTM")
INTO_HIDDEN = re.compile(r"\b(o_proj|out_proj|wo|dense|c_proj|down_proj|fc2|w2|output_linear|to_out)\b")
TOPK_KEYS = (
    "num_experts_per_tok", "num_experts_per_token", "top_k", "moe_topk", "moe_k", "num_selected_experts",
    "experts_per_token",
)  # fmt: skip
COUNT_KEYS = ("num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts", "num_routed_experts")


MatrixKey = tuple[int, int, int, float, ShardedDim]  # count, outputs, inputs, used, the dim that tp shards
Matrices = Counter[MatrixKey]
ReadLayer = tuple[LayerTable, tuple[Experts, bool] | None]  # and the routed experts, and whether these are gated


class BuiltModel(NamedTuple):
    """A described module, and what could not be seen."""

    module: Described
    notes: tuple[Note, ...]


def describe(config: HfConfig) -> BuiltModel:
    """The described model of a config.json. Raises InputError where transformers does not build it by itself."""
    network, built = build_on_meta(config)
    try:
        return described(network, built, config)
    except ValueError as error:
        what, _, fix = str(error).partition(" | ")
        raise config.key_error("model_type", what, fix or "write the model by hand (docs/plan-file.md)") from error


def build_on_meta(config: HfConfig) -> tuple[nn.Module, Any]:
    """The network on the meta device, and transformers' own config of it. Raises InputError."""
    kind = checked_kind(config)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        transformers = installed(config)
        try:
            built = transformers.CONFIG_MAPPING[kind].from_dict(plain(config.values))
            with torch.device("meta"):
                return network_class(transformers, config, built)._from_config(built), built
        except InputError:
            raise
        except Exception as error:  # whatever its classes raise of odd values
            words = " ".join(f"{type(error).__name__}: {error}".split())[:200]
            fix = "a config.json that this version of transformers reads, or write the model by hand"
            raise config.key_error("model_type", f"transformers does not build it: {words}", fix) from error


def checked_kind(config: HfConfig) -> str:
    """The `model_type`, once nothing stands against building. Raises InputError."""
    if "_class_name" in config.values or "_diffusers_version" in config.values:
        raise config.key_error("_class_name", "a diffusion model is no language model", "write it as a model by hand")
    kind = config.text("model_type")
    for route, value in sizes(config.values, ""):
        most = MOST_LAYERS if re.search(r"layers$|^depth$|n_layer$", route) else MOST_SIZE
        if value > most:
            raise config.key_error(route, f"{value} is more than {most:,}", "a number that a model may have")
    for key in ("num_hidden_layers", "n_layer", "hidden_size"):
        if config.values.get(key, 1) == 0:
            raise config.wrong_value(key, "a whole number from 1 on")
    return kind


def plain(value: Any) -> Any:
    """A value of a config, with infinity as a number."""
    if isinstance(value, Mapping):
        return (
            float("inf") if value.get("__float__") == "Infinity" else {key: plain(each) for key, each in value.items()}
        )
    return [plain(each) for each in value] if isinstance(value, list) else value


def sizes(values: Mapping[str, Any], route: str) -> Iterator[tuple[str, int]]:
    """Every whole number of a config, with the path of its key."""
    for key, value in values.items():
        if isinstance(value, Mapping):
            yield from sizes(value, f"{route}{key}.")
        elif type(value) is int and not key.endswith(("_id", "_token_index")):
            yield f"{route}{key}", value


def installed(config: HfConfig) -> Any:
    """The transformers package, which has a class for this kind. Raises InputError."""
    try:
        import transformers
    except ImportError as error:
        raise InputError(f"building a model needs transformers: {error}", fix="pip install transformers") from error
    kind = config.values["model_type"]
    if kind in transformers.CONFIG_MAPPING:
        return transformers
    if "auto_map" in config.values:
        message = f"a {kind} is built by code that its file names, which is never run (trust_remote_code)"
        raise config.key_error("auto_map", message, "a reader, or write the model by hand (docs/plan-file.md)")
    message = f"transformers {transformers.__version__} has no models of the kind `{kind}`"
    raise config.key_error("model_type", message, "a newer transformers, or write the model by hand")


def network_class(transformers: Any, config: HfConfig, built: Any) -> Any:
    """The class of a network: the one that the file names, or the one that generates text."""
    named = config.values.get("architectures")
    name = named[0] if isinstance(named, list) and named and isinstance(named[0], str) else ""
    found = getattr(transformers, name, None) if name.isidentifier() else None
    if isinstance(found, type) and hasattr(found, "_from_config") and issubclass(found, nn.Module):
        return found
    for task in ("IMAGE_TEXT_TO_TEXT", "SPEECH_SEQ_2_SEQ", "SEQ_TO_SEQ_CAUSAL_LM", "CAUSAL_LM"):
        mapping = getattr(transformers, f"MODEL_FOR_{task}_MAPPING", {})
        if type(built) in mapping:
            return mapping[type(built)]
    raise config.key_error(
        "model_type", "transformers has no network for it that generates text", "name its class under architectures"
    )


@dataclass(frozen=True, slots=True)
class Reading:
    """What is known of a network while its layers are read."""

    hidden: int
    heads: int
    experts: int
    topk: int
    seen: set[int] = field(default_factory=set)  # parameters that are counted: shared ones count once
    repeated: set[str] = field(default_factory=set)  # names of those that several layers share
    scans: set[str] = field(default_factory=set)  # classes whose own products are not known


def described(network: nn.Module, built: Any, config: HfConfig) -> BuiltModel:
    """The module of a network. Raises ValueError, as `what is wrong | what to do`, where it is no language model."""
    text = built.get_text_config(decoder=True)
    name, stack = repeated_layers(network)
    model: Any = network
    words, head = model.get_input_embeddings(), model.get_output_embeddings()
    if not isinstance(getattr(words, "weight", None), nn.Parameter) or words.weight.ndim != 2:
        raise ValueError("it has no table of words | only language models are described")
    vocab, hidden = words.weight.shape
    tied = head is None or head.weight is words.weight
    heads = number_of(text, ("num_attention_heads", "n_head", "num_heads", "n_heads", "decoder_attention_heads")) or 1
    reading = Reading(hidden, heads, number_of(text, COUNT_KEYS), number_of(text, TOPK_KEYS))
    reading.seen.add(id(words.weight))
    own_head = not tied and tuple(head.weight.shape) == (vocab, hidden)
    if own_head:
        reading.seen.add(id(head.weight))
    read = [layer_of(layer, number, text, reading) for number, layer in enumerate(stack)]
    tables = named_tables(read)
    pattern = [table.name for layer in read for table in tables if with_fields(table, name="x") == layer[0]]
    before, after = ends(network, reading)
    found = {each for _, each in read if each}
    if len(found) > 1:
        raise ValueError("layers have experts of several shapes | write the model by hand (docs/plan-file.md)")
    routed, gated = next(iter(found), (None, True))
    widest = max((each.outputs for table in tables for each in table.matrices if each.inputs == hidden), default=hidden)
    width = head_width(text, stack, heads, hidden)
    module = Described(
        layers=len(read),
        hidden=hidden,
        heads=heads,
        kv_heads=key_heads(text, heads),
        head_dim=None if width * heads == hidden else width,
        ffn=routed.ffn if routed else widest,
        vocab=vocab,
        gated=gated,
        tied=tied or not own_head,
        moe=routed,
        tables=tuple(tables),
        pattern=" ".join(pattern) if len(tables) > 1 else "",
        before=before,
        vectors=after,
    )
    return BuiltModel(module, tuple(seen_and_unseen(name, reading, before, network)))


def repeated_layers(network: nn.Module) -> tuple[str, nn.ModuleList]:
    """The layers of the text: the list of modules with most parameters that is in no other one."""
    found: dict[str, nn.ModuleList] = {}
    for name, module in network.named_modules():
        if isinstance(module, nn.ModuleList) and len(module) and not any(name.startswith(f"{each}.") for each in found):
            found[name] = module
    if not found:
        raise ValueError("it has no repeated layers | only stacks of layers are described")
    texts = {name: each for name, each in found.items() if not re.search(r"vision|visual|audio|encoder", name)} or found
    name = max(texts, key=lambda each: sum(p.numel() for p in texts[each].parameters()))
    return name, texts[name]


def layer_of(layer: nn.Module, number: int, text: Any, reading: Reading) -> ReadLayer:
    """The table of one layer, called x, and its routed experts where these are gated or plain MLPs behind a router."""
    counted: Matrices = Counter()
    vectors, flops = 0, 0.0
    for name, parameter in layer.named_parameters():
        shape = tuple(parameter.shape)
        if id(parameter) in reading.seen:  # of another layer too: its products are of both
            reading.repeated.add(name)
            flops += 2.0 * parameter.numel() if parameter.ndim == 2 else 0.0
            continue
        reading.seen.add(id(parameter))
        matrix = matrix_of(name, shape, layer, reading)
        if matrix is None:
            vectors += parameter.numel()
            flops += 2.0 * parameter.numel() if parameter.ndim == 3 and shape[1] == 1 else 0.0  # depthwise convolution
            continue
        counted[matrix] += 1
    routed = plain_experts(counted, reading)
    if routed:
        counted.subtract(routed[2])
    classes = {type(module).__name__ for module in layer.modules()}
    scans = {name for name in classes if SCANS.search(name) and "Norm" not in name}
    reading.scans.update(scans)
    attends = any(ATTENDS.search(name) and name not in scans for name in classes)
    matrices = tuple(
        Matrix(count=count * each, outputs=outputs, inputs=inputs, used=used * each, shard=shard)
        for (count, outputs, inputs, used, shard), each in sorted(counted.items())
        if each
    )
    window = window_of(text, number) if attends else None
    flops = max(flops, 1.0) if scans else flops  # never cut over ranks: what it scans is not known
    table = LayerTable(
        name="x", matrices=matrices, vectors=vectors, flops=flops, attends=attends, experts=bool(routed), window=window
    )
    return table, routed[:2] if routed else None


def matrix_of(name: str, shape: tuple[int, ...], layer: nn.Module, reading: Reading) -> MatrixKey | None:
    """(count, outputs, inputs, used, sharded dim) of a parameter that tokens are multiplied by; None: of another."""
    owner = layer.get_submodule(name.rpartition(".")[0])
    if len(shape) < 2 or "bias" in name.rpartition(".")[2] or isinstance(owner, nn.Embedding):
        return None
    if len(shape) == 2:
        outputs, inputs = shape[::-1] if type(owner).__name__ == "Conv1D" else shape
        if min(shape) == 1 and max(shape) != reading.hidden:
            return None
        count, used = list_of_experts(name, layer, reading)
        return count, outputs, inputs, used, sharded(name, outputs, inputs, reading)
    if len(shape) == 3 and shape[0] == reading.experts:
        turned = reading.hidden in shape[1:] and shape[1 if INTO_HIDDEN.search(name) else 2] != reading.hidden
        outputs, inputs = shape[:0:-1] if turned else shape[1:]  # some classes have them the other way round
        return shape[0], outputs, inputs, float(min(reading.topk, shape[0]) or shape[0]), ""
    if len(shape) == 3 and shape[1] > 1 and isinstance(owner, nn.Conv1d):
        return 1, shape[0], shape[1] * shape[2], 1.0, ""
    return (shape[0], shape[1], shape[2], float(shape[0]), "") if len(shape) == 3 and shape[1] > 1 else None


def list_of_experts(name: str, layer: nn.Module, reading: Reading) -> tuple[int, float]:
    """How often a matrix counts and is used: one expert of a list stands for its share of a token's choices."""
    at = re.search(r"experts?\.\d+\.", name)
    parent = layer.get_submodule(name[: at.start()] + at[0].split(".")[0]) if at else None
    if isinstance(parent, nn.ModuleList) and len(parent) == reading.experts and reading.topk:
        return 1, min(1.0, reading.topk / reading.experts)
    return 1, 1.0


def sharded(name: str, outputs: int, inputs: int, reading: Reading) -> ShardedDim:
    """The dim of a matrix that tp shards, by its shape: outputs of what reads hidden vectors, inputs of what writes
    them; a router is whole on each rank.
    """
    if outputs == reading.experts or min(outputs, inputs) < reading.heads:
        return ""
    if outputs == reading.hidden and (inputs != reading.hidden or INTO_HIDDEN.search(name)):
        return "inputs" if inputs % reading.heads == 0 else ""
    return "outputs" if outputs % reading.heads == 0 else ""


def plain_experts(counted: Matrices, reading: Reading) -> tuple[Experts, bool, Matrices] | None:
    """The routed experts of a layer, where they are MLPs behind a router over hidden vectors; whether they are gated;
    and the matrices that count with them, between which and the hidden size there may be projections.
    """
    stacked = [key for key in counted if key[0] > 1 and key[0] == reading.experts]
    router = next((key for key in counted if key[:3] == (1, reading.experts, reading.hidden)), None)
    if router is None or not 0 < reading.topk <= reading.experts:
        return None
    for up, down in permutations(stacked, 2):
        entering, width = up[1] * counted[up], down[2]
        if up[2] != down[1] or counted[down] != 1 or entering not in (width, 2 * width) or len(stacked) != 2:
            continue
        latent = 0 if up[2] == reading.hidden else up[2]
        around = [key for key in counted if {key[1:3], key[2:0:-1]} & {(latent, reading.hidden)}] if latent else []
        if sum(counted[key] for key in around) != (2 if latent else 0):
            continue
        moe = Experts(experts=reading.experts, topk=reading.topk, ffn=width, latent=latent)
        taken = Counter({key: counted[key] for key in (up, down, *around)})
        taken[router] = 1
        return moe, entering == 2 * width, taken
    return None


def named_tables(read: list[ReadLayer]) -> list[LayerTable]:
    """The tables that differ, called a, b, c … in the order of layers."""
    distinct = list(dict.fromkeys(table for table, _ in read))
    return [with_fields(table, name=f"kind{number}") for number, table in enumerate(distinct)]


def ends(network: nn.Module, reading: Reading) -> tuple[int, int]:
    """Parameters outside of the layers, embedding and head: in front of the layers (towers, tables), and behind."""
    before = after = 0
    for parameter in network.parameters():
        if id(parameter) not in reading.seen:
            reading.seen.add(id(parameter))
            small = parameter.ndim == 1 and parameter.numel() <= 2 * reading.hidden
            after, before = (after + parameter.numel(), before) if small else (after, before + parameter.numel())
    return before, after


def number_of(text: Any, keys: tuple[str, ...]) -> int:
    """The first of these keys of a config that is a number; 0: none is."""
    for key in keys:
        value = getattr(text, key, None)
        value = max(value) if isinstance(value, list) and value and all(type(each) is int for each in value) else value
        if type(value) is int and value > 0:
            return value
    return 0


def key_heads(text: Any, heads: int) -> int | None:
    """Heads of keys and values; None: as many as heads."""
    count = number_of(text, ("num_key_value_heads", "num_kv_heads", "n_head_kv"))
    latent = number_of(text, ("kv_lora_rank",))
    return count if count and count != heads and heads % count == 0 and not latent else None


def head_width(text: Any, stack: nn.ModuleList, heads: int, hidden: int) -> int:
    """The width of a head, of latent attention the mean of a query's and a value's."""
    query, value = number_of(text, ("qk_nope_head_dim",)), number_of(text, ("v_head_dim",))
    if query and value:
        return (query + number_of(text, ("qk_rope_head_dim",)) + value) // 2
    for module in stack.modules():
        width = getattr(module, "head_dim", None)
        if ATTENDS.search(type(module).__name__) and type(width) is int and width > 0:
            return width
    return number_of(text, ("head_dim",)) or max(1, hidden // heads)


def window_of(text: Any, number: int) -> int | None:
    """The window of a layer; None: it attends to all before it."""
    kinds = getattr(text, "layer_types", None)
    kind = kinds[number] if isinstance(kinds, list) and number < len(kinds) else ""
    key = {"sliding_attention": "sliding_window", "chunked_attention": "attention_chunk_size"}.get(kind)
    return number_of(text, (key,)) or None if key else None


def seen_and_unseen(name: str, reading: Reading, before: int, network: nn.Module) -> Iterator[Note]:
    """What was read, and what of it could not be seen."""
    yield Note("assumed", f"built as {type(network).__name__}; layers {name}; how tp shards matrices, by their shapes")
    if reading.scans:
        yield Note("assumed", f"products of {', '.join(sorted(reading.scans))} beside those of weights are not counted")
    if reading.repeated:
        yield Note("assumed", "layers share weights, which count once as parameters and each time as products")
    if before:
        what = f"{before:,} parameters in front of the layers (towers, tables) are counted without their products"
        yield Note("assumed", what)
