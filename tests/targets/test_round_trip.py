"""What is exported is read back as the same launch; what no argument says is refused by its field."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.errors import InputError
from planner.plan.launchable.launch_refusals import launch_refusals
from planner.plan.launchable.launch_rules import trained_facts
from planner.specs.base import differences, with_fields
from planner.specs.named_files import read_software
from planner.specs.parallelism import Parallelism
from planner.targets import TARGETS, WrittenLaunch, arguments_of, canonical, read_target
from tests.examples import examples
from tests.targets import launches
from tests.targets.launches import LAUNCHES, known_of, launch, spans, target_of

MEGATRON = TARGETS["megatron"]
HOLES_OF = ("--data-path", "--tokenizer-model", "--model-provider", "--dataset-provider")


def there_and_back(wanted, version=""):
    """A launch, written and read."""
    version = version or MEGATRON.versions[0]
    target = target_of(wanted)
    text = target.write(WrittenLaunch(wanted, arguments_of(target, wanted, version), version, ("drawn",)))
    read = read_target(MEGATRON, text, "a.sh", {}, lambda command: known_of(wanted))
    assert read.stated.unknown.keys() <= {*HOLES_OF}
    return read.launch


@pytest.mark.parametrize("name", LAUNCHES)
def test_every_launch_comes_back(name):
    assert there_and_back(LAUNCHES[name]) == canonical(LAUNCHES[name])


@st.composite
def drawn(draw):
    """A layout that Megatron-LM can launch, of any of the models."""
    module = draw(
        st.sampled_from(
            [launches.LLAMA_8B, launches.GPT, launches.MIXTRAL, launches.QWEN_MOE, launches.DEEPSEEK, launches.AHEAD]
        )
    )
    tp, cp, pp = (draw(st.sampled_from(sizes)) for sizes in ((1, 2, 4), (1, 2, 4), (1, 2, 4)))
    fields = {"tp": tp, "cp": cp, "pp": pp, "ulysses": draw(st.sampled_from([n for n in (1, 2, 4) if cp % n == 0]))}
    dp, replica, micro = (draw(st.sampled_from((1, 2, 4))) for _ in range(3))
    zero = draw(st.sampled_from((1, 2, 3) if replica > 1 else (0, 1, 2, 3)))
    fields |= {"dp": dp, "replica": replica, "micro_batch": micro, "zero": zero}
    vpp = draw(st.sampled_from((1, 2))) if pp > 1 else 1
    if draw(st.booleans()) and pp > 1:
        sizes = draw(st.permutations([module.layers - (pp * vpp - 1) * 2, *[2] * (pp * vpp - 1)]))
        fields["stages"] = spans(*sizes)
    fields |= {"vpp": vpp, "dtype": draw(st.sampled_from(("bf16", "fp8", "float32")))}
    fields["recompute"] = draw(
        st.sampled_from(("none", "selective", "full", ("norm",), ("attention", "mlp"), {"0-1": "full"}))
    )
    fields["overlap"] = draw(st.sampled_from(((), ("tp",))))
    fields["rank_order"] = draw(st.sampled_from(("tp-cp-dp-replica-pp", "tp-cp-pp-dp-replica", "cp-tp-dp-replica-pp")))
    fields["gradients"] = draw(st.sampled_from(("float32", "bf16")))
    if module.moe:
        fields |= {"ep": draw(st.sampled_from((1, 2, 4))), "etp": draw(st.sampled_from((1, tp)))}
        fields["dispatch"] = draw(st.sampled_from(("all_to_all", "node_level", "all_gather")))
    ranks = tp * cp * pp * dp * replica
    return launch(module, ranks, 2048, 8 * dp * replica * micro, **fields)


@examples(300)
@given(drawn())
def test_a_layout_that_can_be_launched_comes_back_and_no_other_is_changed(wanted):
    """Else a rule of the software refuses the layout: knobs allow nothing that no argument says."""
    try:
        told = there_and_back(wanted)
    except InputError:
        facts = trained_facts(wanted.module, wanted.ranks, (wanted.tokens,) * wanted.sequences)
        assert launch_refusals(wanted.layout, facts, read_software("megatron")[0].knobs)
        return
    assert told == canonical(wanted), [*differences(canonical(wanted), told)]


UNSAID = {
    "layout.offload": {"offload": 0.5},
    "layout.recompute": {"recompute": {"4-7": "full"}},
    "layout.rank_order": {"tp": 2, "rank_order": "dp-tp"},
    "layout.schedule": {"pp": 2, "schedule": "gpipe"},
}


@pytest.mark.parametrize("field", UNSAID)
def test_what_no_argument_says_is_refused_by_its_field(field):
    with pytest.raises(InputError) as refused:
        arguments_of(MEGATRON, launch(launches.LLAMA_8B, 8, 4096, 64, **UNSAID[field]), "0.19")
    assert refused.value.where == field


STAGED = {"pp": 2, "stages": spans(15, 14)}


@pytest.mark.parametrize(
    ("ahead", "layout"),
    [(1, {**STAGED, "recompute": {"0-13,15-28": "full"}}), (2, {"pp": 2, "stages": spans(28, 1)})],
    ids=["recomputed by blocks", "on two stages"],
)
def test_layers_that_predict_ahead_are_where_megatron_has_them(ahead, layout):
    """On the last stage; and by blocks it recomputes all layers but these."""
    module = with_fields(launches.AHEAD, mtp=ahead)
    with pytest.raises(InputError, match="predict ahead"):
        arguments_of(MEGATRON, launch(module, 64, 4096, 512, **layout), "0.19")
    kept = launch(launches.AHEAD, 64, 4096, 512, **STAGED, recompute={"0-12,15-27": "full"})
    assert there_and_back(kept) == canonical(kept)


@pytest.mark.parametrize(
    "changed", [{"positions": "relative", "buckets": 32}, {"bias": "attention"}, {"activation": "gelu"}], ids=str
)
def test_layers_that_megatron_has_not_are_refused(changed):
    with pytest.raises(InputError, match=r"has no argument for module|none that a plan can have"):
        arguments_of(MEGATRON, launch(with_fields(launches.LLAMA_8B, **changed), 8, 4096, 64), "0.19")


def test_older_versions_have_other_arguments_or_none():
    uneven = LAUNCHES["dense-uneven"]
    assert "--pipeline-model-parallel-layout" in arguments_of(MEGATRON, uneven, "0.13")
    older = arguments_of(MEGATRON, uneven, "0.12")
    assert (older["--decoder-first-pipeline-num-layers"], older["--decoder-last-pipeline-num-layers"]) == (
        ("19",),
        ("19",),
    )
    assert there_and_back(uneven, "0.12") == canonical(uneven)
    for name, version in {"dense-uneven-vpp": "0.12", "dense-zero-3": "0.13", "moe-etp": "0.9"}.items():
        with pytest.raises(InputError) as refused:
            arguments_of(MEGATRON, LAUNCHES[name], version)
        assert refused.value.where == "--version"


def test_a_parallelism_without_fields_is_one_of_defaults():
    bare = with_fields(launch(launches.LLAMA_8B, 8, 4096, 64), layout=Parallelism(dp=8, zero=1))
    assert canonical(bare) == canonical(launch(launches.LLAMA_8B, 8, 4096, 64))


NASTY = (
    "0",
    "-1",
    "1",
    "7",
    "9999",
    "999999999",
    "99999999999999999999",
    "1e9",
    "nan",
    "inf",
    "x",
    "[1]*9999",
    "t*9999",
)
BASE = (
    "--num-layers 32 --hidden-size 4096 --num-attention-heads 32 --seq-length 4096 --micro-batch-size 1"
    " --global-batch-size 64 --bf16"
)


@pytest.mark.parametrize("argument", [argument for row in MEGATRON.rows for argument in row.valued])
@pytest.mark.every(6)
def test_any_value_is_read_or_refused_at_its_argument(argument):
    """With what makes it apply: a pipeline, experts, latent attention, recomputation."""
    with_all = "--pipeline-model-parallel-size 2 --num-experts 8 --recompute-granularity full --cp-comm-type a2a+p2p"
    for more in ("", with_all, "--multi-latent-attention --use-rope-scaling --group-query-attention"):
        for value in NASTY:
            text = f"torchrun pretrain_gpt.py {BASE} {more} {argument} {value}\n"
            known = {"ranks": 8, "per_node": 8, "blackwell": False}
            try:
                read_target(MEGATRON, text, "a.sh", {}, lambda command, known=known: known)
            except InputError as error:
                assert error.where.startswith("a.sh") and error.message and error.fix, (text, error)
