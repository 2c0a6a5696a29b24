"""A plan's tables for TorchRec: every element of every table has one rank of the group, or all."""

import json
import re
from pathlib import Path

import pytest

from planner import pipeline
from planner.errors import InputError
from planner.export import export_plan
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


def test_copies_apart_are_refused_and_so_are_plans_without_tables(tmp_path: Path):
    apart = pipeline.solve(str(table_job(tmp_path, CSV, ", groups: 2, replicas: across"))).plan
    with pytest.raises(InputError, match="neighbouring"):
        export_plan(apart, "torchrec")
    with pytest.raises(InputError, match="no embedding tables"):
        export_plan(pipeline.read_plan("tests/golden/by_hand/mixed-groups/plan.yaml"), "torchrec")
