"""A folder of tokens: `tokens.npy`, all samples one after another, and `offsets.npy`, where each begins.

Sample i is tokens[offsets[i]:offsets[i + 1]]. Both are mapped into memory: only what is used is read.
"""

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from planner.errors import InputError
from planner.files import require_regular

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

TOKENS, OFFSETS = "tokens.npy", "offsets.npy"
TOKEN_TYPES = ("uint16", "uint32", "int32")
HOW_TO_MAKE = "make the folder as docs/running.md shows"


def open_tokens(folder: Path) -> "NDArray[Any]":
    """Return the tokens of all samples (tokens,), in one of TOKEN_TYPES. Raises InputError."""
    return open_array(folder / TOKENS, TOKEN_TYPES)


def open_offsets(folder: Path) -> "NDArray[np.int64]":
    """Return the offsets (samples + 1,). Raises InputError."""
    offsets = open_array(folder / OFFSETS, ("int64",))
    if len(offsets) < 2:
        raise InputError(
            "there are no samples: offsets are one more than samples", where=str(folder / OFFSETS), fix=HOW_TO_MAKE
        )
    return offsets


def open_array(path: Path, types: tuple[str, ...], what: str = "tokens", dims: int = 1) -> "NDArray[Any]":
    """Open an array of so many dimensions and one of these types, mapped into memory. Raises InputError."""
    import numpy as np

    if os.path.exists(path):
        require_regular(path)
    try:
        array = np.load(path, mmap_mode="r", allow_pickle=False)
    except OSError as error:
        raise InputError(
            f"cannot read the {what}: {error.strerror or error}", where=str(path), fix=HOW_TO_MAKE
        ) from error
    except Exception as error:  # numpy reads the head of a file as Python, which fails in many ways
        raise InputError(f"this is no array of numpy: {error}", where=str(path), fix=HOW_TO_MAKE) from error
    found = f"{array.dtype}{[*array.shape]}" if isinstance(array, np.ndarray) else "an archive"
    if not isinstance(array, np.ndarray):
        array.close()
    elif array.ndim == dims and array.dtype.name in types:
        return array
    wanted = f"{'one' if dims == 1 else 'two'}-dimensional of {' or '.join(types)}"
    raise InputError(f"{found} is not {wanted}", where=str(path), fix=HOW_TO_MAKE)


def sample_lengths(offsets: "NDArray[np.int64]", folder: Path, first: int, last: int) -> list[int]:
    """Return the lengths of samples `first` to before `last`, as far as there are any.

    Raises InputError where offsets do not rise.
    """
    import numpy as np

    lengths = np.diff(offsets[first : last + 1])
    for wrong in np.flatnonzero(lengths < 1)[:1]:
        sample_range(offsets, folder, first + int(wrong))
    return [int(length) for length in lengths]


def sample_range(
    offsets: "NDArray[np.int64]", folder: Path, sample: int, may_be_empty: bool = False
) -> tuple[int, int]:
    """Return the first token of a sample and the one after its last. Raises InputError for other numbers."""
    if sample >= len(offsets) - 1:
        what = f"there is no sample {sample}: the folder has {len(offsets) - 1}"
        raise InputError(what, where=str(folder), fix="give the folder that the plan was made from")
    begin, end = int(offsets[sample]), int(offsets[sample + 1])
    if not 0 <= begin < end + may_be_empty:
        what = f"sample {sample} is from token {begin} to {end}: offsets must rise"
        raise InputError(what, where=str(folder / OFFSETS), fix=HOW_TO_MAKE)
    return begin, end
