"""One term for each concept (docs/concepts.md): words that were retired do not come back, and places it names exist."""

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pytest

HOME = Path(__file__).parents[1]
SOURCES = sorted((HOME / "planner").rglob("*.py"))
DOCUMENTS = [HOME / "README.md", HOME / "CONTRIBUTING.md", *sorted((HOME / "docs").glob("*.md"))]

# Where a row is a line of a table: of a CSV file, of a screen, of a page.
TABLES = (
    "calibrate/curve_fit.py",
    "calibrate/device_rates_fit.py",
    "calibrate/fit_files.py",
    "calibrate/kernel_tables.py",
    "cli/verbs/ledger.py",  # the option --rows
    "cli/views/calibration_tables.py",
    "cli/views/ledger_tables.py",
    "cli/views/measured_difference.py",
    "cli/views/own_run_tables.py",
    "cli/views/plan_tables.py",
    "cli/views/prediction_tables.py",
    "cli/views/profile_tables.py",
    "cli/views/replay_tables.py",
    "cli/views/why_tables.py",
    "report/comparison.py",
    "report/difference_table.py",
    "report/ledger_page.py",
    "report/micro_batch_section.py",
    "report/plan_page.py",
    "report/rank_bars.py",
    "report/runs_page.py",
    "report/sources_section.py",
    "report/tags.py",
    "report/time_and_memory.py",
    "report/timeline_section.py",
    "report/why_section.py",
    "specs/hardware/device_rates.py",  # the key `rows` of a fit: of its table
    "specs/workload/samples.py",
    "specs/workload/stream_items.py",
)
# Where a row is a line of a matrix or tensor, whose first dimension is mostly tokens.
TENSORS = (
    "calibrate/memory_bandwidth_fit.py",
    "follow.py",
    "launch/communication/expert_dispatch.py",
    "launch/communication/ragged_collectives.py",
    "launch/communication/tensor_collectives.py",
    "models/batch.py",
    "models/inputs/training_items.py",
    "models/kernels/",
    "models/layers/",
    "models/networks/",
    "models/tensor_parallel.py",
    "plan/tokens/",
    "runtime/exchange/edge_exchange.py",
    "runtime/exchange/micro_batch_in_flight.py",
    "runtime/parity/parity_reference.py",
    "runtime/state/full_tensors.py",
)
# Where it is a constraint of a linear program.
CONSTRAINTS = ("programs/", "scoring/exact_grouping.py")
ROWS = (*TABLES, *TENSORS, *CONSTRAINTS)

# A retired word → what is said now, and files or folders below `planner/` where it means something else.
RETIRED = {
    "anyhow": ("lower bound", ()),
    "floor": ("lower bound", ()),  # math.floor and np.floor apart
    "instead": ("alternative", ()),
    "knob": ("coefficient", ()),
    "knobs": ("coefficients", ()),
    "laid": ("placed, laid out", ()),
    "meet": ("synchronise", ()),
    "meets": ("synchronises", ()),
    "pace": ("rate, critical, slack", ()),
    "paces": ("rates", ()),
    "parted": ("sharded", ()),
    "remade": ("recomputed", ()),
    "row": ("micro-batch, sample, record", ROWS),
    "rows": ("micro-batches, samples, records", ROWS),
    "traits": ("coefficients", ()),
    "unlaid": ("why it cannot be placed", ()),
    "unparted": ("unsharded", ()),
    "ways": ("degree, channels, alternatives", ()),
    "wire": ("link, network", ()),
    "wires": ("links, network", ()),
    "worth": ("score, objective, step time", ()),
}
# Keys of files and JSON answers, and what reads or writes them under the same name.
KEYS = {
    "batch_rows",  # of a job's workload: samples of a batch
    "first_row",  # of plan and step files, and the option --first-row: the first sample
    "rows_defaulted",  # of the ledger's answer: records
    "rows_skipped",
    "rows_used",
}
# In running text, where the words above may have their plain meaning.
PHRASES = (
    r"made again",
    r"computed again",
    r"ways not taken",
    r"pile[sd]? up",
    r"going on with it",
    r"\bknobs?\b",
    r"\btraits?\b",
    r"\banyhow\b",
    r"\bparted\b",
    r"\bremade\b",
    r"ranks (that )?meet",
    r"[Aa]t the begin of",
    r"go unheard",
)


def words_of(name: str) -> list[str]:
    return [word.lower() for word in re.split(r"_|(?<=[a-z0-9])(?=[A-Z])", name) if word]


def names_in(path: Path) -> Iterator[tuple[int, str]]:
    """Identifiers, with their lines."""
    for token in tokenize.generate_tokens(io.StringIO(path.read_text()).readline):
        if token.type == tokenize.NAME:
            yield token.start[0], token.string


@pytest.mark.parametrize("path", SOURCES, ids=lambda p: str(p.relative_to(HOME)))
def test_names_use_no_retired_word(path):
    here = str(path.relative_to(HOME / "planner"))
    for line, name in names_in(path):
        for word in words_of(name):
            said, meant_elsewhere = RETIRED.get(word, ("", ()))
            assert not said or here.startswith(meant_elsewhere), f"{here}:{line}: `{name}`: say {said}"


@pytest.mark.parametrize("path", [*SOURCES, *DOCUMENTS], ids=lambda p: str(p.relative_to(HOME)))
def test_text_uses_no_retired_phrase(path):
    for number, line in enumerate(path.read_text().splitlines(), 1):
        for phrase in PHRASES:
            assert not re.search(phrase, line), f"{path.relative_to(HOME)}:{number}: {phrase}"
