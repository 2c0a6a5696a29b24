"""Items are rows of a token folder, for any shards and padding; other folders are refused."""

import re
from itertools import chain
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from planner.errors import InputError
from planner.models.batch import IGNORED
from planner.models.build import build, init_weights
from planner.models.inputs import token_source as token_source
from planner.models.inputs.folder_source import sample_source
from planner.models.inputs.token_source import TokenFolder
from planner.models.inputs.training_items import SyntheticSamples, batch_of_documents
from planner.specs.layers import Decoder, TextEncoder, Vit
from tests.examples import examples

SPEC = Decoder(layers=1, hidden=8, heads=2, ffn=8, vocab=50)
ROWS = [[5, 9, 2], [7], [1, 2, 3, 4, 49], [0, 0]]


def written(folder: Path, rows=ROWS, kind="uint16", offsets=None) -> Path:
    folder.mkdir(exist_ok=True)
    np.save(folder / "tokens.npy", np.array([*chain.from_iterable(rows)], dtype=kind))
    begins = np.cumsum([0, *map(len, rows)], dtype="int64") if offsets is None else np.array(offsets)
    np.save(folder / "offsets.npy", begins)
    return folder


def expected(row, tokens):
    """The expected inputs and targets, token by token."""
    inputs = row + [0] * (tokens - len(row))
    return inputs, row[1:] + [IGNORED] * (tokens - len(row) + 1)


@pytest.mark.parametrize("kind", ["uint16", "uint32", "int32"])
@pytest.mark.parametrize("row", range(4))
@pytest.mark.parametrize("more", [0, 1, 4])
def test_every_span_of_an_item(tmp_path, kind, row, more):
    folder = TokenFolder(written(tmp_path, kind=kind))
    tokens = len(ROWS[row]) + more
    inputs, targets = expected(ROWS[row], tokens)
    for first in range(tokens + 1):
        for last in range(first, tokens + 1):
            got = folder.item(SPEC, row, (first, last))
            assert [part.tolist() for part in got] == [inputs[first:last], targets[first:last]]
            assert all(part.dtype == torch.int64 for part in got)
    assert folder.target_count(SPEC, row, tokens) == sum(target != IGNORED for target in targets)


@examples(50)
@given(st.data())
def test_rounded_lengths_are_accepted(tmp_path_factory, data):
    rows = data.draw(st.lists(st.lists(st.integers(0, 49), min_size=1, max_size=20), min_size=1, max_size=6))
    unit = data.draw(st.integers(1, 9))
    folder = TokenFolder(written(tmp_path_factory.mktemp("rows"), rows))
    items = [(row, -(-len(tokens) // unit) * unit) for row, tokens in enumerate(rows)]
    folder.check(SPEC, items)
    inputs = batch_of_documents(folder, SPEC, items).inputs
    assert inputs.tolist() == [token for row, n in items for token in expected(rows[row], n)[0]]


def test_padding_changes_no_gradient(tmp_path):
    """No token of an item attends to its padding, which has no target."""
    folder = TokenFolder(written(tmp_path))
    found = []
    for unit in (1, 4):
        model = build(SPEC, dtype=torch.float64)
        init_weights(model, 1)
        items = [(row, -(-len(tokens) // unit) * unit) for row, tokens in enumerate(ROWS)]
        loss = model(batch_of_documents(folder, SPEC, items))
        loss.backward()
        found.append((loss.item(), {name: parameter.grad for name, parameter in model.named_parameters()}))
    (exact, gradients), (padded, others) = found
    assert padded == pytest.approx(exact, rel=1e-12)
    for name, gradient in gradients.items():
        torch.testing.assert_close(others[name], gradient, rtol=1e-10, atol=1e-14)


def test_text_encoders_stay_synthetic(tmp_path):
    text = TextEncoder(layers=1, hidden=8, heads=2, ffn=8, vocab=9, max_positions=9)
    folder, synthetic = sample_source(written(tmp_path), 7), sample_source(None, 7)
    assert isinstance(synthetic, SyntheticSamples)
    folder.check(text, [(99, 4)])
    for ours, theirs in zip(folder.item(text, 99, (1, 4)), synthetic.item(text, 99, (1, 4)), strict=True):
        assert torch.equal(ours, theirs)
    targets = folder.item(text, 99, (0, 4))[1]
    assert folder.target_count(text, 99, 4) == synthetic.target_count(text, 99, 4) == len(targets)


def test_images_are_not_made_up_beside_tokens(tmp_path):
    vit = Vit(layers=1, hidden=8, heads=2, ffn=8, patch=2, channels=1, out=3)
    folder = TokenFolder(written(tmp_path))
    folder.check(vit, [])
    with pytest.raises(InputError, match="item 3 is of patches, and the folder has tokens alone") as refused:
        folder.check(vit, [(3, 4)])
    assert refused.value.where == str(tmp_path) and refused.value.fix


@pytest.mark.parametrize(
    ("documents", "says"),
    [
        ([(4, 8)], "there is no sample 4: the folder has 4"),
        ([(0, 2)], "sample 0 has 3 tokens, and the plan's item 0 has 2"),
        ([(0, 8), (2, 16)], "sample 2 has 5 tokens, and the plan's item 2 has 16"),  # both are rounded up to 8 at most
        ([(0, 3), (3, 9)], "sample 3 has 2 tokens, and the plan's item 3 has 9"),
    ],
)
def test_items_of_another_plan(tmp_path, documents, says):
    with pytest.raises(InputError) as refused:
        TokenFolder(written(tmp_path)).check(SPEC, documents)
    assert says in refused.value.message and refused.value.where == str(tmp_path) and refused.value.fix


@pytest.mark.parametrize(
    ("offsets", "row", "says"),
    [
        ([0, 3, 3, 4], 1, "sample 1 is from token 3 to 3: offsets must rise"),
        ([0, 3, 2, 4], 1, "sample 1 is from token 3 to 2"),
        ([-1, 3], 0, "sample 0 is from token -1 to 3"),
        ([0, 3, 99], 1, "sample 1 ends at token 99, and there are 11"),
    ],
)
def test_invalid_offsets(tmp_path, offsets, row, says):
    folder = TokenFolder(written(tmp_path, offsets=offsets))
    with pytest.raises(InputError) as refused:
        folder.check(SPEC, [(row, 64)])
    assert says in refused.value.message and refused.value.where == str(tmp_path / "offsets.npy") and refused.value.fix


@pytest.mark.parametrize(("rows", "kind", "token"), [([[1, 2, 50]], "uint16", 50), ([[1, 2, -1]], "int32", -1)])
def test_tokens_outside_the_vocabulary(tmp_path, rows, kind, token):
    folder = TokenFolder(written(tmp_path, rows, kind))
    folder.item(SPEC, 0, (0, 1))  # before the wrong token
    for span in ((1, 2), (2, 3), (0, 3)):
        with pytest.raises(InputError) as refused:
            folder.item(SPEC, 0, span)
        assert f"token 2 of sample 0 is {token}, the model has 50 tokens" in refused.value.message
        assert refused.value.where == str(tmp_path / "tokens.npy") and refused.value.fix


def damaged(folder: Path, name: str, value) -> Path:
    path = written(folder) / name
    if value is None:
        path.unlink()
    elif isinstance(value, bytes):
        path.write_bytes(value)
    else:
        np.save(path, value)
    return folder


@pytest.mark.parametrize(
    ("name", "value", "says"),
    [
        ("tokens.npy", None, "cannot read the tokens"),
        ("offsets.npy", None, "cannot read the tokens"),
        ("tokens.npy", b"", "no array of numpy"),
        ("tokens.npy", b"1 2 3", "no array of numpy"),
        ("tokens.npy", np.zeros(3), "float64[3] is not one-dimensional of uint16 or uint32 or int32"),
        ("tokens.npy", np.zeros((3, 3), dtype="uint16"), "uint16[3, 3] is not one-dimensional"),
        ("offsets.npy", np.zeros(3, dtype="int32"), "int32[3] is not one-dimensional of int64"),
        ("offsets.npy", np.zeros(1, dtype="int64"), "there are no samples"),
        ("offsets.npy", np.array([0, None]), "no array of numpy"),
    ],
)
def test_invalid_folders(tmp_path, name, value, says):
    with pytest.raises(InputError) as refused:
        TokenFolder(damaged(tmp_path, name, value))
    assert says in refused.value.message and refused.value.where == str(tmp_path / name) and refused.value.fix


def test_the_folder_in_the_documents(tmp_path, monkeypatch):
    root = next(folder for folder in Path(__file__).parents if (folder / "pyproject.toml").is_file())
    text = (root / "docs" / "running.md").read_text(encoding="utf-8")
    program, _ = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    monkeypatch.chdir(tmp_path)
    exec(program, {})
    folder = TokenFolder(tmp_path / "tokens")
    rows = [[5, 9, 2], [7, 7], [1, 2, 3, 4]]
    folder.check(SPEC, [(row, len(tokens)) for row, tokens in enumerate(rows)])
    for row, tokens in enumerate(rows):
        assert folder.item(SPEC, row, (0, len(tokens)))[0].tolist() == tokens


def test_only_rows_of_the_plan_are_checked_for_tokens_outside_the_vocabulary(tmp_path, caplog, monkeypatch):
    folder = TokenFolder(written(tmp_path, [[1, 2], [3, 50, 4], [49]]))
    folder.check_vocab(SPEC, [(0, 2), (2, 1)])
    with pytest.raises(InputError, match="token 1 of sample 1 is 50, the model has 50 tokens"):
        folder.check_vocab(SPEC, [(0, 2), (1, 3)])
    negative = TokenFolder(written(tmp_path, [[1, -2]], kind="int32"))
    with pytest.raises(InputError, match="token 1 of sample 0 is -2"):
        negative.check_vocab(SPEC, [(0, 2)])
    monkeypatch.setattr(token_source, "CHECKED", 1)
    negative.check_vocab(SPEC, [(0, 2)])
    assert "2 tokens are not checked" in caplog.text
