"""What a file format looks like: as JSON Schema for editors, and place by place for errors."""

from typing import Any

import msgspec

Schema = dict[str, Any]


def json_schema(kind: type, description: str) -> Schema:
    """The JSON Schema of a file format, for editors."""
    schema = msgspec.json.schema(kind, schema_hook=schema_of)
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "description": description, **schema}


def schema_of(kind: type) -> Schema:
    """msgspec's hook for JSON Schema: what a custom type looks like in a file."""
    return kind.schema()  # type: ignore[attr-defined, no-any-return]


def keys_at(kind: type, route: tuple[str | int, ...]) -> list[str]:
    """The keys that a mapping at `route` may have, where the format names them."""
    return sorted({key for part in parts_at(kind, route) for key in part.get("properties", {})})


def words_at(kind: type, route: tuple[str | int, ...]) -> list[str]:
    """The words of which one must stand at `route`, where the format lists them."""
    return sorted({str(word) for part in parts_at(kind, route) for word in part.get("enum", ())})


def parts_at(kind: type, route: tuple[str | int, ...]) -> list[Schema]:
    """Every alternative of the schema for what stands at `route`."""
    tops, named = msgspec.json.schema_components((kind,), schema_hook=schema_of)
    here = alternatives([*tops], named)
    for step in route:
        here = alternatives([child for part in here for child in children(part, step)], named)
    return here


def alternatives(parts: list[Schema], named: dict[str, Schema]) -> list[Schema]:
    """The parts, with references followed and choices laid open."""
    found: list[Schema] = []
    for part in parts:
        if "$ref" in part:
            found += alternatives([named[part["$ref"].rpartition("/")[2]]], named)
        elif "anyOf" in part:
            found += alternatives(part["anyOf"], named)
        else:
            found.append(part)
    return found


def children(part: Schema, step: str | int) -> list[Schema]:
    """What `part` says of its key or index `step`."""
    child = part.get("properties", {}).get(step) or part.get("additionalProperties") or part.get("items")
    return [child] if isinstance(child, dict) else []
