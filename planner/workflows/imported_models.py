"""The model of a config.json: by the reader of its family, or built by transformers and described matrix by matrix."""

from collections import Counter
from pathlib import Path
from typing import Any

from planner import hf
from planner.errors import InputError
from planner.extras import require_extra, require_torch
from planner.specs.layers import Module, kind_counts, layer_kinds
from planner.specs.layers.head_widths import head_dim, kv_heads
from planner.specs.model import Model
from planner.specs.parameters import active_parameters, model_parameters, parameter_counts


def imported(path: Path, build: bool, mtp: bool) -> hf.ImportedModel:
    """The model that a config.json describes. `build`: by transformers' own classes, on the meta device. `mtp`: with
    its layers that predict ahead. Raises InputError.
    """
    if not build:
        return hf.read(path, mtp)
    if mtp:
        raise InputError("transformers builds no layers that predict ahead", where="--mtp", fix="leave out --build")
    require_torch("building a model")
    require_extra("transformers", "torch", "building a model")
    from planner.models import describe

    config = hf.read_config(path)
    built = describe(config)
    return hf.as_model(config, path, {"llm": built.module}, built.notes)


def parameter_totals(model: Model) -> dict[str, int]:
    """All parameters of a model, and those that a token uses."""
    active = sum(active_parameters(module) for module in model.modules.values())
    return {"total": model_parameters(model), "active": active}


def module_shape(module: Module) -> dict[str, Any]:
    """What was read of a module: parameters, layers by kind, windows, heads, experts, vocabulary."""
    windows = Counter(module.window_of(layer) for layer in range(module.layers))
    shape: dict[str, Any] = {
        "kind": type(module).__struct_config__.tag,
        "parameters": parameter_counts(module).total,
        "active": active_parameters(module),
        "layers": module.layers,
        "layers_by_kind": dict(kind_counts(module)),
        "layers_with_window": sum(count for window, count in windows.items() if window is not None),
        "hidden": module.hidden,
        "heads": module.heads,
        "kv_heads": kv_heads(module),
        "head_dim": head_dim(module),
        "vocabulary": module.input_vocabulary,
    }
    if module.routed_experts:
        shape |= {"experts": module.routed_experts.experts, "experts_per_token": module.routed_experts.topk}
    return shape


def shape_text(module: Module) -> str:
    """What was read of a module, as a line."""
    shape, kinds = module_shape(module), layer_kinds(module)
    each = ", ".join(f"{count} {kind}" for kind, count in shape["layers_by_kind"].items())
    layers = f"{shape['layers']} layers" + (f" ({each})" if len({*kinds}) > 1 else f" ({kinds[0]})")
    keys = "" if shape["kv_heads"] == shape["heads"] else f", {shape['kv_heads']} of keys and values"
    parts = [layers, f"hidden {shape['hidden']}", f"{shape['heads']} heads of {shape['head_dim']}{keys}"]
    if shape["layers_with_window"]:
        parts.append(f"{shape['layers_with_window']} layers with a window")
    if "experts" in shape:
        parts.append(f"{shape['experts_per_token']} of {shape['experts']} experts")
    if shape["vocabulary"]:
        parts.append(f"vocabulary {shape['vocabulary']:,}")
    return ", ".join(parts)
