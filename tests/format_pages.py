"""The pages of file formats as the specs say them: every key with its type, default, unit and comment.

`python -m tests.format_pages` writes docs/formats/ anew; tests/test_format_pages.py holds the pages to what this file
writes.
"""

import inspect
from pathlib import Path
from typing import Any

import msgspec

from planner import files
from planner.files.format_schema import Schema, structs_of
from planner.plan.formats import FORMATS, schema_of_format

FOLDER = Path(__file__).parents[1] / "docs" / "formats"
UNITS = {  # by the end of a key, the longest first
    "ms_per_token2": "ms / token²",
    "ms_per_token": "ms / token",
    "kib_per_token": "KiB / token",
    "mb_per_token": "10⁶ bytes / token",
    "ns_per_parameter": "ns / parameter",
    "usd_per_hour": "$ / h",
    "tokens_per_rank": "tokens",
    "gb_per_s": "GB/s",
    "seconds": "s",
    "bytes": "bytes",
    "tokens": "tokens",
    "tflops": "10¹² FLOP/s",
    "_gib": "GiB",
    "_ms": "ms",
    "_us": "µs",
}
WORDS = {"integer": "whole number", "number": "number", "string": "text", "boolean": "true or false"}
ESCAPED = "\\|"  # a bar within a cell


def page(name: str) -> str:
    """The page of a format."""
    schema = schema_of_format(name)
    forms = FORMATS[name]
    lines = [
        f"# {forms[0].FORMAT}",
        "",
        "Written from the specs by `python -m tests.format_pages`: edit the comments there.",
    ]
    if len(forms) > 1:
        lines += ["", f"A file has the keys of one of {' or '.join(link(form.__name__) for form in forms)}."]
    for struct in structs_of(forms):
        lines += ["", *section(struct, schema["$defs"][struct.__name__])]
    return "\n".join(lines) + "\n"


def section(struct: type, schema: Schema) -> list[str]:
    """One struct: what it is, and a table of its keys."""
    text = inspect.cleandoc(struct.__doc__ or "")
    header = ["| key | value | default | unit | |", "|---|---|---|---|---|"]
    tag = struct.__struct_config__
    tagged = [f"| **`{tag.tag_field}`** | `{tag.tag}` | required | | |"] if tag.tag_field else []
    keys = [key_line(field, schema["properties"][field.encode_name]) for field in msgspec.structs.fields(struct)]
    return [f"## {struct.__name__}", "", text, "", *header, *tagged, *keys]


def key_line(field: msgspec.structs.FieldInfo, schema: Schema) -> str:
    """A line of the table: required keys in bold."""
    key = f"`{field.encode_name}`" if not field.required else f"**`{field.encode_name}`**"
    default = "required" if field.required else default_text(field)
    cells = (key, value_text(schema), default, unit(field.encode_name), schema.get("description", ""))
    return " ".join(f"| {cell.replace('|', ESCAPED)}".rstrip() for cell in cells) + " |"


def unit(key: str) -> str:
    return next((text for ending, text in UNITS.items() if key == ending.lstrip("_") or key.endswith(ending)), "")


def default_text(field: msgspec.structs.FieldInfo) -> str:
    """The default as a file writes it; empty where leaving the key out means nothing is given."""
    value = field.default if field.default is not msgspec.NODEFAULT else field.default_factory()
    plain = msgspec.to_builtins(value, enc_hook=str)
    if plain is None:
        return ""
    short = files.dump({"x": plain}).strip().removeprefix("x:").strip() if not isinstance(plain, dict) else "{}"
    return "`{}`" if isinstance(plain, dict) else f"`{' '.join(short.split())}`"


def value_text(schema: Schema) -> str:
    """What may stand there."""
    if "$ref" in schema:
        return link(schema["$ref"].rpartition("/")[2])
    if "enum" in schema:
        return ", ".join(f"`{word}`" for word in schema["enum"])
    if "anyOf" in schema:
        return " or ".join(dict.fromkeys(value_text(each) for each in schema["anyOf"] if each.get("type") != "null"))
    kind = schema.get("type")
    if kind == "array" and "prefixItems" in schema:
        return f"list of {len(schema['prefixItems'])} of {value_text(schema['prefixItems'][0])}"
    if kind == "array":
        return f"list of {value_text(schema['items'])}" if "items" in schema else "list"
    if kind == "object":
        inner = schema.get("additionalProperties")
        return f"mapping to {value_text(inner)}" if isinstance(inner, dict) else "mapping"
    if isinstance(kind, list) and "pattern" in schema:
        return f"share{limits(schema)}, or `3%`"
    if isinstance(kind, list):
        return "text or a whole number"
    return f"{WORDS[str(kind)]}{limits(schema)}"


def limits(schema: dict[str, Any]) -> str:
    """The range of a number."""
    least, most = schema.get("minimum"), schema.get("maximum")
    above = f" above {schema['exclusiveMinimum']:g}" if "exclusiveMinimum" in schema else ""
    small = most is not None and most <= 10_000
    if least is not None and small:
        return f" {least:g} to {most:g}"
    return f"{above} from {least:g}" if least else above + (f" to {most:g}" if small else "")


def link(name: str) -> str:
    return f"[{name}](#{name.lower()})"


def write_pages() -> None:
    FOLDER.mkdir(exist_ok=True)
    for name in FORMATS:
        (FOLDER / f"{name}.md").write_text(page(name), encoding="utf-8")


if __name__ == "__main__":
    write_pages()
