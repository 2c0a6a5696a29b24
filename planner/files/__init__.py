"""YAML files read and written: strict, with located errors, atomic, the same bytes for the same data."""

from planner.files.bounded_read import (
    LAUNCH,
    LEDGER,
    LENGTHS,
    PLANNED_TRACE,
    RECORDED_TRACE,
    RECORDS,
    SAMPLES,
    SCHEDULE,
    open_bytes,
    read_chunks,
    read_csv,
    read_head,
    read_records,
    read_text,
    require_regular,
    too_many_records,
)
from planner.files.error_location import nearest_word
from planner.files.file_lock import hold_lock, is_locked
from planner.files.folder_queue import TAKEN, FolderQueue
from planner.files.format_schema import json_schema
from planner.files.named_paths import (
    inside,
    path_exists,
    plain_name,
    require_folder,
    require_parent,
    require_unchanged,
    require_writable,
)
from planner.files.read import format_of, parse, place, read, read_json, top_keys, with_position
from planner.files.toml_text import load_toml
from planner.files.write import atomic_write, digest, dump, json_text, sync_folder, write, write_bytes, write_text
from planner.files.yaml_text import load_yaml
