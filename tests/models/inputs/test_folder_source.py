"""Items of a folder of samples: text behind the outputs of encoders, images and clips in any shards."""

import numpy as np
import pytest
import torch

from planner.errors import InputError
from planner.models.batch import IGNORED
from planner.models.inputs import fed_source, folder_source, sample_source
from planner.models.inputs.training_items import batch_of_documents
from planner.models.networks.audio_network import FRAMES_SEEN
from planner.specs.layers import Decoder
from planner.specs.workload.items import item_tokens, packed_documents, part_lengths
from tests.runtime.multi_module_plans import PHOTO, TALK, TILED
from tests.sample_folders import SAMPLES, WORDS, planned, write_folder

LLM = Decoder(layers=1, hidden=32, heads=2, ffn=8, vocab=WORDS)


@pytest.mark.parametrize("fed", [0, 1, 4])
@pytest.mark.parametrize("sample", range(len(SAMPLES)))
@pytest.mark.parametrize("padding", [0, 3])
def test_text_stands_behind_the_outputs_of_encoders(tmp_path, sample, fed, padding):
    folder = write_folder(tmp_path / "data")
    source = fed_source(sample_source(folder, 0), {sample: fed} if fed else {})
    begin, end = np.load(folder / "offsets.npy")[sample : sample + 2]
    words = np.load(folder / "tokens.npy")[begin:end].tolist()
    inputs = [0] * fed + words + [0] * padding
    targets = [IGNORED] * fed + [*words[1:], IGNORED][: len(words)] + [IGNORED] * padding
    for first in range(len(inputs) + 1):
        for last in range(first, len(inputs) + 1):
            found = source.item(LLM, sample, (first, last))
            assert [each.tolist() for each in found] == [inputs[first:last], targets[first:last]]
    assert source.target_count(LLM, sample, len(inputs)) == sum(target != IGNORED for target in targets)


@pytest.mark.parametrize(("spec", "channels"), [(PHOTO, 3), (TILED, 1), (TALK, 3)])
def test_shards_of_items_are_parts_of_the_whole(tmp_path, spec, channels):
    folder = write_folder(tmp_path / "data", channels=channels)
    batch = planned(folder, {"llm": LLM, "photo": PHOTO if spec is TALK else spec, "talk": TALK})
    source, sizes = sample_source(folder, 0), batch.streams["talk" if spec is TALK else "photo"]
    for item in reversed([*sizes]):
        tokens = item_tokens(sizes[item])
        whole, targets = source.item(spec, item, (0, tokens))
        assert len(whole) == tokens and targets.shape == (tokens // spec.tokens_per_output, spec.out)
        for first in range(0, tokens, spec.tokens_per_output):
            part, _ = source.item(spec, item, (first, tokens))
            assert torch.equal(part, whole[first:])
    source.check_values(spec, [(item, item_tokens(size)) for item, size in sizes.items()])
    documents = packed_documents([*sizes], [*map(part_lengths, sizes.values())])
    packed = batch_of_documents(source, spec, documents)
    assert len(packed.inputs) == sum(map(item_tokens, sizes.values()))
    if spec is TALK:
        assert packed.inputs.shape[1:] == (FRAMES_SEEN, spec.mels)


def test_an_image_is_the_one_of_its_row(tmp_path):
    """Pixels of one colour for each image: its patches have no other."""
    folder = write_folder(tmp_path / "data")
    pixels = np.load(folder / "pixels.npy").astype("float32")
    index = np.load(folder / "images.npy")
    for number, (_, height, width, first) in enumerate(index):
        pixels[first : first + height * width] = number
    np.save(folder / "pixels.npy", pixels)
    source = sample_source(folder, 0)
    for number in range(len(index)):
        patches, _ = source.item(PHOTO, number, (0, 8))
        torch.testing.assert_close(patches, torch.full_like(patches, number))


def test_what_is_not_checked_before_a_run_ends_it(tmp_path, monkeypatch, caplog):
    folder = write_folder(tmp_path / "data")
    frames = np.load(folder / "frames.npy")
    frames[3, 1] = np.nan
    np.save(folder / "frames.npy", frames)
    source = sample_source(folder, 0)
    monkeypatch.setattr(folder_source, "CHECKED", 1)
    source.check_values(TALK, [(0, 18)])
    assert "numbers are not checked" in caplog.text
    with pytest.raises(InputError, match=r"clip 0 has nan at \[2, 1\]"):
        source.item(TALK, 0, (0, 2))
