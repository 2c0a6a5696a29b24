"""Reads TorchRec's `EmbeddingBagConfig`s as tables: as a list of their fields in JSON or YAML, as `dataclasses.asdict`
has them, or as the literal calls of a Python file, of which nothing is executed.

A config does not say how many rows a sample reads, nor the optimizer: `pooling` is 1 for each of its features. Columns
as DLRM has them, `num_embeddings: […], embedding_dim: 128, multi_hot_sizes: […]`, say how many.
"""

import ast
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from planner import files
from planner.errors import InputError
from planner.specs.tables.read_tables import TableFile, add_table
from planner.specs.tables.table import Table

CALLS = ("EmbeddingBagConfig", "EmbeddingConfig")
READ = ("num_embeddings", "embedding_dim", "name", "data_type", "feature_names")  # in the order of its arguments
DTYPES = re.compile(r"\b(FP32|FP16|BF16|INT8)\b")
EXAMPLE = "num_embeddings: 1000000, embedding_dim: 128, name: users"


class Config(NamedTuple):
    """The fields of a config, and where they stand."""

    fields: Mapping[str, Any]
    where: str


def read_configs(path: Path) -> TableFile:
    """The tables of a file of configs. Raises InputError."""
    found: dict[str, Table] = {}
    configs = python_configs(path) if path.suffix == ".py" else listed_configs(path)
    for number, config in enumerate(configs):
        fields, where = config
        for name in ("num_embeddings", "embedding_dim"):
            if name not in fields:
                raise InputError(f"there is no `{name}`", where=where, fix=f"such as {EXAMPLE}")
        told = DTYPES.search(str(fields.get("data_type", "FP32")))
        if told is None:
            what = f"tables of {fields['data_type']} are not known"
            raise InputError(what, where=where, fix="FP32, FP16, BF16 or INT8")
        features = fields.get("feature_names") or [""]
        pooling = fields.get("multi_hot_size", len(features) if isinstance(features, list) else 1)
        own = {"rows": fields["num_embeddings"], "dim": fields["embedding_dim"], "pooling": pooling}
        add_table(found, str(fields.get("name") or f"t{number}"), own | {"dtype": told[0].lower()}, where)
    if not found:
        raise InputError("the file has no configs", where=str(path), fix=f"a list of {{{EXAMPLE}}}")
    source = f"configs of TorchRec in {path.name}; rows that a sample reads and the optimizer are not in these"
    return TableFile(format=TableFile.FORMAT, name=path.stem, source=source, tables=found)


def listed_configs(path: Path) -> Iterator[Config]:
    """The configs of a list, or of columns, each with its place. Raises InputError."""
    data, places = files.load_yaml(files.read_text(path), str(path))
    if isinstance(data, dict) and isinstance(data.get("num_embeddings"), list):
        columns = {name: data.get(name) for name in ("num_embeddings", "embedding_dim", "multi_hot_sizes")}
        count = len(data["num_embeddings"])
        wrong = [name for name, values in columns.items() if isinstance(values, list) and len(values) != count]
        if wrong:
            fix = "a value for each table"
            raise InputError(f"`{wrong[0]}` is not of {count} tables", where=f"{path} ({wrong[0]})", fix=fix)
        for at in range(count):
            row = {name: values[at] if isinstance(values, list) else values for name, values in columns.items()}
            row["multi_hot_size"] = row.pop("multi_hot_sizes")
            yield Config({name: value for name, value in row.items() if value is not None}, f"{path} ([{at}])")
        return
    if not isinstance(data, list):
        raise InputError("this is no list of configs", where=f"{path}:1:1", fix=f"a list of {{{EXAMPLE}}}")
    for at, each in enumerate(data):
        line, column = places.get((at,), (1, 1))
        where = f"{path}:{line}:{column} ([{at}])"
        if not isinstance(each, dict):
            raise InputError("this is no config", where=where, fix=f"a mapping as {{{EXAMPLE}}}")
        yield Config(each, where)


def python_configs(path: Path) -> Iterator[Config]:
    """The configs that a Python file makes by literal values, each with its place. Raises InputError."""
    try:
        tree = ast.parse(files.read_text(path))
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        line = getattr(error, "lineno", None) or 1
        raise InputError("this is not Python", where=f"{path}:{line}", fix="fix the syntax there") from error
    for call in ast.walk(tree):
        name = getattr(call.func, "attr", getattr(call.func, "id", "")) if isinstance(call, ast.Call) else ""
        if isinstance(call, ast.Call) and name in CALLS:
            given = [*zip(READ, call.args, strict=False), *((each.arg, each.value) for each in call.keywords)]
            fields = {key: literal(value, f"{path}:{value.lineno} ({key})", key) for key, value in given if key in READ}
            yield Config(fields, f"{path}:{call.lineno}")


def literal(value: ast.expr, where: str, name: str) -> Any:
    """A literal value; of `DataType.FP16` its last word. Raises InputError where it is computed."""
    if isinstance(value, ast.Attribute):
        return value.attr
    try:
        return ast.literal_eval(value)
    except (ValueError, TypeError, RecursionError, MemoryError) as error:
        fix = "write json.dumps([dataclasses.asdict(config) …], default=str) to a file, and import that"
        raise InputError(f"`{name}` is computed, and nothing is executed", where=where, fix=fix) from error
