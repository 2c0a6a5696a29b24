"""Schemas of file formats: as JSON Schema for editors, and by key path for error messages."""

from typing import Any

import msgspec

Schema = dict[str, Any]


def json_schema(kind: type, description: str) -> Schema:
    """The JSON Schema of a file format, for editors."""
    schema = msgspec.json.schema(kind, schema_hook=schema_of)
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "description": description, **schema}


def schema_of(kind: type) -> Schema:
    """The hook of msgspec for JSON Schema: the schema of a custom type in a file."""
    return kind.schema()  # type: ignore[attr-defined, no-any-return]


def keys_at(kind: type, route: tuple[str | int, ...]) -> list[str]:
    """Keys that a mapping at `route` may have, where the format lists them."""
    return sorted({key for part in schemas_at(kind, route) for key in part.get("properties", {})})


def words_at(kind: type, route: tuple[str | int, ...]) -> list[str]:
    """Words of which one must be at `route`, where the format lists them."""
    return sorted({str(word) for part in schemas_at(kind, route) for word in part.get("enum", ())})


def schemas_at(kind: type, route: tuple[str | int, ...]) -> list[Schema]:
    """Every alternative in the schema for the value at `route`."""
    tops, named = msgspec.json.schema_components((kind,), schema_hook=schema_of)
    here = alternatives([*tops], named)
    for step in route:
        here = alternatives([child for part in here for child in child_schemas(part, step)], named)
    return here


def alternatives(parts: list[Schema], named: dict[str, Schema]) -> list[Schema]:
    """The schemas, with references and choices resolved."""
    resolved: list[Schema] = []
    for part in parts:
        if "$ref" in part:
            resolved += alternatives([named[part["$ref"].rpartition("/")[2]]], named)
        elif "anyOf" in part:
            resolved += alternatives(part["anyOf"], named)
        else:
            resolved.append(part)
    return resolved


def child_schemas(part: Schema, step: str | int) -> list[Schema]:
    """The schema of the key or index `step` in `part`; none where it has none."""
    child = part.get("properties", {}).get(step) or part.get("additionalProperties") or part.get("items")
    return [child] if isinstance(child, dict) else []
