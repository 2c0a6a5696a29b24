"""The file formats by name, and their JSON Schemas for editors."""

from typing import Any

from planner.errors import InputError
from planner.files import json_schema
from planner.plan.plan_file import Plan
from planner.plan.step_files import StepFile
from planner.specs.check_file import CheckFile
from planner.specs.cluster_jobs.actions_file import ActionsFile
from planner.specs.framework.software import Software
from planner.specs.hardware.cluster import Cluster
from planner.specs.hardware.node_cluster import NodeCluster
from planner.specs.hardware.pool import Pool
from planner.specs.hardware.profile import Profile
from planner.specs.job import Job
from planner.specs.loader import LoaderFile
from planner.specs.model import Model
from planner.specs.serving_actions import ServingActionsFile
from planner.specs.tables import TableFile

FORMATS: dict[str, tuple[type, ...]] = {  # and the forms of each
    "job": (Job,),
    "model": (Model,),
    "cluster": (Cluster, NodeCluster, Pool),
    "profile": (Profile,),
    "software": (Software,),
    "plan": (Plan,),
    "step": (StepFile,),
    "tables": (TableFile,),
    "loader": (LoaderFile,),
    "check": (CheckFile,),
    "actions": (ActionsFile, ServingActionsFile),
}


def schema_of_format(name: str) -> dict[str, Any]:
    """Return the JSON Schema of a format. Raises InputError for an unknown name."""
    if name not in FORMATS:
        raise InputError(f"no file format is called `{name}`", where="schema", fix=f"one of {', '.join(FORMATS)}")
    return json_schema(FORMATS[name])
