"""Schemas of file formats: as JSON Schema for editors, and by key path for error messages.

What a key is, the comment beside its field says: the text of schemas and of the pages of formats.
"""

import ast
import inspect
import io
import textwrap
import tokenize
from functools import lru_cache
from itertools import chain
from typing import Any

import msgspec

Schema = dict[str, Any]


def json_schema(forms: tuple[type, ...]) -> Schema:
    """The JSON Schema of a file format with these forms, for editors; each key with the comment beside its field."""
    tops, named = msgspec.json.schema_components(forms, schema_hook=schema_of, ref_template="#/$defs/{name}")
    for struct in structs_of(forms):
        describe(struct, named[struct.__name__])
    described = f"{forms[0].FORMAT}: {(forms[0].__doc__ or '').strip()}"  # type: ignore[attr-defined]
    top = {"anyOf": [*tops]} if len(forms) > 1 else tops[0]
    whole = {"$schema": "https://json-schema.org/draft/2020-12/schema", "description": described, **top, "$defs": named}
    return with_texts(whole)  # type: ignore[no-any-return]


def with_texts(schema: Any) -> Any:
    """A schema in which numbers that have a pattern may be texts of it: `3%` for 0.03."""
    if isinstance(schema, list):
        return [with_texts(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    found = {key: with_texts(value) for key, value in schema.items()}
    return {**found, "type": ["number", "string"]} if found.get("type") == "number" and "pattern" in found else found


def describe(struct: type, schema: Schema) -> None:
    """Add to the schema of a struct what each key is, and its only value to `format`."""
    for key, text in field_comments(struct).items():
        described = schema["properties"][key]
        described["description"] = ": ".join(filter(None, (text, described.get("description"))))
    if hasattr(struct, "FORMAT"):
        schema["properties"]["format"] = {"enum": [struct.FORMAT]}


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


def may_be_left_out(kind: type, route: tuple[str | int, ...]) -> bool:
    """Whether the value at `route` has a key by a name of the format, and a default that the format takes itself: a
    number below the least stands for a key that is missing.
    """
    above = schemas_at(kind, route[:-1])
    named = [part["properties"][route[-1]] for part in above if route[-1] in part.get("properties", {})]
    required = any(route[-1] in part.get("required", ()) for part in above)
    return bool(named) and not required and not any(map(is_below_least, named))


def is_below_least(schema: Schema) -> bool:
    """Whether a default is a number that the format does not take."""
    least = [part["minimum"] for part in (schema, *schema.get("anyOf", ())) if "minimum" in part]
    return type(schema.get("default")) is int and bool(least) and schema["default"] < min(least)


def example(kind: type, route: tuple[str | int, ...]) -> Any:
    """A value that the format accepts at `route`, by itself; None where the schema does not tell."""
    _, named = msgspec.json.schema_components((kind,), schema_hook=schema_of)
    found = (example_of(part, named) for part in schemas_at(kind, route))
    return next((value for value in found if value is not None), None)


def example_of(schema: Schema, named: dict[str, Schema]) -> Any:
    """A value of a schema; None where it does not tell."""
    (schema, *_) = alternatives([schema], named) or [{}]
    for key in ("examples", "enum"):
        if key in schema:
            return schema[key][0]
    if "default" in schema and not is_below_least(schema):
        return schema["default"]
    least = schema.get("minimum", schema.get("exclusiveMinimum", 0) + 1)
    by_type = {"string": "x", "integer": max(least, 1), "number": max(least, 1), "boolean": True}
    if "prefixItems" in schema:  # each item has a type of its own
        return [example_of(each, named) for each in schema["prefixItems"]]
    if schema.get("type") == "array":
        return [example_of(schema["items"], named)] * schema.get("minItems", 0) if schema.get("items") else []
    if schema.get("type") == "object":
        return {key: example_of(schema["properties"][key], named) for key in schema.get("required", ())}
    return by_type.get(str(schema.get("type")))


@lru_cache(maxsize=256)
def field_comments(struct: type) -> dict[str, str]:
    """Comments by key in a file: those beside a field, and whole lines above it; of inherited fields too."""
    comments: dict[str, str] = {}
    for each in reversed(struct.__mro__):
        if issubclass(each, msgspec.Struct) and each is not msgspec.Struct:
            comments |= own_comments(each)
    names = {field.name: field.encode_name for field in msgspec.structs.fields(struct)}
    return {names[field]: text for field, text in comments.items() if field in names}


def own_comments(struct: type) -> dict[str, str]:
    """Comments of the fields that a class defines itself; none where its source is not there."""
    try:
        source = textwrap.dedent(inspect.getsource(struct))
    except (OSError, TypeError):
        return {}
    at_line = {
        token.start[0]: (token.string.lstrip("# "), token.line.lstrip().startswith("#"))
        for token in tokenize.generate_tokens(io.StringIO(source).readline)
        if token.type == tokenize.COMMENT and not token.string.startswith("# type:")
    }
    (tree,) = ast.parse(source).body
    comments = {}
    for node in tree.body if isinstance(tree, ast.ClassDef) else ():
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            above = node.lineno - 1
            while above in at_line and at_line[above][1]:
                above -= 1
            lines = chain(range(above + 1, node.lineno), range(node.lineno, (node.end_lineno or node.lineno) + 1))
            text = " ".join(at_line[line][0].partition("  # ")[0] for line in lines if line in at_line)
            if text:
                comments[node.target.id] = text
    return comments


def structs_of(kinds: tuple[type, ...]) -> list[type]:
    """The structs of which files of these kinds are made, in the order in which their keys lead there."""
    structs: list[type] = []
    waiting: list[Any] = [msgspec.inspect.type_info(kind) for kind in kinds]
    while waiting:
        here = waiting.pop(0)
        if isinstance(here, msgspec.inspect.StructType):
            if here.cls in structs:
                continue
            structs.append(here.cls)
            waiting += [field.type for field in here.fields]
        else:
            inner = (getattr(here, name, None) for name in ("type", "item_type", "key_type", "value_type"))
            waiting += [each for each in inner if isinstance(each, msgspec.inspect.Type)]
            waiting += getattr(here, "types", ())
    return structs
