"""What a config.json says about the function of a model, compared with a spec: equal weights are not an equal model."""

from collections.abc import Iterator, Sequence

from planner.hf.hf_config import Note
from planner.specs.base import Difference, differences, with_fields
from planner.specs.layers import Module
from planner.specs.layers.head_widths import head_dim, kv_heads

# Fields of which a config.json says nothing, or which change how a model is trained and not what it computes.
UNSAID = {
    "trained", "moe.counts", "moe.capacity", "moe.balance", "state_space.chunk", "resize", "video", "chunk",
}  # fmt: skip
SECTIONS = {"rope_sections", "rope_interleaved"}


def function_differences(ours: Module, theirs: Module) -> Iterator[Difference]:
    """Fields in which a module computes something else than the module of a config.json."""
    unsaid = UNSAID if theirs.rotary_sections else UNSAID | SECTIONS  # which rotate alike in text alone
    for found in differences(spelled_out(ours), spelled_out(theirs)):
        if found.field not in unsaid:
            yield found


def spelled_out(module: Module) -> Module:
    """The module with the widths of heads and the activation that it has by default."""
    full = {"kv_heads": kv_heads(module), "head_dim": head_dim(module), "activation": module.mlp_activation}
    return with_fields(module, **{name: full[name] for name in full if name in module.__struct_fields__})


def uncomputed_keys(notes: Sequence[Note]) -> Iterator[tuple[str, str]]:
    """Key and text of what a spec leaves out of a config.json, but for dropout: a trained model has none."""
    for note in notes:
        if note.kind == "left out" and note.key and "drop" not in note.key:
            yield note.key, note.what
