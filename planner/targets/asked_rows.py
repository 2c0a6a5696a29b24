"""What a file leaves to the script that it configures: its model, its sequences, what it recomputes. An import asks for
these by name, `--set model=llama-3-8b`; an export says them in the file's first lines.
"""

from collections.abc import Callable
from typing import Any

from planner.errors import InputError
from planner.plan.descriptions import flow_text
from planner.specs import library
from planner.specs.layers import Decoder
from planner.specs.model import Model
from planner.targets.launch import Launch
from planner.targets.rows import Fields, Row, Stated

WORDS = ("none", "selective", "full")


def asked(field: str, name: str, example: str, value: Callable[[Stated, str], Any], default: str = "") -> Row:
    """A field that `--set name=example` gives; without a default it has to."""

    def read(stated: Stated, fields: Fields) -> Fields:
        if field in fields:
            return {}
        if name not in stated and not default:
            message = f"the file does not say {name}, which the training script has"
            raise InputError(message, where=stated.file, fix=f"--set {name}={example}")
        if name not in stated:
            stated.defaults[name] = default
        return {field: value(stated, name) if name in stated else value(Stated({name: (default,)}), name)}

    return Row((field,), (name,), (), lambda fields: {}, read)


def module_of(stated: Stated, name: str) -> Decoder:
    """The decoder of a model file, by name or path. Raises InputError."""
    found = library.read_named(stated.one(name), Model)[0].modules.values()
    decoders = [module for module in found if type(module) is Decoder]
    if len(decoders) != 1:
        raise stated.error(name, f"it has {len(decoders)} decoders", "a model of one")
    return decoders[0]


MODEL = asked("module", "model", "llama-3-8b", module_of)
TOKENS = asked("tokens", "seq_length", "8192", Stated.integer)
RECOMPUTE = asked("layout.recompute", "recompute", "full", lambda stated, name: stated.choice(name, WORDS), "none")


def what_the_script_has(launch: Launch, more: str = "") -> str:
    """What the file leaves to its script, as a line."""
    module, layout = launch.module, launch.layout
    recomputed = f", recompute {flow_text(layout.recompute)}" if (layout.recompute or "none") != "none" else ""
    model = f"a decoder of {module.layers} layers, hidden {module.hidden}"
    return f"Left to the training script: {model}, sequences of {launch.tokens} tokens{recomputed}{more}."
