"""Megatron-LM's launch scripts: `pretrain_gpt.py` under torchrun, written and read."""

from collections.abc import Mapping
from shlex import quote
from typing import Any

from planner.specs.layers import Decoder
from planner.targets.launch import canonical, fields_of
from planner.targets.launch_command import LaunchCommand, read_launch
from planner.targets.launch_script import Script, script_text
from planner.targets.megatron import (
    CHECKED,
    LAYOUT_ROWS,
    ROWS,
    SINCE,
    SOFTWARE,
    STEP_ROWS,
    TOKENS_ROW,
    VERSIONS,
    environment,
)
from planner.targets.megatron_layers import EXPERT_ROWS, LATENT_ROWS, MODULE_ROWS
from planner.targets.megatron_others import OTHER, OTHER_SWITCHES, UNPRICED, UNPRICED_SWITCHES
from planner.targets.rows import Fields, Row, Stated, read_rows, read_stated
from planner.targets.target import Target, WrittenLaunch

HOLES = {
    "DATA_PATH": "prefix of the tokens that tools/preprocess_data.py wrote",
    "TOKENIZER_MODEL": "name or folder of a Hugging Face tokenizer",
}
DATA = {
    "--data-path": ('"$DATA_PATH"',),
    "--split": ("99,1,0",),
    "--tokenizer-type": ("HuggingFaceTokenizer",),
    "--tokenizer-model": ('"$TOKENIZER_MODEL"',),
}
# What changes no step: yours to set.
TRAINING = {
    "--train-iters": ('"${TRAIN_ITERS:-100}"',),
    "--lr": ('"${LR:-1.5e-4}"',),
    "--attention-dropout": ("0",),
    "--hidden-dropout": ("0",),
}
SWITCHES = frozenset(name for row in ROWS for name in row.switches) | OTHER_SWITCHES | UNPRICED_SWITCHES


def write(written: WrittenLaunch) -> str:
    """The script of a launch: model, layout and step as three arrays, data and training as two."""
    launch = written.launch
    of_layout, of_step = arguments_in(LAYOUT_ROWS), arguments_in((TOKENS_ROW, *STEP_ROWS))
    parts: dict[str, dict[str, tuple[str, ...]]] = {"MODEL": {}, "LAYOUT": {}, "STEP": {}}
    for argument, values in written.arguments.items():
        part = "LAYOUT" if argument in of_layout else "STEP" if argument in of_step else "MODEL"
        parts[part][argument] = tuple(quote(value) for value in values)
    checked = (
        f"arguments checked by {CHECKED}" if written.version == VERSIONS[0] else f"for megatron-core {written.version}"
    )
    return script_text(
        Script(
            (f"Megatron-LM, {checked}", *written.about, "Run it on each node, in a checkout of Megatron-LM."),
            HOLES,
            environment(fields_of(canonical(launch))),
            {**parts, "TRAINING": TRAINING, "DATA": DATA},
            "pretrain_gpt.py",
            launch.ranks // launch.per_node,
            launch.per_node,
        )
    )


def arguments_in(rows: tuple[Row, ...]) -> set[str]:
    return {argument for row in rows for argument in row.arguments}


def megatron_fields(stated: Stated, known: Fields) -> dict[str, Any]:
    """Fields of a decoder that arguments state, and all of latent attention where there is any. Raises InputError."""
    return read_rows(LATENT_ROWS, stated, read_stated((*MODULE_ROWS, *EXPERT_ROWS[1:]), stated, known))


def read(text: str, name: str, given: Mapping[str, str]) -> LaunchCommand:
    return read_launch(text, name, given, SWITCHES)


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
    write=write,
    read=read,
)
