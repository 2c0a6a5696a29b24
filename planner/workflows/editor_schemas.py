"""JSON Schemas of file formats for editors, which complete the names of what is shipped."""

from typing import Any

from planner.costs import OBJECTIVES
from planner.plan.formats import schema_of_format
from planner.specs.framework.software import ANY, Software
from planner.specs.hardware.cluster import Cluster
from planner.specs.hardware.profile import Profile
from planner.specs.library import shipped_names
from planner.specs.model import Model
from planner.specs.workload.distributions import DISTRIBUTIONS
from planner.strategies import BEST, STRATEGIES


def schema_for_editor(name: str) -> dict[str, Any]:
    """The JSON Schema of a format, with the names that its keys may have as examples: paths are allowed beside them.

    Raises InputError for an unknown format.
    """
    schema = schema_of_format(name)
    for struct, keys in known_names().items():
        properties = schema["$defs"].get(struct, {}).get("properties", {})
        for key, names in keys.items():
            if key in properties:
                properties[key]["examples"] = names
    return schema


def known_names() -> dict[str, dict[str, list[str]]]:
    """Names by struct and key."""
    distributions = {"name": [*DISTRIBUTIONS]}
    return {
        "Job": {
            "model": shipped_names(Model),
            "cluster": shipped_names(Cluster),
            "software": [ANY, *shipped_names(Software)],
            "profile": ["auto", *shipped_names(Profile)],
            "strategy": [*STRATEGIES, BEST],
            "objective": [*OBJECTIVES],
        },
        "RankKind": {"kind": shipped_names(Profile)},
        "Distribution": distributions,
        "StreamDistribution": distributions,
    }
