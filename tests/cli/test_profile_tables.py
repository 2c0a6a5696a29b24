"""`planner profile` on screen: every term with its unit, nothing that is nothing, no line broken at 80 columns."""

import io
import re
from pathlib import Path

from rich.console import Console

from planner import files
from planner.cli.views.profile_tables import profile_tables, terms
from planner.specs.hardware.profile import PassFit, Profile

PROFILE = """
format: planner.profile/1
name: cpu
device: {kind: cpu, memory_gib: 2.0, tflops: {float32: 0.05}, memory_gb_per_s: 8.0}
provenance: {source: measured by planner profile, machine: here}
modules:
  tiny-decoder/llm:
    source: fitted
    spread: 0.1917
    layer:
      forward: {ms_per_token2: 7.707e-06, ms_per_token: 0.008077, ms: 0.7793}
      backward: {ms_per_token2: 2.137e-05, ms_per_token: 0.0143, ms: 1.006}
      activation_kib_per_token: 11.04
      holdout_error: 0.08665
    recomputing:
      full:
        forward: {ms_per_token: 0.00927, ms: 1.085}
        backward: {ms_per_token2: 2.874e-05, ms_per_token: 0.02433, ms: 1.904}
        activation_kib_per_token: 0.5
    ends: {forward: {ms_per_token: 0.01128, ms: 0.912}, backward: {ms_per_token: 0.02086}}
    fsdp:
      held: {layer: {forward_ms: 0.2, backward_ms: 0.4}, ends: {forward_ms: 0.6}}
      resharded: {layer: {forward_ms: 0.3, backward_ms: 0.5}, ends: {backward_ms: 0.7}}
    update_ns_per_parameter: 17.41
collectives:
  all_to_all: {source: fitted, spread: 0.1643, points: [{ranks: 2, gb_per_s: 3.451, latency_us: 3158.0}]}
"""


def shown(text):
    out = Console(width=80, color_system=None, file=io.StringIO(), highlight=False)
    for each in profile_tables(files.parse(text, Profile, "p.yaml"), Path("p.yaml")):
        out.print(each)
    lines = out.file.getvalue().splitlines()
    assert all(len(line) <= 80 for line in lines)
    return {cells[0]: cells[1:] for cells in (re.split(r"\s{2,}", line.strip()) for line in lines)}


def test_every_number_is_in_the_column_of_its_unit():
    rows = shown(PROFILE)
    assert rows["pass"] == ["ms", "µs·Σs", "ns·Σs²", "spread", "held out"]
    assert rows["layer forward"] == ["0.779", "8.077", "7.707", "19.2 %", "8.7 %"]
    assert rows["layer backward, recompute full"] == ["1.904", "24.330", "28.740", "19.2 %"]
    assert rows["embedding, head forward"] == ["0.912", "11.280", "19.2 %"]  # attention is in layers alone
    assert rows["layer, gathered once"] == ["0.200", "0.400"] and rows["embedding, head, gathered once"] == [
        "0.600",
        "0.000",
    ]
    assert rows["layer, gathered in each pass"] == ["0.300", "0.500"]
    assert (rows["everything"], rows["recompute full"]) == (["11.04"], ["0.50"])
    assert rows["all_to_all"] == ["2", "3158", "3.45", "16.4 %"]
    assert "update: 17.41 ns per parameter" in rows


def test_what_was_not_measured_has_no_table():
    rows = shown(re.sub(r"    fsdp:\n.*\n.*\n", "", PROFILE).split("collectives:")[0])
    assert "FSDP2 adds to a pass" not in rows and "collective" not in rows and "layer forward" in rows


def test_terms_that_round_to_nothing_are_left_out():
    assert terms(PassFit(ms=1.0, ms_per_token=4e-7)) == ("1.000", "", "")
