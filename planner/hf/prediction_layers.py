"""Layers of a config.json that predict tokens further ahead (multi-token prediction), which models are imported without
unless they are asked for: transformers leaves them out too, and models are often trained on without them.
"""

from collections.abc import Mapping
from typing import Any

from planner.errors import InputError
from planner.hf.hf_config import Note
from planner.specs.base import with_fields

NUMBER_KEYS = ("num_nextn_predict_layers", "mtp_num_hidden_layers", "num_mtp_modules")
MOST_AHEAD = 16
OTHER_KEYS = ("use_mtp", "mtp_transformer_layers")  # whether there are any, and layers of each: one


def with_prediction_layers(
    modules: Mapping[str, Any], notes: list[Note], values: Mapping[str, Any], name: str
) -> tuple[dict[str, Any], list[Note]]:
    """The modules, of which the decoder has the layers ahead that the file states, as its last layers; and the notes
    without those on these layers. Raises InputError where the file states none.
    """
    text = {**values, **inner} if isinstance(inner := values.get("text_config"), dict) else values
    counts = [text[key] for key in NUMBER_KEYS if key in text]
    llm = modules.get("llm")
    number = next((count for count in counts if type(count) is int and 0 < count <= MOST_AHEAD), 0)
    if llm is None or not number or text.get("mtp_transformer_layers", 1) != 1:
        key = NUMBER_KEYS[0] if not number else "mtp_transformer_layers"
        message = f"it does not state 1 to {MOST_AHEAD} layers that predict ahead, each of one"
        raise InputError(message, where=f"{name} ({key})", fix="leave out --mtp")
    words = llm.pattern.split()
    deeper = with_fields(llm, layers=llm.layers + number, mtp=number, pattern=" ".join(words + words[-1:] * number))
    rest = [note for note in notes if note.key not in {*NUMBER_KEYS, *OTHER_KEYS}]
    return {**modules, "llm": deeper}, rest
