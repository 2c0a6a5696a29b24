"""What a file format looks like, as JSON Schema for editors."""

from typing import Any

import msgspec


def json_schema(kind: type, description: str) -> dict[str, Any]:
    """The JSON Schema of a file format, for editors."""
    schema = msgspec.json.schema(kind, schema_hook=schema_of)
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "description": description, **schema}


def schema_of(kind: type) -> dict[str, Any]:
    """msgspec's hook for JSON Schema: what a custom type looks like in a file."""
    return kind.schema()  # type: ignore[attr-defined, no-any-return]
