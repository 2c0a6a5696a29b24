"""Devices by their names, and what a sentence about the network gives each rank."""

import pytest

from planner.published.platforms import (
    device_name,
    framework_name,
    matmul_precision,
    network_gb_per_s_per_rank,
    stated_memory_gb,
    stated_network,
)
from planner.published.record_files import UnusableRecord
from tests.published.made_records import record


@pytest.mark.parametrize(
    ("written", "memory", "name"),
    [
        ("H100", "", "h100-80gb"),
        ("NVIDIA H100 80GB HBM3", "", "h100-80gb"),
        ("H100 96GB HBM2e (500W)", "96", "torchtitan-h100-500w"),
        ("A100-SXM4-80GB", "", "a100-80gb"),
        ("A100", "40", "a100-40gb"),
        ("A100 40GB", "", "a100-40gb"),
        ("A100", "", "a100-80gb"),
        ("V100 16GB", "", "v100-16gb"),
        ("Tesla V100-SXM2-32GB", "", "v100-32gb"),
        ("A800", "80", "a800"),
        ("H800", "", "h800"),
        ("H20", "", "h20"),
        ("H200", "", "h200"),
        ("DGX-B200", "", "b200"),
        ("8xA100-80GB", "", "a100-80gb"),
        ("a100_40gb", "", "a100-40gb"),
        ("8 x H100 SXM", "", "h100-80gb"),
        ("GB200", "", "gb200"),
        ("GB300 NVL72", "", "gb300"),
        ("MI300X", "", "mi300x"),
        ("MI355", "", "mi355x"),
        ("Instinct MI325X", "", "mi325x"),
        ("H100 PCIe", "", "pcie-h100-80gb"),
        ("H100 NVL 94GB", "", "nvl-h100-94gb"),
        ("8x L40S", "", "l40s"),
        ("RTX A6000", "", "a6000"),
        ("GeForce RTX 4090", "", "rtx-4090"),
        ("A30 PCIe", "", "a30"),
    ],
)
def test_devices_by_many_names(written, memory, name):
    assert device_name(record(gpu=written, gpu_mem_gb=memory)) == name


@pytest.mark.parametrize("written", ["TPU v5p", "L40", "", "H200 NVL", "MI300A", "Ascend 910B", "A100 + H100"])
def test_devices_without_a_profile_are_named(written):
    with pytest.raises(UnusableRecord) as why:
        device_name(record(gpu=written))
    assert why.value.reason in ("no profile of the device", "several kinds of device")


def test_the_board_says_its_memory():
    assert stated_memory_gb(record(gpu="H100 94GB")) == 94
    assert stated_memory_gb(record(gpu="H100 94GB", gpu_mem_gb="96")) == 96
    assert stated_memory_gb(record(gpu="A100 80GB", gpu_mem_gb="40 GB")) == 40
    assert stated_memory_gb(record()) is None


@pytest.mark.parametrize(
    ("text", "gigabytes"),
    [
        ("NVLink/NVSwitch; 8x200Gbps HDR IB per node", 25),
        ("4 x 100Gb RoCE", 6.25),
        ("NVLink; RDMA 400 Gb/s per GPU", 50),
        ("NVLink 4; IB 8x50 GB/s", 50),
        ("NVLink; 400Gbps InfiniBand", 6.25),
        ("8 x 400Gb/s (one per GPU)", 50),
        ("3.2 Tbps EFA", 50),
        ("25 GB/s per GPU", 25),
        ("NVLink intra, InfiniBand inter", None),
        ("NVLink 900 GB/s", None),
        ("", None),
    ],
)
def test_the_network_of_one_rank_in_eight(text, gigabytes):
    assert network_gb_per_s_per_rank(text, 8) == gigabytes


def test_a_rack_is_one_domain_whatever_its_trays():
    assert (
        stated_network(record(gpu="GB200", gpus_per_node="4", interconnect="4x400 Gb/s"), "gb200").ranks_per_node == 72
    )
    assert stated_network(record(gpu="GB200", interconnect="4x400 Gb/s"), "gb200").between_gb_per_s == 50
    assert stated_network(record(gpu="GB200 NVL36"), "gb200").ranks_per_node == 36
    assert stated_network(record(gpus_per_node="4"), "v100-32gb").ranks_per_node == 4
    assert stated_network(record(), "h100-80gb").ranks_per_node == 8


@pytest.mark.parametrize(
    ("written", "name"),
    [
        ("BF16", "bf16"), ("None (bfloat16)", "bf16"), ("bf16+float8", "fp8"), ("FP8 current scaling", "fp8"),
        ("MXFP8", "fp8"), ("fp16", "fp16"), ("mixed", "bf16"), ("float32", "float32"),
        ("bf16+fp8(hybrid,tensorwise)", "fp8"),
    ],
)  # fmt: skip
def test_precisions_by_many_names(written, name):
    assert matmul_precision(record(precision=written), "h100-80gb") == (name, False)


def test_precision_unsaid_or_unknown():
    assert matmul_precision(record(precision=""), "h100-80gb") == ("bf16", True)
    assert matmul_precision(record(precision=""), "v100-32gb") == ("fp16", True)
    for text, device in (
        ("NVFP4", "h100-80gb"),
        ("FP8", "a100-80gb"),
        ("MXFP4", "b200"),
        ("TF32", "b200"),
        ("posit", "b200"),
    ):
        with pytest.raises(UnusableRecord, match="no model of the precision"):
            matmul_precision(record(precision=text), device)
    assert matmul_precision(record(precision="NVFP4"), "b200") == ("fp4", False)


@pytest.mark.parametrize(
    ("framework", "dated", "name"),
    [
        ("Megatron-LM", "2024", "megatron"),
        ("Megatron-LM", "arXiv 2205.05198", "megatron-2021"),
        ("NeMo/Megatron (DGXC recipe)", "", "nemo"),
        ("Megatron-Bridge", "", "nemo"),
        ("torchtitan", "", "torchtitan"),
        ("InternEvo", "", "internevo"),
        ("XTuner (DeepSpeed ZeRO-3 + sequence parallel)", "", "deepspeed"),
        ("DeepSpeed ZeRO-3", "2021-06-10", "deepspeed-2021"),
        ("DeepSpeed ZeRO-3", "2022-06", "deepspeed"),
        ("Megatron-DeepSpeed", "2022-03", "megatron-2021"),  # Megatron's layers and kernels
        ("fms-fsdp (PyTorch FSDP)", "", "fsdp"),
        ("Primus (Megatron, ROCm)", "", "primus"),
        ("something new", "", "generic"),
    ],
)
def test_software_by_the_framework(framework, dated, name):
    assert framework_name(record(framework=framework, date_or_version=dated)) == name
