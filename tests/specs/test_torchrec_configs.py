"""TorchRec's configs as tables: the same however they are written, and nothing is executed."""

import json
import random
from pathlib import Path

import pytest

from planner.errors import InputError
from planner.specs.tables import Table, read_configs, read_tables
from tests.property.test_mutants import damaged
from tests.typed import typed

TABLES = {"user": Table(rows=1000, dim=64, pooling=2.0, dtype="fp16"), "item": Table(rows=20, dim=32)}
LISTED = [
    {"num_embeddings": 1000, "embedding_dim": 64, "name": "user", "feature_names": ["a", "b"], "pooling": "SUM",
     "data_type": "<DataType.FP16: 'FP16'>", "init_fn": "functools.partial(…)"},
    {"num_embeddings": 20, "embedding_dim": 32, "name": "item", "data_type": "FP32", "feature_names": ["c"]},
]  # fmt: skip
CALLED = """raise SystemExit("this is not executed")
user = EmbeddingBagConfig(1_000, 64, name="user", data_type=DataType.FP16, feature_names=["a", "b"], init_fn=init)
bags = EmbeddingBagCollection(tables=[user, torchrec.EmbeddingBagConfig(20, 32, "item")])
"""
COLUMNS = {"num_embeddings": [1000, 20], "embedding_dim": 64, "multi_hot_sizes": [3, 1]}


def written(folder: Path, name: str, text: str) -> Path:
    path = folder / name
    path.write_text(text)
    return path


def test_configs_are_the_same_tables_as_a_list_and_as_calls(tmp_path: Path):
    assert read_configs(written(tmp_path, "bags.json", json.dumps(LISTED))).tables == TABLES
    assert read_configs(written(tmp_path, "bags.py", CALLED)).tables == TABLES
    columns = read_configs(written(tmp_path, "columns.json", json.dumps(COLUMNS))).tables
    assert columns == {"t0": Table(rows=1000, dim=64, pooling=3), "t1": Table(rows=20, dim=64)}


def test_what_is_written_is_what_jobs_read(tmp_path: Path):
    written(tmp_path, "bags.py", CALLED)
    said = typed("planner import torchrec bags.py -o tables.yaml --json", tmp_path)
    assert said.code == 0 and json.loads(said.out)["tables"]["tables"]["item"]["rows"] == 20
    assert read_tables(tmp_path / "tables.yaml") == TABLES


@pytest.mark.parametrize(
    ("name", "text", "told", "line"),
    [
        ("a.py", "EmbeddingBagConfig(\n  num_embeddings=n)", "`num_embeddings` is computed", ":2"),
        ("a.py", "EmbeddingBagConfig(10, 4, 'a')\nEmbeddingBagConfig(10, 4, 'a')", "two tables are called `a`", ":2"),
        ("a.py", "x = (", "this is not Python", ":1"),
        ("a.py", "x = 1", "has no configs", "a.py"),
        ("a.json", '[{"num_embeddings": 10}]', "no `embedding_dim`", ":1:2"),
        ("a.json", '[{"num_embeddings": 10, "embedding_dim": 4, "data_type": "INT4"}]', "INT4 are not known", ":1:2"),
        ("a.json", '[{"num_embeddings": 0, "embedding_dim": 4}]', "rows is 0", ":1:2"),
        ("a.json", '[{"num_embeddings": 1, "embedding_dim": 4, "name": "a b"}]', "no name of a table", ":1:2"),
        ("a.json", '{"num_embeddings": [1, 2], "embedding_dim": [4]}', "is not of 2 tables", "embedding_dim"),
    ],
)
def test_errors_say_where(tmp_path: Path, name: str, text: str, told: str, line: str):
    with pytest.raises(InputError, match=told) as caught:
        read_configs(written(tmp_path, name, text))
    assert line in caught.value.where and caught.value.fix


def test_damaged_files_are_read_or_located(tmp_path: Path):
    chance = random.Random(5)
    for number in range(120):
        name, text = (("a.py", CALLED), ("a.json", json.dumps(LISTED)))[number % 2]
        path = tmp_path / name
        path.write_bytes(damaged(text, chance))
        try:
            assert read_configs(path).tables
        except InputError as error:
            assert error.where and error.fix
