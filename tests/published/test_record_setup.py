"""A record's strategy: degrees multiply up to the ranks, and what is not said follows or is told."""

import pytest

from planner.published.predict_cases import predict_cases
from planner.published.read_published import read_case
from planner.published.record_files import UnusableRecord
from planner.published.record_setup import record_setup
from planner.published.trained_model import model_of_record
from tests.published.made_records import record

MOE = {"model": "Qwen3 30B-A3B", "family": "qwen3", "layers": ""}


def made(software="nemo", **cells):
    return record_setup(each := record(**cells), model_of_record(each).module, "h100-80gb", software, 8)


def test_the_usual_row():
    got, assumed = made()
    assert (got.ranks, got.tp, got.cp, got.pp, got.pipelines) == (16, 4, 1, 2, 2)
    assert (got.batch, got.micro_batches, got.seq, got.dtype) == (16, 8, 8192, "bf16")
    assert (got.zero, got.schedule, got.full_recompute, got.recomputed_parts) == (1, "1f1b", 0, frozenset())
    assert assumed == ["zero_stage"]


def test_what_is_not_said_follows_from_the_rest():
    assert made(dp="")[0].pipelines == 2
    got, assumed = made(tp="")
    assert got.tp == 4
    assert "tp" in assumed
    assert made(gbs="", grad_accum="8")[0].batch == 16
    assert made(mbs="", grad_accum="4")[0].micro_batch == 2
    got, assumed = made(gbs="", step_time_s="2.0", tokens_per_s_total=str(round(16 * 8192 / 2)))
    assert got.batch == 16
    assert "gbs" in assumed


@pytest.mark.parametrize(
    ("cells", "reason"),
    [
        ({"dp": "4"}, "layout does not multiply up"),
        ({"tp": "3", "dp": ""}, "layout does not multiply up"),
        ({"gbs": "15"}, "layout does not multiply up"),
        ({"pp": "16", "tp": "1", "dp": "1", "vpp": "4"}, "layout does not multiply up"),
        ({"tp": "", "pp": "", "dp": "", "cp": ""}, "layout not stated"),
        ({"tp": "", "pp": "", "dp": "", "cp": "1"}, "layout not stated"),
        ({"n_gpus": ""}, "number of GPUs not stated"),
        ({"n_gpus": "999999"}, "impossible figures"),
        ({"seq_len": ""}, "sequence length not stated"),
        ({"seq_len": "max 192K"}, "sequences of different lengths"),
        ({"gbs": "", "mbs": ""}, "batch not stated"),
        ({"gbs": ""}, "batch not stated"),
        ({"zero_stage": "7"}, "unreadable number"),
        ({"other_settings": "pipeline schedule v-half"}, "schedule not understood"),
        ({**MOE, "ep": "7"}, "layout does not multiply up"),
        ({**MOE, "ep": "16"}, "layout does not multiply up"),
    ],
)
def test_what_does_not_fit_is_named(cells, reason):
    with pytest.raises(UnusableRecord) as why:
        made(**cells)
    assert why.value.reason == reason


@pytest.mark.parametrize(("text", "tokens"), [("4096", 4096), ("8k", 8192), ("1M", 2**20), ("4,096", 4096)])
def test_lengths(text, tokens):
    assert made(seq_len=text)[0].seq == tokens


@pytest.mark.parametrize(
    ("cells", "software", "stage"),
    [
        ({"zero_stage": "2"}, "deepspeed", 2),
        ({"zero_stage": "ZeRO-3"}, "deepspeed", 3),
        ({"fsdp": "FSDP2"}, "torchtitan", 3),
        ({"fsdp": "True", "zero_stage": "1"}, "internevo", 3),
        ({"fsdp": "False", "zero_stage": "1"}, "internevo", 1),
        ({"fsdp": "SHARD_GRAD_OP"}, "fsdp", 2),
        ({"fsdp": "0"}, "nemo", 1),
        ({}, "nemo", 1),
        ({}, "megatron-2021", 0),
        ({}, "torchtitan", 3),
        ({"framework": "XTuner (DeepSpeed ZeRO-3)"}, "deepspeed", 3),
        ({"other_settings": "use-distributed-optimizer=True"}, "megatron", 1),
        ({"other_settings": "transformer-impl=local"}, "megatron", 0),
    ],
)
def test_sharding(cells, software, stage):
    assert made(software, **cells)[0].zero == stage


def test_shard_groups():
    wide = {"n_gpus": "64", "tp": "1", "pp": "1", "dp": "64", "gbs": "64"}
    assert made(**wide, fsdp="16")[0].replica == 4
    assert made(**wide, fsdp="64")[0].replica == 1
    assert made("fsdp", **wide, fsdp="HSDP")[0].replica == 8
    assert made("internevo", **wide, zero_stage="1", other_settings="zero1 shard group=8; x=y")[0].replica == 8
    assert made("internevo", **wide, zero_stage="1", other_settings="zero1 shard group=-1")[0].replica == 1
    with pytest.raises(UnusableRecord):
        made(**wide, fsdp="24")


def test_schedules():
    assert made(vpp="4")[0].schedule == "interleaved"
    assert made(vpp="4", other_settings="zbv")[0].schedule == "zb_h1"
    assert made(vpp="None")[0].vpp == 1
    assert made(other_settings="GPipe")[0].schedule == "gpipe"


def test_sequence_parallel():
    assert made(sp="0")[0].sequence_parallel is False
    assert made("megatron-2021")[0].sequence_parallel is False
    assert made(other_settings="sequence_parallel=False")[0].sequence_parallel is False
    assert made(sp="1")[0].sequence_parallel is True
    got, assumed = made("megatron")
    assert got.sequence_parallel
    assert "sp" in assumed


def test_a_degree_of_sequence_parallelism_splits_sequences():
    got, _ = made(sp="4", tp="1", pp="1", cp="", dp="4")
    assert (got.cp, got.pipelines) == (4, 4)


def test_replicas_may_be_counted_as_the_experts():
    cells = {**MOE, "ep": "8", "tp": "1", "pp": "1", "n_gpus": "16"}
    assert made(**cells, dp="2")[0].pipelines == 16
    assert made(**cells, dp="16")[0].pipelines == 16
    assert "dp" in made(**cells, dp="2")[1]


def test_replicas_may_be_counted_with_the_parts_of_sequences():
    got, assumed = made(tp="2", cp="4", pp="1", dp="8", n_gpus="16")
    assert (got.cp, got.pipelines) == (4, 2)
    assert "dp" in assumed


def test_experts_are_split_as_dense_layers_by_megatron_only():
    cells = {**MOE, "ep": "2", "pp": "1", "dp": "4", "tp": "4"}
    assert made("megatron", **cells)[0].etp == 4
    assert made("nemo", **cells)[0].etp == 1
    assert made("megatron", **cells, etp="2")[0].etp == 2
    assert made("megatron", **{**cells, "ep": "16"})[0].etp == 1  # there are not the ranks
    with pytest.raises(UnusableRecord, match="layout"):
        made(ep="8")  # a dense model
    with pytest.raises(UnusableRecord, match="layout"):
        made(tp="3", pp="1", dp="1", n_gpus="3", gbs="3")  # 32 heads


@pytest.mark.parametrize(
    ("words", "share"),
    [
        ("optimizer-cpu-offload=True", 1.0),
        ("optimizer-cpu-offload=True; optimizer-offload-fraction=0.5", 0.5),
        ("optimizer states in host memory; offload_optimizer", 1.0),
        ("optimizer-cpu-offload=False", 0.0),
        ("Opt Offl=N; Par Offl=N", 0.0),
        ("ActivationCPUOffload=False", 0.0),
    ],
)
def test_the_optimizer_may_be_in_host_memory(words, share):
    assert read_case(record(other_settings=words)).setup.optimizer_offload == share


def test_an_optimizer_in_host_memory_takes_longer_and_leaves_room():
    for framework in ("NeMo", "DeepSpeed"):
        cases = [read_case(record(framework=framework, other_settings=words)) for words in ("Opt Offl=Y", "Opt Offl=N")]
        there, here = predict_cases(cases)
        assert there.seconds > here.seconds and there.memory_bytes < here.memory_bytes
