"""Written tensors are read back exactly, and a damaged file is refused, never misread."""

import json
import os
import resource
import struct

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from planner.errors import InputError
from planner.models.checkpoints.safetensors_files import (
    DTYPES,
    INDEX_FILE,
    SINGLE_FILE,
    SafetensorsCheckpoint,
)
from tests.checkpoint_files import write_tensors


def bits(tensor):
    return tensor.dtype, tensor.shape, tensor.reshape(-1).view(torch.uint8).tolist()


@st.composite
def tensors(draw):
    shape = draw(st.lists(st.integers(0, 3), max_size=3))
    dtype = draw(st.sampled_from([*DTYPES.values()]))
    count = torch.Size(shape).numel() * dtype.itemsize
    values = draw(st.lists(st.integers(0, 1 if dtype == torch.bool else 255), min_size=count, max_size=count))
    return torch.tensor(values, dtype=torch.uint8).view(dtype).reshape(shape)


@given(st.dictionaries(st.text(st.characters(codec="utf-8"), min_size=1, max_size=4), tensors(), max_size=4))
def test_round_trip(tmp_path_factory, made):
    made.pop("__metadata__", None)
    folder = tmp_path_factory.mktemp("weights")
    write_tensors(folder / SINGLE_FILE, made)
    found = SafetensorsCheckpoint(folder)
    assert found.entries.keys() == made.keys()
    for name, tensor in made.items():
        assert bits(found.read(name)) == bits(tensor) and found.shape(name) == tuple(tensor.shape)


def test_strided_tensors_and_several_files(tmp_path):
    table = torch.arange(12.0).reshape(3, 4)
    write_tensors(tmp_path / "a.safetensors", {"turned": table.T})
    write_tensors(tmp_path / "b.safetensors", {"row": table[1], "scalar": torch.tensor(2.5, dtype=torch.bfloat16)})
    where = {"turned": "a.safetensors", "row": "b.safetensors", "scalar": "b.safetensors"}
    (tmp_path / INDEX_FILE).write_text(json.dumps({"weight_map": where}))
    found = SafetensorsCheckpoint(tmp_path)
    assert torch.equal(found.read("turned"), table.T) and torch.equal(found.read("row"), table[1])
    assert found.read("scalar").item() == 2.5
    with pytest.raises(InputError, match="has no `column`"):
        found.read("column")


def test_exchange_with_the_safetensors_library(tmp_path):
    from safetensors import torch as library

    made = {"a": torch.randn(3, 5).to(torch.bfloat16), "b": torch.arange(4), "c": torch.empty(0, 2)}
    write_tensors(tmp_path / SINGLE_FILE, made)
    theirs = library.load_file(tmp_path / SINGLE_FILE)
    assert {name: bits(tensor) for name, tensor in theirs.items()} == {n: bits(t) for n, t in made.items()}
    library.save_file(made, tmp_path / SINGLE_FILE)
    assert all(bits(SafetensorsCheckpoint(tmp_path).read(name)) == bits(tensor) for name, tensor in made.items())


def raw(header, data=b""):
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + data


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"123",
        struct.pack("<Q", 2**60),
        raw(b"{"),
        raw([]),
        raw({"a": 3}),
        raw({"a": {"dtype": "F7", "shape": [1], "data_offsets": [0, 4]}}, b"1234"),
        raw({"a": {"dtype": "F32", "shape": [2], "data_offsets": [0, 4]}}, b"1234"),
        raw({"a": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}}, b"123"),
        raw({"a": {"dtype": "F32", "shape": [1], "data_offsets": [-4, 0]}}, b"1234"),
        raw({"a": {"dtype": "F32", "shape": ["x"], "data_offsets": [0, 4]}}, b"1234"),
        raw({"a": {"dtype": "F32", "shape": [-1, -1], "data_offsets": [0, 4]}}, b"1234"),
        raw({"a": {"dtype": "F32", "shape": [2**64 - 1, 0], "data_offsets": [0, 0]}}),
        raw({name: {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]} for name in "ab"}, b"1234"),
        raw({"a": {"dtype": "F32", "shape": [1], "data_offsets": [4, 8]}}, b"12345678"),
        raw({"a": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}}, b"12345"),
        raw(b'{"a": ' + b"[" * 10**5 + b"]" * 10**5 + b"}"),
    ],
)
def test_damaged_files(tmp_path, content):
    (tmp_path / SINGLE_FILE).write_bytes(content)
    with pytest.raises(InputError, match="no safetensors file") as refused:
        SafetensorsCheckpoint(tmp_path)
    assert refused.value.where == str(tmp_path / SINGLE_FILE) and refused.value.fix


@pytest.mark.parametrize("index", [None, "[]", "{", '{"weight_map": {"a": 3}}', '{"weight_map": {"a": "../b"}}'])
def test_folders_without_weights(tmp_path, index):
    if index:
        (tmp_path / INDEX_FILE).write_text(index)
    with pytest.raises(InputError) as refused:
        SafetensorsCheckpoint(tmp_path)
    assert refused.value.where.startswith(str(tmp_path)) and refused.value.fix


def test_tensors_of_less_than_a_byte_are_refused(tmp_path):
    (tmp_path / SINGLE_FILE).write_bytes(raw({"a": {"dtype": "F4", "shape": [4], "data_offsets": [0, 2]}}, b"12"))
    with pytest.raises(InputError, match="`a` is of F4, which is not read") as refused:
        SafetensorsCheckpoint(tmp_path)
    assert refused.value.where == str(tmp_path / SINGLE_FILE) and refused.value.fix


def test_large_files_take_addresses_and_no_memory(tmp_path):
    file, size = tmp_path / SINGLE_FILE, 2**41
    file.write_bytes(raw({"a": {"dtype": "I16", "shape": [2, size // 4], "data_offsets": [0, size]}}))
    os.truncate(file, file.stat().st_size + size)  # on disk there is the header alone
    assert SafetensorsCheckpoint(tmp_path).shape("a") == (2, size // 4)
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (size // 2, hard))
    try:
        with pytest.raises(InputError, match="Cannot allocate memory") as refused:
            SafetensorsCheckpoint(tmp_path)
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))
    assert refused.value.where == str(file) and "ulimit" in refused.value.fix
