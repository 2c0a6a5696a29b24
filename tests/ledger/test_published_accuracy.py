"""A whole folder of published records: each is in the account once."""

import csv
from collections import Counter

import pytest

from planner.errors import InputError
from planner.ledger.accuracy import accuracy_of_folder
from tests.ledger.made_predictions import perfect

COLUMNS = {
    "row_id": "x-1",
    "source_id": "x",
    "framework": "megatron-lm",
    "family": "gpt",
    "model": "GPT-22B",
    "layers": "48",
    "hidden": "6144",
    "heads": "64",
    "vocab": "51200",
    "seq_len": "2048",
    "gpu": "A100",
    "gpu_mem_gb": "80",
    "n_gpus": "8",
    "precision": "bf16",
    "tp": "8",
    "pp": "1",
    "dp": "1",
    "recompute": "full",
    "mbs": "4",
    "gbs": "4",
    "group_id": "g",
    "status": "ok",
    "step_time_s": "1.42",
}


def write(folder, *rows):
    with (folder / "x.csv").open("w", newline="") as out:
        writer = csv.DictWriter(out, list(COLUMNS))
        writer.writeheader()
        writer.writerows({**COLUMNS, **record} for record in rows)


def test_rows_of_a_folder(tmp_path):
    """Of three lines one is predicted, one is no number, and the blank one is no record."""
    write(tmp_path, {}, {"row_id": "x-2", "step_time_s": "soon"}, dict.fromkeys(COLUMNS, ""))
    (tmp_path / "models.csv").write_text("name,layers\nGPT,1\n")
    found = accuracy_of_folder(tmp_path, (), perfect)
    assert [record.case.origin.record_id for record in found.records] == ["x-1"]
    assert found.records[0].seconds == 1.42
    assert found.overall.records_read == 2
    assert [one.origin.file for one in found.other_files] == ["models.csv"]
    assert [*found.sources] == ["x"]


def test_folders_that_are_refused(tmp_path):
    for make in (lambda: None, lambda: (tmp_path / "models.csv").write_text("name\nGPT\n"), lambda: write(tmp_path)):
        make()
        with pytest.raises(InputError):
            accuracy_of_folder(tmp_path, (), perfect)


@pytest.mark.soak
def test_every_shared_row_is_accounted_for(shared):
    folder = shared / "published"
    lines = Counter()
    for path in folder.glob("*.csv"):
        with path.open(newline="") as text:
            lines.update(
                record["source_id"] for record in csv.DictReader(text) if record.keys() >= {"row_id", "source_id"}
            )
    found = accuracy_of_folder(folder, (), perfect)
    assert {name: figures.records_read for name, figures in found.sources.items()} == lines
    assert found.overall.records_read == lines.total()
    assert found.overall.time_median_error == 0
