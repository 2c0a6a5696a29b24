"""Encoders beside an LLM, as the examples of MIMO in Megatron-LM are told of them (examples/mimo of core_v0.19.0).

`pretrain_mimo` has encoders on ranks of their own, in front of the LLM's, and has degrees for each; `train.py` has all
modules on all ranks, with the degrees of `pretrain_gpt.py`. Both take the layers of the LLM from Megatron's arguments,
and build encoders in code of the user's, with the LLM's recomputation and precision.
"""

from collections.abc import Mapping
from dataclasses import replace
from functools import partial

from planner.specs import library
from planner.specs.layers import Module
from planner.specs.model import Model
from planner.specs.parallelism import parts_of, recompute_of
from planner.targets.asked_rows import asked
from planner.targets.launch_command import LaunchCommand
from planner.targets.megatron import DISPATCH_ROW, LAYOUT_ROWS, STEP_ROWS, TOKENS_ROW
from planner.targets.megatron_layers import EXPERT_ROWS, MODULE_ROWS, VOCAB_ROW
from planner.targets.megatron_script import DATA, HOLES, MEGATRON, TRAINING, ScriptForm, read, write_form
from planner.targets.rows import Fields, Row, Stated, number, switches
from planner.targets.target import Target

APART, TOGETHER = "examples.mimo.pretrain_mimo", "examples/mimo/train.py"
EXAMPLES = f"{MEGATRON.checked} and examples/mimo of core_v0.19.0"
OFFSET, ENCODER_DP, LLM_CP, LLM_PP = "--llm-offset", "--encoder-dp", "--llm-cp", "--llm-pp"
ASKED = ("encoders", "images", "audio")  # that no argument says: --set encoders=qwen2.5-vl-7b
OWN = {
    "MODEL_PROVIDER": "name of your model provider in examples/mimo/model_providers",
    "DATASET_PROVIDER": "name of your provider of data, among its choices",
}
PROVIDED = {"--model-provider": ('"$MODEL_PROVIDER"',), "--dataset-provider": ('"$DATASET_PROVIDER"',)}
LIKE_LLM = ("zero", "dtype", "gradients")  # fields of encoders that are the LLM's
SAME_MESH = ("tp", "cp", "dp", "replica", "sequence_parallel", "rank_order", "optimizer_offload", "offload", "overlap")
OTHER = frozenset((*ASKED, "--image-token-id", "--mock-dataset-size", "--pad-token-id", "--dataloader-type", *PROVIDED))


def encoders_of(stated: Stated, name: str) -> dict[str, Module]:
    """The encoders of a model file, by name or path. Raises InputError where it has none."""
    model = library.read_named(stated.one(name), Model)[0]
    found = {edge.source: model.modules[edge.source] for edge in model.edges if edge.by == "tokens"}
    if not found:
        raise stated.error(name, "it has no encoders", "a model such as qwen2.5-vl-7b")
    return found


def with_llm(stated: Stated, fields: Fields) -> dict[str, object]:
    """What encoders do as the LLM does. Raises InputError where only some layers are recomputed in full, which would be
    as many of every encoder.
    """
    how = fields["layout.recompute"]
    if isinstance(how, dict):
        raise stated.error("--recompute-method", "it recomputes as many layers of encoders", "uniform, in full or none")
    own = how if how == "full" else recompute_of(parts_of(how) - {"moe"})
    found = {f"encoders.layout.{name}": fields[f"layout.{name}"] for name in LIKE_LLM}
    return found | {"encoders.layout.recompute": own}


def read_apart(stated: Stated, fields: Fields) -> Fields:
    """An encoder is the first stage of 1F1B. Raises InputError where there are several, where
    ranks are left over, or where samples of a micro-batch do not divide over its ranks.
    """
    if len(fields["encoders.modules"]) > 1:
        names = " and ".join(fields["encoders.modules"])
        message = f"one encoder may have ranks of its own, and there are {names}"
        raise stated.error("encoders", message, "all modules on all ranks, or a model with one encoder")
    if fields["layout.cp"] != 1:
        raise stated.error(LLM_CP, f"beside encoders cp is 1, and not {fields['layout.cp']}", "cp: 1")
    tp, dp = (fields[f"encoders.layout.{name}"] for name in ("tp", "dp"))
    llm_tp, llm_dp, pp = (fields[f"layout.{name}"] for name in ("tp", "dp", "pp"))
    offset = stated.integer(OFFSET, 4)
    if offset != tp * dp or offset + llm_tp * llm_dp * pp != fields["ranks"]:
        message = f"encoders on {tp * dp} ranks and the LLM on {llm_tp * llm_dp * pp} from {offset} on are not "
        message += f"{fields['ranks']} ranks"
        raise stated.error(OFFSET, message, f"{OFFSET} {tp * dp}, and degrees of all ranks")
    samples = fields["layout.micro_batch"] * llm_dp
    if not dp or samples % dp:
        message = f"{samples} samples of a micro-batch do not divide over {dp} ranks of encoders"
        raise stated.error(ENCODER_DP, message, "encoders on fewer ranks, or a larger --micro-batch-size")
    found = {"encoders.layout.sequence_parallel": tp == 1, "encoders.apart": True}
    return with_llm(stated, fields) | found


def read_together(stated: Stated, fields: Fields) -> Fields:
    """Raises InputError for degrees with which encoders would compute the same several times, or not at all."""
    for name, argument in (("pp", "--pipeline-model-parallel-size"), ("cp", "--context-parallel-size")):
        if fields[f"layout.{name}"] != 1:
            message = f"encoders on the ranks of the LLM have {name} 1, and it has {fields[f'layout.{name}']}"
            raise stated.error(argument, message, f"{name}: 1, or encoders on ranks of their own")
    same = {f"encoders.layout.{name}": fields.get(f"layout.{name}") for name in SAME_MESH}
    return with_llm(stated, fields) | same | {"encoders.apart": False}


def read_stages(stated: Stated, fields: Fields) -> Fields:
    """Stages alike, without chunks. Raises InputError."""
    layers, pp = fields["module.layers"], fields["layout.pp"]
    if not pp or layers % pp:
        message = f"{layers} layers do not divide over {pp} stages"
        raise stated.error(LLM_PP, message, "a number that divides them")
    return {"layout.vpp": 1, "layout.stages": ()}


def degree(name: str, argument: str, default: int) -> Row:
    """A degree that is always written: its default is no 1."""
    return replace(number(name, argument, default), write=lambda fields: {argument: (str(fields[name]),)})


def required(argument: str, fields: Mapping[str, object]) -> Row:
    """A switch that the program insists on, with what it means."""

    def insist(stated: Stated, known: Fields) -> Fields:
        if argument not in stated:
            raise stated.error(argument, "it is not said, and needed", f"add {argument}")
        return fields

    return Row(tuple(fields), (), (argument,), lambda known: {argument: ()}, insist)


ENCODERS_ROW = asked("encoders.modules", "encoders", "qwen2.5-vl-7b", encoders_of)
EARLY = {True: ("--overlap-grad-reduce", "--encoder-ddp-overlap"), False: ()}
FOLLOWING = tuple(f"encoders.layout.{name}" for name in (*LIKE_LLM, "recompute"))
SHARED = {name: row for row in LAYOUT_ROWS for name in (row.fields or ("optimizer",))}
APART_ROWS: tuple[Row, ...] = (
    ENCODERS_ROW,
    TOKENS_ROW,
    *MODULE_ROWS,
    *EXPERT_ROWS,
    degree("encoders.layout.tp", "--encoder-tp", 2),
    degree("encoders.layout.dp", ENCODER_DP, 2),
    degree("layout.tp", "--llm-tp", 2),
    degree("layout.cp", LLM_CP, 1),
    degree("layout.pp", LLM_PP, 1),
    degree("layout.dp", "--llm-dp", 2),
    degree("layout.ep", "--llm-ep", 1),
    degree("layout.etp", "--llm-expt-tp", 1),
    Row(("layout.vpp", "layout.stages"), (), (), lambda fields: {}, read_stages),
    DISPATCH_ROW,
    required("--use-distributed-optimizer", {"layout.zero": 1, "layout.replica": 1}),
    required("--calculate-per-token-loss", {}),
    *(SHARED[name] for name in ("layout.recompute", "optimizer", "layout.dtype", "layout.gradients")),
    switches(("reduces_early",), EARLY),
    SHARED["gathers_early"],
    VOCAB_ROW,
    *STEP_ROWS,
    Row(
        ("encoders.apart", "encoders.layout.sequence_parallel", *FOLLOWING),
        (OFFSET,),
        (),
        lambda fields: {OFFSET: (str(fields["encoders.layout.tp"] * fields["encoders.layout.dp"]),)},
        read_apart,
    ),
)
TOGETHER_ROWS: tuple[Row, ...] = (
    ENCODERS_ROW,
    *(TOKENS_ROW, *MODULE_ROWS, *EXPERT_ROWS, *LAYOUT_ROWS, VOCAB_ROW, *STEP_ROWS),
    Row(
        ("encoders.apart", *FOLLOWING, *(f"encoders.layout.{name}" for name in SAME_MESH)),
        (),
        (),
        lambda fields: {},
        read_together,
    ),
)


def mimo(program: str, rows: tuple[Row, ...], form: ScriptForm) -> Target:
    """Megatron's target for plans of several modules, by a program that reads these rows."""
    own = {argument for row in rows for argument in row.arguments}
    switched = (MEGATRON.switches - own) | {argument for row in rows for argument in row.switches}
    return MEGATRON._replace(
        checked=EXAMPLES,
        versions=("0.19",),
        rows=rows,
        programs=(program,),
        other=(MEGATRON.other | OTHER) - own,
        switches=frozenset(switched),
        write=partial(write_form, form),
        read=partial(read_asked, switched=frozenset(switched)),
        outside=("encoders.modules",),
    )


def read_asked(text: str, name: str, given: Mapping[str, str], switched: frozenset[str]) -> LaunchCommand:
    """A script, with what no argument of it says."""
    command = read(text, name, given, switched)
    values = {**command.stated.values, **{each: (given[each],) for each in ASKED if each in given}}
    return command._replace(stated=replace(command.stated, values=values))


MIMO = (
    mimo(APART, APART_ROWS, ScriptForm(f"-m {APART}", EXAMPLES, APART_ROWS, OWN, TRAINING, PROVIDED)),
    mimo(TOGETHER, TOGETHER_ROWS, ScriptForm(TOGETHER, EXAMPLES, LAYOUT_ROWS, HOLES | OWN, TRAINING, DATA | PROVIDED)),
)
