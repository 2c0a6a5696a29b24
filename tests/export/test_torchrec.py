"""A plan's tables for TorchRec: every element of every table has one rank of the group, or all."""

import json
import re
import sys
from pathlib import Path

import pytest

from planner import pipeline
from planner.errors import InputError
from planner.export import export_plan, torchrec_seconds
from tests.sharded_tables import table_job

CSV = "name,rows,dim,pooling\nuser,4000001,128,2\nitem,9000000,256,30\ntag,20000,32,5\nhuge,90000000,128,9\n"


def test_shards_cover_each_table_once(tmp_path: Path):
    plan = pipeline.solve(str(table_job(tmp_path, CSV))).plan
    text = export_plan(plan, "torchrec").text
    compile(text, "tables.py", "exec")
    found = re.search(r'json.loads\("""\n(.*?)\n"""\)', text, re.DOTALL)
    assert found
    tables = json.loads(found[1])
    assert f"SHARDING_GROUP_SIZE = {plan.size}" in text
    for name, table in plan.uses.tables.items():
        shards = tables[name]["shards"]
        if shards:
            assert sum(rows * columns for _, (rows, columns), _ in shards) == table.rows * table.dim
            assert len({tuple(offset) for offset, *_ in shards}) == len(shards)


@pytest.mark.slow
def test_copies_apart_are_refused_and_so_are_plans_without_tables(tmp_path: Path):
    apart = pipeline.solve(str(table_job(tmp_path, CSV, ", groups: 2, replicas: across"))).plan
    with pytest.raises(InputError, match="neighbouring"):
        export_plan(apart, "torchrec")
    with pytest.raises(InputError, match="no embedding tables"):
        export_plan(pipeline.read_plan("tests/golden/by_hand/mixed-groups/plan.yaml"), "torchrec")


def test_prices_of_torchrec_are_asked_of_a_python_that_has_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Elsewhere than in the benchmark `sharded-tables` there is none."""
    plan = pipeline.solve(str(table_job(tmp_path, CSV))).plan
    monkeypatch.delenv("TORCHREC_PYTHON", raising=False)
    with pytest.raises(InputError, match="TorchRec is not installed"):
        torchrec_seconds(plan)
    monkeypatch.setenv("TORCHREC_PYTHON", sys.executable)
    with pytest.raises(InputError, match="estimator ended: ModuleNotFoundError"):
        torchrec_seconds(plan)
    with pytest.raises(InputError, match="no embedding tables"):
        torchrec_seconds(pipeline.read_plan("tests/golden/by_hand/mixed-groups/plan.yaml"))
