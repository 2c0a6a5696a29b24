"""Which device a record ran on, how many share a node, and what the network between nodes carries."""

import re

from planner.published.case import Fabric
from planner.published.rows import Row, Unusable

# What a row's text about its GPU must contain, and the device's file; GB: of the kinds that come with several sizes.
DEVICES: tuple[tuple[str, dict[int, str]], ...] = (
    (r"\bgb300\b", {0: "gb300"}),
    (r"\bgb200\b", {0: "gb200"}),
    (r"\bb300\b", {0: "b300"}),
    (r"\bb200\b", {0: "b200"}),
    (r"\bh200\b", {0: "h200"}),
    (r"\bh800\b", {0: "h800"}),
    (r"\bh100\b", {0: "h100-80gb"}),
    (r"\bh20\b", {0: "h20"}),
    (r"\ba800\b", {0: "a800"}),
    (r"\ba100\b", {80: "a100-80gb", 40: "a100-40gb"}),
    (r"\bv100s?\b", {32: "v100-32gb", 16: "v100-16gb"}),
    (r"\bmi355x?\b", {0: "mi355x"}),
    (r"\bmi300x?\b", {0: "mi300x"}),
)
# Boards of these names that are other devices: on PCIe, at other clocks.
OTHERS = re.compile(r"\bpcie?\b|\bnvl\b(?!\s*\d)|\bh100[- ]?nvl\b|\bmi300a\b|\bmi300c\b")
PCIE_GB_PER_S = {"a100": 25.0, "v100": 12.0}  # one way of x16, as copies reach: Gen4 and Gen3
GIBIBYTE_SIZES = re.compile(r"(\d{1,5}(?:\.\d+)?)\s*gi?b?(?:yte)?s?\b")
RACKED = ("gb200", "gb300")
TRAY = 4  # GPUs of a node of these, which has their network adapters
RACK = 72  # GPUs that one NVLink domain joins in NVL72 (NVIDIA's data sheets)
USUAL_NODE = 8  # GPUs in a DGX or HGX of every other device here
RATE = re.compile(r"(?:(\d{1,2})\s*[x×*]\s*)?(\d{1,5}(?:\.\d+)?)\s*([GgTt])i?(?:([Bb])|\b)")
INSIDE = re.compile(r"nvlink|nvswitch|xgmi|infinity fabric|pcie?\b|intra")
OWN = re.compile(r"per[- ](?:gpu|rank|device|card)|each gpu|/gpu")


def device(record: Row) -> str:
    """The name of a file of profiles/devices. Raises Unusable."""
    text = spaced(f"{record.text('gpu')} {'' if record.text('gpu') else record.text('system')}")
    found = [(name, sizes) for name, sizes in DEVICES if re.search(name, text)]
    if len(found) != 1:
        reason = "several kinds of device" if found else "no profile of the device"
        raise Unusable(reason, record.text("gpu") or "not stated")
    name, sizes = found[0]
    if OTHERS.search(text) and not any(kind in name for kind in PCIE_GB_PER_S):
        raise Unusable("no profile of the device", record.text("gpu"))
    if 0 in sizes:
        return sizes[0]
    memory = memory_gb(record)
    return sizes[max(sizes) if memory is None else min(sizes, key=lambda size: abs(size - memory))]


def memory_gb(record: Row) -> float | None:
    """What the record says of its device's memory. Raises Unusable."""
    column = spaced(record.stated("gpu_mem_gb"))
    if column and not GIBIBYTE_SIZES.fullmatch(column):
        return record.positive("gpu_mem_gb")
    found = GIBIBYTE_SIZES.search(column or spaced(record.text("gpu")))
    return float(found[1]) or None if found else None


def fabric(record: Row, name: str) -> Fabric:
    """`name`: of the device. Raises Unusable."""
    pcie = re.search(r"\bpcie?\b", spaced(f"{record.text('gpu')} {record.text('system')}"))
    linked = re.search(r"nvlink|nvswitch", record.text("interconnect").lower())
    inside = next((rate for kind, rate in PCIE_GB_PER_S.items() if kind in name), None)
    tray = TRAY if name in RACKED else record.count("gpus_per_node") or USUAL_NODE
    between = between_gb_per_s(record.text("interconnect"), tray)
    return Fabric(node(record, name), inside if pcie and not linked else None, between)


def node(record: Row, name: str) -> int:
    """Ranks that the fast links join: a node's, or a rack's. Raises Unusable."""
    domain = re.search(r"nvl\s*(\d{1,3})\b", spaced(f"{record.text('gpu')} {record.text('system')}"))
    if domain and int(domain[1]):
        return int(domain[1])
    if name in RACKED:
        return RACK
    return record.count("gpus_per_node") or USUAL_NODE


def between_gb_per_s(text: str, ranks: int) -> float | None:
    """GB/s one way for each of a node's `ranks`, from words such as `8x200Gbps HDR IB per node`.

    What is said per GPU is a rank's own; every other figure is of the whole node, links times their rate. A small b is
    bits, as is a G alone. None where nothing is said.
    """
    for part in re.split(r"[;,|]", text):
        own = OWN.search(part.lower())
        match = None if INSIDE.search(part.lower()) and not own else RATE.search(part)
        if not match:
            continue
        links, rate = int(match[1] or 1), float(match[2]) * (1000 if match[3] in "Tt" else 1)
        of_node = rate * links if match[4] == "B" else rate * links / 8
        shared = ranks if not own or links == ranks else 1
        return of_node / shared or None
    return None


def spaced(text: str) -> str:
    """In lower case, words apart where a dash, an underscore, a slash or a count joins them."""
    return re.sub(r"(\d+)\s*[x×]\s*(?=[a-z])", r"\1x ", re.sub(r"[-_/()\s]+", " ", text.lower()))
