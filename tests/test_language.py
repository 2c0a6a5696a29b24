"""One term for each concept (docs/concepts.md): words that were retired do not come back, and places it names exist."""

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from tests.sources import DOCUMENTS, HOME, SOURCES, named, nodes

# Where a row is a line of a table: of a CSV file, of a screen, of a page.
TABLES = (
    "calibrate/curve_fit.py",
    "calibrate/device_rates_fit.py",
    "calibrate/fit_files.py",
    "calibrate/kernel_fits.py",
    "calibrate/kernel_tables.py",
    "calibrate/trace_fit.py",
    "cli/verbs/measurements.py",  # the option --rows
    "cli/views/calibration_tables.py",
    "cli/views/ledger_tables.py",
    "cli/views/measured_difference.py",
    "cli/views/static_tables.py",
    "cli/views/demo_screen.py",
    "cli/views/loader_tables.py",
    "cli/views/own_run_tables.py",
    "cli/views/settling_tables.py",
    "cli/views/plain_table.py",
    "cli/views/beside_plan.py",
    "cli/views/plan_tables.py",
    "cli/views/pool_tables.py",
    "cli/views/prediction_tables.py",
    "cli/views/profile_tables.py",
    "cli/views/replay_tables.py",
    "cli/views/run_tables.py",
    "cli/views/schedule_tables.py",
    "cli/views/serving_tables.py",
    "costs/serving/",
    "specs/workload/requests/",
    "cli/views/why_tables.py",
    "report/comparison.py",
    "report/ledger_page.py",
    "report/micro_batch_section.py",
    "report/plan_page.py",
    "report/runs_page.py",
    "report/sources_section.py",
    "report/tags.py",
    "report/time_and_memory.py",
    "report/timeline_section.py",
    "report/why_section.py",
    "specs/hardware/device_rates.py",  # the key `rows` of a fit: of its table
    "specs/workload/samples.py",
    "specs/workload/stream_sources.py",
    "targets/",  # of the table of a program: a field and its arguments
)
# Where it is a vector of an embedding table, or a line of what is printed of it.
EMBEDDINGS = (
    "cli/views/embedding_tables.py",
    "costs/tables/",
    "export/torchrec",
    "plan/embeddings.py",
    "specs/tables/",
)
# Where a row is a line of a matrix or tensor, whose first dimension is mostly tokens.
TENSORS = (
    "follow.py",
    "launch/communication/expert_dispatch.py",
    "launch/communication/ragged_collectives.py",
    "launch/communication/tensor_collectives.py",
    "models/batch.py",
    "models/embedding_shard.py",
    "models/inputs/click_source.py",
    "models/inputs/training_items.py",
    "models/kernels/",
    "models/layers/",
    "models/networks/",
    "models/tensor_parallel.py",
    "plan/tokens/",
    "runtime/exchange/contrastive_exchange.py",
    "runtime/exchange/edge_exchange.py",
    "runtime/exchange/feature_parts.py",
    "runtime/state/kept_features.py",
    "runtime/exchange/micro_batch_in_flight.py",
    "runtime/parity/parity_reference.py",
    "runtime/parity/table_reference.py",
    "runtime/state/full_tensors.py",
    "runtime/state/rank_tables.py",
)
# Where it is a constraint of a linear program.
CONSTRAINTS = (
    "policies/fair.py",
    "policies/joint.py",
    "policies/numbering.py",
    "programs/",
    "scoring/bounds/exact_grouping.py",
    "strategies/sharded_tables/exact_",
)
# Where it is the vector of features of a node of a graph.
FEATURES = ("cli/views/graph_order_tables.py", "graphs/")
ROWS = (*TABLES, *EMBEDDINGS, *TENSORS, *CONSTRAINTS, *FEATURES)

# A retired word → what is said now, and files or folders below `planner/` where it means something else.
RETIRED = {
    "anyhow": ("lower bound", ()),
    "floor": ("lower bound", ()),  # math.floor and np.floor apart
    "instead": ("alternative", ()),
    "laid": ("placed, laid out", ()),
    "meet": ("synchronise", ()),
    "meeting": ("synchronised", ()),
    "meets": ("synchronises", ()),
    "pace": ("rate, critical, slack", ()),
    "paces": ("rates", ()),
    "parted": ("sharded", ()),
    "nobody": ("none, or who lacks it", ()),
    "remade": ("recomputed", ()),
    "row": ("micro-batch, sample, record", ROWS),
    "rows": ("micro-batches, samples, records", ROWS),
    "said": ("what it is: a heading, a sentence, an assumption", ()),
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
    r"goes on with",
    r"\btraits?\b",
    r"\banyhow\b",
    r"\bparted\b",
    r"\bremade\b",
    r"\bunlaid\b",
    r"ranks (that )?meet",
    r"[Aa]t the begin of",
    r"go unheard",
    r"that nobody",
    r"nothing hides",
    r"comes? out even",
    r"spread farthest",
    r"(file|plan|job) has it\.",
    r"none such",
)
ANY_PHRASE = re.compile("|".join(PHRASES))
NUMPY_AND_MATH = ("np", "math")  # whose `floor` is the function


@cache
def words_of(name: str) -> list[str]:
    return [word.lower() for word in re.split(r"_|(?<=[a-z0-9])(?=[A-Z])", name) if word]


@cache
def names_in(path: Path) -> tuple[tuple[int, str], ...]:
    """Identifiers, with their lines, those in f-strings too."""
    return tuple(
        (getattr(node, "lineno", 0), name)
        for node in nodes(path)
        for dotted in identifiers(node)
        for name in dotted.split(".")
    )


def identifiers(node: ast.AST) -> Iterator[str]:
    """Names that a node itself has, dotted ones of imports among them."""
    is_function = isinstance(node, ast.Attribute) and node.attr == "floor" and ast.unparse(node.value) in NUMPY_AND_MATH
    for field in ("id", "attr", "arg", "name", "asname", "module", "rest"):
        name = getattr(node, field, None)
        if isinstance(name, str) and not is_function:
            yield name


def test_names_use_no_retired_word():
    for path in SOURCES:
        here = str(path.relative_to(HOME / "planner"))
        for line, name in names_in(path):
            for word in words_of(name) if name not in KEYS else ():
                now, meant_elsewhere = RETIRED.get(word, ("", ()))
                assert not now or here.startswith(meant_elsewhere), f"{here}:{line}: `{name}`: say {now}"


def test_every_exception_is_needed():
    for prefix in ROWS:
        files = [path for path in SOURCES if str(path.relative_to(HOME / "planner")).startswith(prefix)]
        words = {word for path in files for _, name in names_in(path) if name not in KEYS for word in words_of(name)}
        assert words & {"row", "rows"}, prefix


def documented(path: Path) -> Iterator[tuple[int, str]]:
    """Docstrings of a module, its public classes and functions, and their public methods, with their lines."""
    for node in nodes(path):
        if isinstance(node, ast.Module):
            yield 1, ast.get_docstring(node) or ""
        elif isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) and not node.name.startswith("_"):
            yield node.lineno, ast.get_docstring(node) or ""


def test_docstrings_are_sentences():
    """They start with a capital letter, or with code or a formula; they end with a full stop."""
    for path in SOURCES:
        for line, text in documented(path):
            last = text.rpartition("\n")[2]
            where = f"{named(path)}:{line}"
            assert not text[:1].islower(), f"{where}: starts `{text[:30]}`"
            assert not text or last.endswith((".", ".)", ":")), f"{where}: ends `{last[-30:]}`"


def test_text_uses_no_retired_phrase():
    for path in [*SOURCES, *DOCUMENTS]:
        for number, line in enumerate(path.read_text().splitlines(), 1):
            retired = ANY_PHRASE.search(line)
            assert not retired, f"{named(path)}:{number}: {retired}"
