"""Exact integer parameter counts from shapes. Checked against published totals and against the torch modules."""

from typing import NamedTuple

from planner.specs.model import Decoder, Model, Module, head_dim, kv_heads


class Parameters(NamedTuple):
    """Parameters of one module: each layer, and the ends (embeddings, final norm, head or projector)."""

    layer: int
    layers: int
    ends: int

    @property
    def total(self) -> int:
        return self.layer * self.layers + self.ends


def parameters(module: Module) -> Parameters:
    """Exact count, norm weights and biases included."""
    return Parameters(layer_parameters(module), module.layers, end_parameters(module))


def model_parameters(model: Model) -> int:
    return sum(parameters(module).total for module in model.modules.values())


def layer_parameters(module: Module) -> int:
    """Attention + MLP + two norms of one layer."""
    hidden, queries, keys = module.hidden, module.heads * head_dim(module), kv_heads(module) * head_dim(module)
    attention = hidden * (queries + 2 * keys) + queries * hidden
    mlp = (3 if module.gated else 2) * hidden * module.ffn
    biases = 0
    if module.bias != "none":
        biases += queries + 2 * keys
    if module.bias == "all":
        biases += hidden + (2 if module.gated else 1) * module.ffn + hidden
    return attention + mlp + biases + 2 * norm_parameters(module, hidden)


def end_parameters(module: Module) -> int:
    """Everything outside the layers."""
    if isinstance(module, Decoder):
        table = module.vocab * module.hidden
        positions = module.max_positions * module.hidden if module.positions == "learned" else 0
        return table * (1 if module.tied else 2) + positions + norm_parameters(module, module.hidden)
    patch = module.channels * module.frames * module.patch**2 * module.hidden
    wide = module.hidden * module.merge**2
    projector = wide * wide + wide + wide * module.out + module.out  # two biased linears
    return patch + norm_parameters(module, module.hidden) + projector


def norm_parameters(module: Module, width: int) -> int:
    return width if module.norm == "rms" else 2 * width


def counts_text(module: Module) -> str:
    """What a count covers, for a table."""
    if isinstance(module, Decoder):
        parts = ["embedding", "tied head" if module.tied else "head", "norms"]
        parts += ["learned positions"] if module.positions == "learned" else []
    else:
        parts = ["patch embedding", "norms", "projector"]
    return "layers, " + ", ".join(parts + (["biases"] if module.bias != "none" else []))
