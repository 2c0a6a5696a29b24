"""Shipped devices: every figure is from somewhere, none contradicts another, and none the public tables of facts."""

import csv
import json
import re
from pathlib import Path

import pytest

from planner import files
from planner.specs.hardware.profile import Profile
from planner.specs.library import read_named, shipped_names

ROOT = Path(__file__).parents[3]
DOCS = (ROOT / "docs/devices.md").read_text(encoding="utf-8")
DEVICES = shipped_names(Profile)
MEASURED = ("flexsp-a100-40gb", "measured-h200")  # devices as somebody measured them, with another file's facts
GPUS = [name for name in DEVICES if name not in ("cpu", *MEASURED)]
WIDER = ("fp8", "bf16", "fp16", "float32", "float64")  # a wider dtype is never the faster one
COEFFICIENTS = ("gemm", "attention", "grouped_share", "memory_share", "launch_us")
AWS = {  # the machine whose price is divided by its devices
    "a100-40gb": "p4d.24xlarge",
    "a100-80gb": "p4de.24xlarge",
    "b200": "p6-b200.48xlarge",
    "b300": "p6-b300.48xlarge",
    "h100-80gb": "p5.48xlarge",
    "h200": "p5en.48xlarge",
    "l40s": "g6e.48xlarge",
    "v100-32gb": "p3dn.24xlarge",
}
AZURE = {  # and its region and number of devices
    "gb200": ("Standard_ND128isr_NDR_GB200_v6", "eastus", 4),
    "mi300x": ("Standard_ND96isr_MI300X_v5", "eastus2", 8),
}
SYSTEMS = {  # names in aiconfigurator's table of systems
    "a100-80gb": "a100_sxm",
    "b200": "b200_sxm",
    "b300": "b300_sxm",
    "gb200": "gb200",
    "gb300": "gb300",
    "h100-80gb": "h100_sxm",
    "h200": "h200_sxm",
}


def shipped(name: str) -> Profile:
    return read_named(name, Profile)[0]


@pytest.fixture
def facts(shared: Path) -> Path:
    return shared / "data/gpuspecs"


@pytest.mark.parametrize("name", DEVICES)
def test_says_where_it_is_from_and_when(name: str) -> None:
    profile = shipped(name)
    assert profile.name == name
    assert profile.provenance.source and profile.provenance.date and profile.provenance.note


@pytest.mark.parametrize("name", DEVICES)
def test_a_price_has_its_day_and_none_has_none(name: str) -> None:
    device = shipped(name).device
    assert (device.usd_per_hour is None) == (device.price_date == "")
    assert not device.price_date or re.fullmatch(r"20\d\d-\d\d-\d\d", device.price_date)


@pytest.mark.parametrize("name", GPUS)
def test_what_a_gpu_lacks_is_said(name: str) -> None:
    profile = shipped(name)
    note = profile.provenance.note
    assert "Price: " in note and ("Price: none" in note) == (profile.device.usd_per_hour is None)
    assert ("no rates" in note.lower()) == (profile.rates is None)
    assert "link_gb_per_s: " in note and "adapter_gb_per_s: " in note


@pytest.mark.parametrize("name", GPUS)
def test_what_is_nearer_is_faster(name: str) -> None:
    """Memory beats the links of a node, these the adapters and the way to the host; narrow dtypes beat wide ones."""
    device = shipped(name).device
    assert device.link_gb_per_s is not None and device.adapter_gb_per_s is not None
    assert device.memory_gb_per_s > device.link_gb_per_s > device.adapter_gb_per_s > 0
    assert device.host_gb_per_s is None or device.host_gb_per_s < device.link_gb_per_s
    peaks = [device.tflops[dtype] for dtype in WIDER if dtype in device.tflops]
    assert peaks == sorted(peaks, reverse=True)
    assert device.reserved_gib < device.memory_gib / 10


def test_the_cpu_has_neither_links_nor_adapters() -> None:
    device = shipped("cpu").device
    assert device.link_gb_per_s is None and device.adapter_gb_per_s is None


@pytest.mark.parametrize(("name", "base"), [("h800", "h100-80gb"), ("a800", "a100-80gb"), ("b300", "b200")])
def test_a_chip_has_the_rates_of_the_other_board_with_it(name: str, base: str) -> None:
    """But for its links, which are cut or wider; and only the chip itself has the spread of who was timed."""
    mine, other = shipped(name).rates, shipped(base).rates
    assert mine is not None and other is not None
    for field in COEFFICIENTS:
        assert getattr(mine, field) == getattr(other, field), f"take {field} of {name} over from {base} again"
    assert mine.link_share is None and mine.adapter_share is None
    assert mine.spread >= (0.2 if name == "b300" else other.spread)
    assert all(f"taken over from {base}" in entry.sources for entry in mine.fitted.values())


def test_the_template_in_the_docs_is_a_device() -> None:
    (block,) = re.findall(r"```yaml\n(.*?)```", DOCS, re.DOTALL)
    profile = files.parse(block, Profile, "docs/devices.md")
    assert profile.device.usd_per_hour and profile.device.price_date and profile.provenance.source
    assert profile.device == shipped("h100-80gb").device


def test_the_docs_say_what_every_optional_figure_is() -> None:
    for field in Profile.__struct_fields__[4:] + type(shipped("cpu").device).__struct_fields__[1:]:
        assert f"`{field}`" in DOCS, f"docs/devices.md does not tell of {field}"
    assert len(DOCS.splitlines()) <= 80


def test_prices_are_a_devices_part_of_the_listed_machine(facts: Path) -> None:
    with (facts / "aws_gpu_instance_prices.csv").open(encoding="utf-8") as text:
        rows = {row["instance"]: row for row in csv.DictReader(text)}
    with (facts / "azure_N_series_prices.csv").open(encoding="utf-8") as text:
        azure = {(row["sku"], row["region"]): float(row["usd_per_hour"]) for row in csv.DictReader(text)}
    machines = {name: rows[instance] for name, instance in AWS.items()}
    listed = {name: float(row["usd_per_hour"]) / int(row["accelerators"]) for name, row in machines.items()}
    listed |= {name: azure[sku, region] / count for name, (sku, region, count) in AZURE.items()}
    assert listed.keys() == {name for name in GPUS if shipped(name).device.usd_per_hour is not None}
    for name, usd in listed.items():
        assert shipped(name).device.usd_per_hour == pytest.approx(usd, rel=1e-6)


@pytest.mark.parametrize("name", SYSTEMS)
def test_facts_are_those_of_a_public_table(facts: Path, name: str) -> None:
    """Memory is less by what a driver keeps, at most 2 %; aiconfigurator counts NVLink one way, as is done here."""
    device = shipped(name).device
    system = json.loads((facts / "aiconfigurator_systems.json").read_text(encoding="utf-8"))[SYSTEMS[name]]
    gpu = system["gpu"]
    assert device.tflops["bf16"] * 1e12 == pytest.approx(gpu["bfloat16_tc_flops"], rel=0.001)
    assert device.memory_gb_per_s * 1e9 == pytest.approx(gpu["mem_bw"], rel=0.01)
    assert 0.98 < device.memory_gib * 2**30 / gpu["mem_capacity"] <= 1
    assert device.link_gb_per_s == system["node"]["intra_node_bw"] / 1e9
    if "fp8" in device.tflops:
        assert device.tflops["fp8"] * 1e12 == pytest.approx(gpu["fp8_tc_flops"], rel=0.001)


@pytest.mark.parametrize(("name", "system"), [("v100-16gb", "v100-sxm-16gb"), ("v100-32gb", "v100-sxm-32gb")])
def test_facts_of_v100_are_those_of_a_public_table(facts: Path, name: str, system: str) -> None:
    device = shipped(name).device
    row = json.loads((facts / "llm_analysis_gpus.json").read_text(encoding="utf-8"))[system]
    assert device.tflops["fp16"] == row["peak_fp16_TFLOPS"] and "bf16" not in device.tflops
    assert device.memory_gb_per_s == row["hbm_bandwidth_in_GB_per_sec"]
    assert device.link_gb_per_s == row["intra_node_bandwidth_in_GB_per_sec"]
