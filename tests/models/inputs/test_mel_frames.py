"""A token of a clip sees five frames around its own two, within its part."""

import torch
from hypothesis import given
from hypothesis import strategies as st

from planner.models.inputs.media_contents import clip_windows
from planner.models.networks.audio_network import frames_within_clip
from planner.specs.layers import Audio
from planner.specs.layers.audio import FRAMES_PER_SECOND
from tests.examples import examples

CHUNKS = st.sampled_from([None, 0.04, 0.07, 0.1, 0.125, 30.0])


def hearing(pool, chunk):
    return Audio(layers=1, hidden=8, heads=2, ffn=8, mels=3, pool=pool, out=4, chunk=chunk)


@examples(100)
@given(st.integers(1, 400), st.integers(1, 3), CHUNKS)
def test_parts_have_all_frames_once_and_room_for_them(frames, pool, chunk):
    spec = hearing(pool, chunk)
    lengths, spans = spec.clip_parts(frames / FRAMES_PER_SECOND), spec.clip_spans(frames)
    assert [frame for span in spans for frame in range(*span)] == [*range(frames)]
    for length, (first, last) in zip(lengths, spans, strict=True):
        assert 0 < last - first <= length and length % (2 * pool) == 0


@examples(30)
@given(st.integers(1, 60), st.integers(1, 3), CHUNKS)
def test_windows_are_those_of_each_part_alone(frames, pool, chunk):
    spec, clip = hearing(pool, chunk), torch.rand(frames, 3) + 1.0
    found, begin = clip_windows(spec, clip), 0
    for length, (first, last) in zip(spec.clip_parts(frames / FRAMES_PER_SECOND), spec.clip_spans(frames), strict=True):
        heard = dict(enumerate(clip[first:last]))
        tokens = length // 2
        part = frames_within_clip(found[begin : begin + tokens], (0, tokens), tokens)
        for token in range(tokens):
            for at in range(5):
                assert torch.equal(part[token, at], heard.get(2 * token - 2 + at, torch.zeros(3)))
        begin += tokens
    assert begin == len(found)
