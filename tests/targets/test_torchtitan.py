"""torchtitan's files in both directions; and what its own parsers said of them holds of those exported now."""

import hashlib
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.errors import InputError
from planner.plan.launchable.launch_refusals import launch_refusals
from planner.plan.launchable.launch_rules import trained_facts
from planner.plan.mesh.rank_mesh import groups_over
from planner.specs.base import with_fields
from planner.specs.named_files import read_software
from planner.targets import TARGETS, WrittenLaunch, arguments_of, canonical, layout_of, read_target
from planner.targets.torchtitan_models import CONFIGS, FLAVORS, flavor_module, flavor_of
from tests.targets.launches import launch
from tests.targets.parser_runs import VERDICTS
from tests.targets.torchtitan_launches import LAUNCHES
from tests.targets.torchtitan_parsers import MUTATIONS, file_of, mutated, refused_here

SAID = json.loads((VERDICTS / "torchtitan.json").read_text())
CASES = [(name, version) for name, (_, versions) in LAUNCHES.items() for version in versions]
GROUPS = {"pp": ("pp",), "dp": ("dp", "replica"), "cp": ("cp",), "tp": ("tp",)}
TARGET = TARGETS["torchtitan"]
TOML = """[model]
name = "llama3"
flavor = "8B"

[training]
local_batch_size = 2
seq_len = 8192
{training}
[parallelism]
tensor_parallel_degree = 2
{parallelism}
[activation_checkpoint]
mode = "full"
"""


def read(text: str, ranks: int, name: str = "x.toml"):
    known = {"ranks": ranks, "per_node": min(8, ranks), "blackwell": False}
    return read_target(TARGET, text, name, {}, lambda command: known)


@pytest.mark.parametrize(("name", "version"), CASES)
def test_the_file_is_the_one_that_was_accepted_and_derives_what_the_plan_says(name, version):
    """Else `make parsers` is to be run again. Every setting came out of the parser as it was written."""
    said, launched = SAID["launches"][f"{name} {version}"], canonical(LAUNCHES[name][0])
    assert said["sha256"] == hashlib.sha256(file_of(name, version).encode()).hexdigest()[:16]
    assert "error" not in said and said["lost"] == [] and said["survived"] > 10
    layout = layout_of(launched)
    replicas = layout.dp * layout.replica
    assert said["dp"] == replicas
    assert said["micro_batches"] * replicas * layout.micro_batch == launched.sequences
    assert said["stages"] == ([len(stage) for stage in layout.stages] or [launched.module.layers])
    assert said["recompute"] == layout.recompute
    groups = {
        name: sorted({tuple(ranks) for ranks in groups_over(layout, dims).values()}) for name, dims in GROUPS.items()
    }
    assert said["groups"] == hashlib.sha256(json.dumps(groups).encode()).hexdigest()[:16]


@pytest.mark.parametrize(("name", "version"), CASES)
def test_a_file_is_read_as_the_launch_that_it_was_written_of(name, version):
    launched = LAUNCHES[name][0]
    found = read(file_of(name, version), launched.ranks, "x.toml" if version == "0.2" else "x.sh")
    assert found.launch == canonical(launched) and not found.unpriced
    assert {hole for hole, _ in found.stated.unknown.values()} == {"HF_ASSETS_PATH", "DATASET_PATH"}


def test_every_launch_was_judged_and_every_mutation_refused():
    assert SAID["parser"] == TARGET.checked and len(LAUNCHES) >= 20
    assert SAID["launches"].keys() == {f"{name} {version}" for name, version in CASES}
    for name, said in SAID["launches"].items():
        assert said["refused"].keys() == MUTATIONS.keys() and all(said["refused"].values()), name


@pytest.mark.parametrize("version", ["0.2", "0.3"])
def test_mutations_are_refused_here(version):
    text = file_of("vpp", version)
    assert not refused_here(text, "vpp", version)
    for kind, (taken, put) in MUTATIONS.items():
        assert refused_here(mutated(text, version, taken, put[version]), "vpp", version), kind


def test_configurations_say_what_the_table_has():
    for name, config in CONFIGS.items():
        own = {key: value for key, value in config.arguments().items() if not key.startswith("model.")}
        assert SAID["configurations"][name] == own


def test_every_flavor_is_found_by_its_module():
    for each in FLAVORS:
        assert flavor_of(flavor_module(*each), 1) == each
        assert flavor_of(with_fields(flavor_module(*each), rope_base=123.0), 8) == each


DEGREES = st.sampled_from((1, 2, 4, 8))


@st.composite
def launches(draw):
    """Any launch of Llama or DeepSeek that torchtitan's knobs let pass."""
    flavor = draw(st.sampled_from((("llama3", "8B"), ("llama3", "70B"), ("deepseek_v3", "16B"))))
    module = flavor_module(*flavor)
    cp = draw(st.sampled_from((1, 2, 4))) if flavor[0] == "llama3" else 1
    pp, tp = draw(DEGREES), draw(DEGREES)
    vpp = draw(st.sampled_from((1, 2, 4))) if pp > 1 else 1
    dp, replica = draw(DEGREES), draw(st.sampled_from((1, 2)))
    layout = {"tp": tp, "cp": cp, "pp": pp, "vpp": vpp, "replica": replica if dp > 1 else 1}
    layout |= {"zero": draw(st.sampled_from((2, 3))), "micro_batch": draw(st.sampled_from((1, 2)))}
    layout |= {"recompute": draw(st.sampled_from(("none", "selective", "full")))}
    layout |= {"ep": draw(DEGREES) if module.moe else 1}
    ranks = tp * cp * pp * dp * layout["replica"]
    rounds = draw(st.integers(1, 4)) * pp * vpp
    return launch(module, ranks, 8192, ranks // (tp * cp * pp) * layout["micro_batch"] * rounds, **layout)


@given(launches(), st.sampled_from(("0.2", "0.3")))
def test_export_then_import_is_the_same_launch(launched, version):
    knobs = read_software("torchtitan")[0].knobs
    facts = trained_facts(launched.module, launched.ranks, (launched.tokens,) * launched.sequences)
    if launch_refusals(launched.layout, facts, knobs):
        return
    try:
        arguments = arguments_of(TARGET, launched, version)
    except InputError as error:
        layout = launched.layout
        alone = version == "0.2" and layout.dp * layout.cp == 1  # it computes in float32 over tp or pp
        empty = layout.pp * layout.vpp > launched.module.layers
        assert (error.where == "layout.dtype" and alone) or (error.where == "layout.stages" and empty)
        return
    text = TARGET.write(WrittenLaunch(launched, arguments, version, ()))
    found = read(text, launched.ranks, "x.toml" if version == "0.2" else "x.sh")
    assert found.launch == canonical(launched)


def test_what_a_toml_does_not_say_is_as_by_default_and_listed():
    found = read(TOML.format(training="", parallelism=""), 16)
    layout = found.launch.layout
    assert (layout.dp, layout.zero, layout.micro_batch, found.launch.sequences) == (8, 3, 2, 16)
    assert found.stated.defaults["training.global_batch_size"] == "-1"
    assert found.stated.defaults["parallelism.data_parallel_shard_degree"] == "-1"


def test_flags_are_beside_what_their_configuration_says():
    found = read("torchrun -m torchtitan.train --module llama3 --config llama3_70b\n", 64, "x.sh")
    assert (found.launch.layout.tp, found.launch.layout.recompute, found.launch.tokens) == (8, "full", 8192)
    assert found.stated.defaults["parallelism.tensor_parallel_degree"] == "8, by llama3_70b"


@pytest.mark.parametrize(
    ("training", "parallelism", "message", "line"),
    [
        ("batch_size = 2", "", "it is not known what it changes", 8),
        ("", "tensor_parallel_degre = 4", "it is not known what it changes", 11),
        ("", "pipeline_parallel_degree = 3", "are no 16 ranks", 10),
        ("", "data_parallel_shard_degree = 3", "are no 16 ranks", 11),
        ("", "enable_sequence_parallel = true", "this is a setting of torchtitan 0.3", 11),
        ("", "enable_async_tensor_parallel = true", "async tensor parallelism is part of compilation", 11),
        ("global_batch_size = 7", "", "7 sequences are no multiple of 2 for each of 8 replicas", 8),
        ("global_batch_size = 64", "pipeline_parallel_degree = 2", "a step would be 8 pipelines", 8),
        ("", 'pipeline_parallel_degree = 2\npipeline_parallel_schedule = "DualPipeV"', "`DualPipeV` is none", 12),
        ("", "pipeline_parallel_degree = 2\npipeline_parallel_layers_per_stage = 4", "9 stages of 32 layers", 12),
        ("enable_cpu_offload = true", "", "`true` is none", 8),
        ("local_batch_size = 2", "", "this is not TOML", 8),
    ],
)  # fmt: skip
def test_what_is_wrong_has_a_line_and_a_fix(training, parallelism, message, line):
    with pytest.raises(InputError) as found:
        read(TOML.format(training=training, parallelism=parallelism), 16)
    assert message in found.value.message and found.value.fix
    assert found.value.where.startswith(f"x.toml:{line}")


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"zero": 1}, "layout.zero"),
        ({"etp": 2, "tp": 2, "ep": 4}, "layout.etp"),
        ({"dispatch": "node_level", "ep": 4}, "layout.dispatch"),
        ({"offload": 0.5}, "layout.offload"),
        ({"gradients": "bf16"}, "layout.gradients"),
        ({"rank_order": "tp-pp-dp", "pp": 2, "tp": 2}, "layout.rank_order"),
    ],
)
def test_what_no_setting_says_is_refused_by_its_field(changes, field):
    with pytest.raises(InputError) as found:
        arguments_of(TARGET, launch(flavor_module("deepseek_v3", "16B"), 16, 4096, 64, **{"zero": 3, **changes}), "0.3")
    assert found.value.where == field


def test_a_model_without_a_flavor_is_refused():
    with pytest.raises(InputError, match="no flavor of this model"):
        arguments_of(TARGET, launch(with_fields(flavor_module("llama3", "8B"), layers=30), 8, 4096, 64), "0.2")


def test_every_toml_of_its_repository_ended_priced_or_refused_with_the_setting():
    """What was not known is still not known; what was refused by its value has the setting in the table."""
    ended = json.loads((VERDICTS / "torchtitan_examples.json").read_text())
    known = {argument for row in TARGET.rows for argument in row.arguments} | TARGET.unpriced | TARGET.other
    assert len(ended) >= 20 and sum("priced" in how for _, how in ended.values()) >= 8
    for digest, how in ended.values():
        assert len(digest) == 16
        if how.startswith("refused: "):
            setting = how.split(": ")[1]
            assert (setting in known) != ("it is not known what it changes" in how), how
