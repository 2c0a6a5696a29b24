"""A small network that scores candidates, each by itself, and the file it stands in: safetensors.

    score(candidate) = w3 relu(W2 relu(W1 z + b1) + b2) + line [z, z first]
    z = (features - mean) / spread, clipped to a few spreads

The same weights score every candidate, so that names, and the order in which candidates stand, change nothing. The file
says which features these are, what they were in training (`mean`, `spread`, `least`, `most`), which teacher it learned
from and for which kinds of GPUs; a file of other features is refused.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from planner.errors import InputError
from planner.extras import require_extra
from planner.files import read_head
from planner.policies.grants import FEATURES, Floats

FORMAT = "planner.policy/1"
HIDDEN = 32
LINE = 2 * len(FEATURES)
CLIPPED = 4.0  # spreads
FIRST = FEATURES.index("first")
SHAPES: Mapping[str, tuple[int, ...]] = {
    "w1": (HIDDEN, len(FEATURES)),
    "b1": (HIDDEN,),
    "w2": (HIDDEN, HIDDEN),
    "b2": (HIDDEN,),
    "w3": (HIDDEN,),
    "line": (LINE,),
    **dict.fromkeys(("mean", "spread", "least", "most"), (len(FEATURES),)),
}
AGAIN = "train it again: planner train-policy"
MOST_BYTES = 1 << 20
FAR = 0.25  # of a feature's range in training: what lies further outside it is unlike all that was learned


@dataclass(frozen=True, slots=True)
class PolicyWeights:
    """Weights, the features of training, and where they come from."""

    tensors: Mapping[str, Floats]  # as in `SHAPES`
    teacher: str
    kinds: tuple[str, ...]  # of GPUs in training, in alphabetical order
    idle: bool = True  # whether it may grant none while something fits: as its teacher did, or not

    def scores(self, features: Floats) -> Floats:
        """Of candidates, (candidates,); the higher the better."""
        tensors = self.tensors
        hidden = self.scaled(features)
        for weight, bias in (("w1", "b1"), ("w2", "b2")):
            hidden = np.maximum(0.0, hidden @ tensors[weight].T + tensors[bias])
        return np.asarray(hidden @ tensors["w3"] + self.lines(features) @ tensors["line"], np.float64)

    def scaled(self, features: Floats) -> Floats:
        """Features in spreads of training, (candidates, features)."""
        return np.clip((features - self.tensors["mean"]) / self.tensors["spread"], -CLIPPED, CLIPPED)

    def lines(self, features: Floats) -> Floats:
        """What the line is multiplied with: scaled features, and again those of first counts, (candidates, LINE)."""
        scaled = self.scaled(features)
        return np.concatenate([scaled, scaled * features[:, FIRST, None]], axis=1)

    def with_line(self, line: Floats) -> "PolicyWeights":
        """The same network with another line."""
        return replace(self, tensors={**self.tensors, "line": line.copy()})

    def distance(self, features: Floats) -> float:
        """How far candidates lie outside what training saw, in ranges of the feature that is furthest outside."""
        ranges = np.maximum(self.tensors["most"] - self.tensors["least"], 1e-9)
        beyond = np.maximum(features - self.tensors["most"], self.tensors["least"] - features) / ranges
        return float(beyond.max(initial=0.0))

    def data(self) -> bytes:
        """As a file: the same bytes for the same weights."""
        from safetensors.numpy import save

        told = {"features": FEATURES, "teacher": self.teacher, "kinds": self.kinds, "idle": self.idle}
        tensors = {name: np.ascontiguousarray(self.tensors[name], np.float64) for name in SHAPES}
        return bytes(save(tensors, {FORMAT: json.dumps(told)}))  # one key: the library writes several in any order


def read_policy(path: Path, kinds: tuple[str, ...]) -> tuple[PolicyWeights, str]:
    """A policy's file for a cluster of these kinds, and its SHA-256. Raises InputError."""
    require_extra("safetensors", "torch", "a learned policy")
    from safetensors import SafetensorError
    from safetensors.numpy import load

    data = read_head(path, MOST_BYTES)
    try:
        tensors, told = load(data), metadata(data)
    except (SafetensorError, ValueError, TypeError) as error:
        raise InputError(f"this is no file of a policy: {error}", where=str(path), fix=AGAIN) from None
    if told.get("features") != [*FEATURES]:
        message = f"it is not of {FORMAT}, or of other features than that has here"
        raise InputError(message, where=str(path), fix=AGAIN)
    for name, shape in SHAPES.items():
        if name not in tensors or tensors[name].shape != shape:
            found = tensors[name].shape if name in tensors else "not there"
            raise InputError(f"tensor `{name}` is {found}, and must be {shape}", where=str(path), fix=AGAIN)
        if not np.isfinite(tensors[name]).all():
            raise InputError(f"tensor `{name}` has numbers that are not finite", where=str(path), fix=AGAIN)
    trained = tuple(told["kinds"])
    if len(trained) != len(kinds):
        message = f"it was trained for {len(trained)} kinds of GPUs, {', '.join(trained)}; there are {', '.join(kinds)}"
        raise InputError(message, where=str(path), fix="train one for this cluster: planner train-policy")
    weights = {name: tensors[name].astype(np.float64) for name in SHAPES}
    return PolicyWeights(weights, told["teacher"], trained, told["idle"]), hashlib.sha256(data).hexdigest()


def metadata(data: bytes) -> Mapping[str, Any]:
    """What a policy's file says of itself, besides tensors; nothing of another format's file."""
    length = int.from_bytes(data[:8], "little")
    told = json.loads(data[8 : 8 + length]).get("__metadata__", {}).get(FORMAT, "{}")
    return dict(json.loads(told))
