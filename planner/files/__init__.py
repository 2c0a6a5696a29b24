"""The YAML files of planner, read and written: strict, with located errors, atomic, the same bytes for the same
data.
"""

from planner.files.read import format_of, parse, read, read_text
from planner.files.schema import json_schema
from planner.files.write import digest, dump, json_text, write, write_bytes, write_text

__all__ = [
    "digest",
    "dump",
    "format_of",
    "json_schema",
    "json_text",
    "parse",
    "read",
    "read_text",
    "write",
    "write_bytes",
    "write_text",
]
