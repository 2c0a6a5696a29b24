"""YAML files read and written: strict, with located errors, atomic, the same bytes for the same data."""

from planner.files.atomic_write import atomic_write, sync_folder
from planner.files.error_location import nearest_word
from planner.files.file_lock import hold_lock, is_locked
from planner.files.folder_queue import TAKEN, FolderQueue
from planner.files.format_schema import json_schema
from planner.files.named_paths import inside, plain_name, require_regular
from planner.files.read import format_of, parse, place, read, read_text, top_keys, with_position
from planner.files.writable import path_exists, require_folder, require_writable
from planner.files.write import digest, dump, json_text, write, write_bytes, write_text
from planner.files.yaml_text import printable

__all__ = [
    "TAKEN",
    "FolderQueue",
    "atomic_write",
    "digest",
    "dump",
    "format_of",
    "hold_lock",
    "inside",
    "is_locked",
    "json_schema",
    "json_text",
    "nearest_word",
    "parse",
    "path_exists",
    "place",
    "plain_name",
    "printable",
    "read",
    "read_text",
    "require_folder",
    "require_regular",
    "require_writable",
    "sync_folder",
    "top_keys",
    "with_position",
    "write",
    "write_bytes",
    "write_text",
]
