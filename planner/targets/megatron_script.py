"""Megatron-LM's launch scripts: `pretrain_gpt.py` under torchrun, written and read."""

from collections.abc import Mapping
from functools import partial
from shlex import quote
from typing import Any, NamedTuple

from planner.specs.layers import Decoder
from planner.targets.launch import Launch, canonical, fields_of
from planner.targets.launch_command import LaunchCommand, read_launch
from planner.targets.launch_script import Script, script_text
from planner.targets.megatron import (
    CHECKED,
    DEGREES,
    LAYOUT_ROWS,
    ROWS,
    SINCE,
    SOFTWARE,
    STEP_ROWS,
    TOKENS_ROW,
    VERSIONS,
    environment,
)
from planner.targets.megatron_layers import EXPERT_ROWS, LATENT_ROWS, MODULE_ROWS, VOCAB_ROW
from planner.targets.megatron_others import OTHER, OTHER_SWITCHES, UNPRICED, UNPRICED_SWITCHES
from planner.targets.rows import Arguments, Fields, Row, Stated, read_rows, read_stated
from planner.targets.target import Target, WrittenLaunch

HOLES: dict[str, str] = {
    "DATA_PATH": "prefix of the tokens that tools/preprocess_data.py wrote",
    "TOKENIZER_MODEL": "name or folder of a Hugging Face tokenizer",
}
DATA: dict[str, tuple[str, ...]] = {
    "--data-path": ('"$DATA_PATH"',),
    "--split": ("99,1,0",),
    "--tokenizer-type": ("HuggingFaceTokenizer",),
    "--tokenizer-model": ('"$TOKENIZER_MODEL"',),
}
# What changes no step: yours to set.
TRAINING: dict[str, tuple[str, ...]] = {
    "--train-iters": ('"${TRAIN_ITERS:-100}"',),
    "--lr": ('"${LR:-1.5e-4}"',),
    "--attention-dropout": ("0",),
    "--hidden-dropout": ("0",),
}
SWITCHES = frozenset(name for row in ROWS for name in row.switches) | OTHER_SWITCHES | UNPRICED_SWITCHES


class ScriptForm(NamedTuple):
    """What the script of a program has: its words behind torchrun, the rows of its layout, holes, training, data."""

    program: str
    checked: str
    layout: tuple[Row, ...]
    holes: Mapping[str, str]
    training: Arguments
    data: Arguments


def write_form(form: ScriptForm, written: WrittenLaunch) -> str:
    """The script of a launch: model, layout and step as three arrays, data and training as two."""
    launch = written.launch
    of_model, of_step = arguments_in((*MODULE_ROWS, *EXPERT_ROWS, VOCAB_ROW)), arguments_in((TOKENS_ROW, *STEP_ROWS))
    of_layout = arguments_in(form.layout) - of_model - of_step
    parts: dict[str, dict[str, tuple[str, ...]]] = {"MODEL": {}, "LAYOUT": {}, "STEP": {}}
    for argument, values in written.arguments.items():
        part = "LAYOUT" if argument in of_layout else "STEP" if argument in of_step else "MODEL"
        parts[part][argument] = tuple(quote(value) for value in values)
    newest = written.version == VERSIONS[0]
    checked = f"arguments checked by {form.checked}" if newest else f"for megatron-core {written.version}"
    about = (f"Megatron-LM, {checked}", *written.about, *left_to_provider(launch))
    return script_text(
        Script(
            (*about, "Run it on each node, in a checkout of Megatron-LM."),
            form.holes,
            environment(fields_of(canonical(launch))),
            {**parts, "TRAINING": form.training, "DATA": form.data},
            form.program,
            launch.ranks // launch.per_node,
            launch.per_node,
        )
    )


def left_to_provider(launch: Launch) -> list[str]:
    """What no argument says of encoders, as a line."""
    modules = launch.encoders.modules if launch.encoders else {}
    named = ", ".join(f"{name} of {each.layers} layers, hidden {each.hidden}" for name, each in modules.items())
    return [f"Built by your model provider, as no argument says them: {named}, beside this LLM."] if modules else []


def arguments_in(rows: tuple[Row, ...]) -> set[str]:
    return {argument for row in rows for argument in row.arguments}


def megatron_fields(stated: Stated, known: Fields) -> dict[str, Any]:
    """Fields of a decoder that arguments state, and all of latent attention where there is any. Raises InputError."""
    return read_rows(LATENT_ROWS, stated, read_stated((*MODULE_ROWS, *EXPERT_ROWS[1:]), stated, known))


def read(text: str, name: str, given: Mapping[str, str], switched: frozenset[str] = SWITCHES) -> LaunchCommand:
    return read_launch(text, name, given, switched)


MEGATRON = Target(
    name="megatron",
    what="launch script",
    software=SOFTWARE,
    checked=CHECKED,
    versions=VERSIONS,
    since=SINCE,
    modules=(Decoder,),
    rows=ROWS,
    programs=("pretrain_gpt.py",),
    unpriced=UNPRICED | UNPRICED_SWITCHES,
    other=OTHER | OTHER_SWITCHES,
    switches=SWITCHES,
    idle={"--sequence-parallel": DEGREES["tp"]},
    write=partial(write_form, ScriptForm("pretrain_gpt.py", CHECKED, LAYOUT_ROWS, HOLES, TRAINING, DATA)),
    read=read,
)
