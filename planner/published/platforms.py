"""The platform of a published record: device, ranks of a node, network, framework, and precision."""

import re

from planner.costs import Precision
from planner.published.published_case import StatedNetwork
from planner.published.record_files import PublishedRecord, UnusableRecord
from planner.published.shipped_profiles import device_profile

PCIE, BRIDGED = r"\bpcie?\b", r"\bnvl\b(?!\s*\d+\b)"  # of boards; NVL72 is a rack
# Pattern of the record's GPU text, and the device profile by memory in GB (0: there is one size).
DEVICES: tuple[tuple[str, dict[int, str]], ...] = (
    (r"\bgb300\b", {0: "gb300"}),
    (r"\bgb200\b", {0: "gb200"}),
    (r"\bb300\b", {0: "b300"}),
    (r"\bb200\b", {0: "b200"}),
    (r"\bh200\b", {0: "h200"}),
    (r"\bh800\b", {0: "h800"}),
    (rf"\bh100\b(?!.*(?:\b500 ?w\b|{PCIE}|{BRIDGED}))", {0: "h100-80gb"}),
    (rf"\bh100\b(?=.*{PCIE})", {0: "pcie-h100-80gb"}),
    (rf"\bh100\b(?=.*{BRIDGED})", {0: "nvl-h100-94gb"}),
    (r"\bh100\b(?=.*\b500 ?w\b)", {0: "torchtitan-h100-500w"}),
    (r"\bh20\b", {0: "h20"}),
    (r"\ba800\b", {0: "a800"}),
    (r"\ba100\b", {80: "a100-80gb", 40: "a100-40gb"}),
    (r"\bv100s?\b", {32: "v100-32gb", 16: "v100-16gb"}),
    (r"\bl40s\b", {0: "l40s"}),
    (r"\ba30\b", {0: "a30"}),
    (r"\ba6000\b", {0: "a6000"}),
    (r"\brtx ?4090\b", {0: "rtx-4090"}),
    (r"\bmi325x?\b", {0: "mi325x"}),
    (r"\bmi355x?\b", {0: "mi355x"}),
    (r"\bmi300x?\b", {0: "mi300x"}),
)
# Boards with these names are other devices, on PCIe or at other clocks.
UNPROFILED_BOARDS = re.compile(rf"{PCIE}|{BRIDGED}|\bmi300a\b|\bmi300c\b")
PCIE_CARDS = ("pcie-h100-80gb", "nvl-h100-94gb", "l40s", "a30", "a6000", "rtx-4090")  # on PCIe as their profiles say
PCIE_GB_PER_S = {"a100": 25.0, "v100": 12.0}  # what copies reach in one direction of x16, Gen4 and Gen3
GIBIBYTE_SIZES = re.compile(r"(\d{1,5}(?:\.\d+)?)\s*gi?b?(?:yte)?s?\b")
RACK_DEVICES = ("gb200", "gb300")
RACK_NODE_GPUS = 4  # GPUs of a node (compute tray) in these racks, which has their network adapters
RACK_GPUS = 72  # GPUs that one NVLink domain joins in NVL72 (NVIDIA's data sheets)
USUAL_NODE_GPUS = 8  # GPUs in a DGX or HGX of every other device here
BANDWIDTH_PATTERN = re.compile(r"(?:(\d{1,2})\s*[x×*]\s*)?(\d{1,5}(?:\.\d+)?)\s*([GgTt])i?(?:([Bb])|\b)")
NODE_LINK_PATTERN = re.compile(r"nvlink|nvswitch|xgmi|infinity fabric|pcie?\b|intra")
PER_GPU_PATTERN = re.compile(r"per[- ](?:gpu|rank|device|card)|each gpu|/gpu")
GENERIC_FRAMEWORK = "generic"  # what is common to all fitted frameworks
# Patterns of the record's framework column, the first match decides.
FRAMEWORK_PATTERNS = (
    (r"primus", "primus"),
    (r"torch ?titan", "torchtitan"),
    (r"intern ?evo|internlm", "internevo"),
    (r"nemo|megatron[- ]?bridge|dgxc|mbridge|maxtext[- ]nemo", "nemo"),
    (r"megatron[- ]?deepspeed|deepspeed|zero[- ]?[123]\b|colossal|xtuner|llama[- ]?factory|axolotl", "deepspeed"),
    (r"fsdp|fms|foundation[- ]model|llm[- ]?foundry|mosaic|composer|lit[- ]?gpt|accelerate|torchtune|veomni", "fsdp"),
    (r"megatron|mcore|pai[- ]|alpa\b|galvatron", "megatron"),
)
# Before these dates Megatron-LM had no flash attention: its use began in 2023 (release core_r0.2.0 and after).
BEFORE_FLASH = re.compile(r"\b(20(?:19|20|21|22))\b|arxiv[: ]*(?:19|20|21|22)\d\d\.")
MEGATRON_LAYERS = re.compile(r"megatron[-+ ]*deepspeed")
# ZeRO-3 gathers beside compute since DeepSpeed's pull request 1188, of autumn 2021.
BEFORE_PREFETCH = re.compile(r"\b(20(?:19|20|21))\b|arxiv[: ]*(?:19|20|21)\d\d\.")
# The first match decides; mixed precision is named by what its matrices are multiplied in.
SPELLINGS: tuple[tuple[str, Precision | None], ...] = (
    (r"mxfp4|int8|int4|fp6|tf32", None),
    (r"nvfp4|\bfp4\b", "fp4"),
    (r"fp8|float8|e4m3|e5m2", "fp8"),
    (r"bf16|bfloat16|bf-16", "bf16"),
    (r"fp16|float16|half|fp-16", "fp16"),
    (r"fp32|float32|single|full precision", "float32"),
    (r"mixed|amp|16.?bit", "bf16"),
)
NARROW = ("fp8", "fp4")  # no record of a device without such tensor cores multiplied in it
WITHOUT_BF16 = "v100"  # its tensor cores multiply fp16 only (NVIDIA V100 data sheet)


def device_name(record: PublishedRecord) -> str:
    """The name of the device's profile in profiles/devices. Raises UnusableRecord."""
    text = normalised_text(f"{record.text('gpu')} {'' if record.text('gpu') else record.text('system')}")
    found = [(name, sizes) for name, sizes in DEVICES if re.search(name, text)]
    if len(found) != 1:
        reason = "several kinds of device" if found else "no profile of the device"
        raise UnusableRecord(reason, record.text("gpu") or "not stated")
    name, sizes = found[0]
    profiled = any(kind in name for kind in PCIE_GB_PER_S) or sizes.get(0) in PCIE_CARDS
    if UNPROFILED_BOARDS.search(text) and not profiled:
        raise UnusableRecord("no profile of the device", record.text("gpu"))
    if 0 in sizes:
        return sizes[0]
    memory = stated_memory_gb(record)
    return sizes[max(sizes) if memory is None else min(sizes, key=lambda size: abs(size - memory))]


def stated_memory_gb(record: PublishedRecord) -> float | None:
    """The stated memory of the device in GB, None where it is blank. Raises UnusableRecord."""
    column = normalised_text(record.stated("gpu_mem_gb"))
    if column and not GIBIBYTE_SIZES.fullmatch(column):
        return record.positive("gpu_mem_gb")
    found = GIBIBYTE_SIZES.search(column or normalised_text(record.text("gpu")))
    return float(found[1]) or None if found else None


def stated_network(record: PublishedRecord, name: str) -> StatedNetwork:
    """The network of a record, whose device is `name`. Raises UnusableRecord."""
    pcie = re.search(r"\bpcie?\b", normalised_text(f"{record.text('gpu')} {record.text('system')}"))
    linked = re.search(r"nvlink|nvswitch", record.text("interconnect").lower())
    inside = next((rate for kind, rate in PCIE_GB_PER_S.items() if kind in name), None)
    tray = RACK_NODE_GPUS if name in RACK_DEVICES else record.count("gpus_per_node") or USUAL_NODE_GPUS
    between = network_gb_per_s_per_rank(record.text("interconnect"), tray)
    return StatedNetwork(node_ranks(record, name), inside if pcie and not linked else None, between)


def node_ranks(record: PublishedRecord, name: str) -> int:
    """Ranks of one NVLink domain: a node or a rack. Raises UnusableRecord."""
    domain = re.search(r"nvl\s*(\d{1,3})\b", normalised_text(f"{record.text('gpu')} {record.text('system')}"))
    if domain and int(domain[1]):
        return int(domain[1])
    if name in RACK_DEVICES:
        return RACK_GPUS
    return record.count("gpus_per_node") or USUAL_NODE_GPUS


def network_gb_per_s_per_rank(text: str, ranks_per_node: int) -> float | None:
    """GB/s in one direction for each of a node's `ranks_per_node`, from text such as `8x200Gbps HDR IB per node`.

    A figure per GPU is a rank's own; every other figure is of the whole node, links times their rate. A small b means
    bits, as does a G alone. None where the text states no rate.
    """
    for part in re.split(r"[;,|]", text):
        own = PER_GPU_PATTERN.search(part.lower())
        match = None if NODE_LINK_PATTERN.search(part.lower()) and not own else BANDWIDTH_PATTERN.search(part)
        if not match:
            continue
        links, rate = int(match[1] or 1), float(match[2]) * (1000 if match[3] in "Tt" else 1)
        of_node = rate * links if match[4] == "B" else rate * links / 8
        shared = ranks_per_node if not own or links == ranks_per_node else 1
        return of_node / shared or None
    return None


def normalised_text(text: str) -> str:
    """The text in lower case, its words separated where a dash, an underscore, a slash or a count joins them."""
    return re.sub(r"(\d+)\s*[x×]\s*(?=[a-z])", r"\1x ", re.sub(r"[-_/()\s]+", " ", text.lower()))


def framework_name(record: PublishedRecord) -> str:
    """The name of the framework in profiles/software; `generic` where none is recognised.

    Megatron of a record dated before 2023 is `megatron-2021`, with DeepSpeed's pipeline and optimizer too; DeepSpeed
    before 2022 is `deepspeed-2021`.
    """
    text = f"{record.text('framework')}".lower()
    name = next((name for words, name in FRAMEWORK_PATTERNS if re.search(words, text)), None)
    if name is None:
        name = next(
            (name for words, name in FRAMEWORK_PATTERNS if re.search(words, record.text("source_ref").lower())),
            GENERIC_FRAMEWORK,
        )
    dated = f"{record.text('date_or_version')} {record.text('source_ref')}".lower()
    if BEFORE_FLASH.search(dated) and (name == "megatron" or MEGATRON_LAYERS.search(text)):
        return "megatron-2021"
    return "deepspeed-2021" if name == "deepspeed" and BEFORE_PREFETCH.search(dated) else name


def matmul_precision(record: PublishedRecord, device: str) -> tuple[Precision, bool]:
    """The precision of matrix products, and whether it is assumed. Raises UnusableRecord."""
    text = record.stated("precision").lower()
    usual: Precision = "fp16" if device.startswith(WITHOUT_BF16) else "bf16"
    if not text:
        return usual, True
    for spelling, name in SPELLINGS:
        if re.search(spelling, text):
            if name is None or (name in NARROW and name not in device_profile(device).device.tflops):
                break
            return (usual if name == "bf16" else name), False
    raise UnusableRecord("no model of the precision", record.text("precision"))
