"""The YAML files of planner, read and written: strict, located, atomic, the same bytes for the same data."""

from planner.files.read import parse, read, read_text
from planner.files.schema import json_schema
from planner.files.write import digest, dump, json_text, write, write_bytes, write_text

__all__ = [
    "digest",
    "dump",
    "json_schema",
    "json_text",
    "parse",
    "read",
    "read_text",
    "write",
    "write_bytes",
    "write_text",
]
