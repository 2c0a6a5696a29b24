"""Schemas say of each key what the comment beside its field says, and offer every word that may stand there."""

import pytest

from planner.files.format_schema import field_comments, structs_of
from planner.plan.formats import FORMATS, schema_of_format
from planner.specs.hardware.cluster import Cluster, Level
from planner.specs.hardware.node_cluster import NodeCluster
from planner.specs.hardware.pool import Pool
from planner.specs.job import Job, PerBatch
from planner.specs.layers.decoder import Decoder
from planner.specs.workload.length_sources import Workload
from planner.workflows.editor_schemas import schema_for_editor


def test_comments_beside_above_and_within_a_field():
    assert field_comments(Level)["gb_per_s"] == "in one direction, per rank"
    assert field_comments(Workload)["module"].startswith("whose items the samples are")
    assert field_comments(PerBatch)["deadline_ms"].startswith("of planning a batch, after which")
    assert field_comments(Decoder)
    assert all("\n" not in text and not text.startswith("#") for text in field_comments(Job).values())


def test_structs_are_found_in_the_order_of_keys():
    assert structs_of((Cluster,))[0] is Cluster and Level in structs_of((Cluster,))
    names = [struct.__name__ for struct in structs_of((Job,))]
    assert names[0] == "Job" and {"Workload", "FixedLength", "Parallelism", "Limits", "PerBatch"} <= {*names}


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.every(3)
def test_a_schema_describes_each_struct_and_each_commented_key(name):
    schema = schema_of_format(name)
    for struct in structs_of(FORMATS[name]):
        entry = schema["$defs"][struct.__name__]
        for key, text in field_comments(struct).items():
            assert text in entry["properties"][key]["description"]


def test_words_are_offered():
    schema = schema_for_editor("job")
    job = schema["$defs"]["Job"]["properties"]
    assert job["format"] == {"enum": ["planner.job/1"]}
    assert "best" in job["strategy"]["examples"] and "dollars" in job["objective"]["examples"]
    assert job["sync"]["enum"] == ["micro_batch", "step"]
    assert "llama-3-8b" in job["model"]["examples"] and "h100x64" in job["cluster"]["examples"]
    assert "wikipedia" in schema["$defs"]["Distribution"]["properties"]["name"]["examples"]


def test_a_cluster_has_three_forms():
    schema = schema_of_format("cluster")
    assert {*schema["$defs"]} >= {"Cluster", "NodeCluster", "Pool"} and len(schema["anyOf"]) == 3
    assert FORMATS["cluster"] == (Cluster, NodeCluster, Pool)
