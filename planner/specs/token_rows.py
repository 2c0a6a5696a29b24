"""A folder of tokens: `tokens.npy`, all rows one after the other, and `offsets.npy`, where each begins.

Row i is tokens[offsets[i]:offsets[i + 1]]. Both are mapped into memory: only what is used is read.
"""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from planner.errors import InputError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

TOKENS, OFFSETS = "tokens.npy", "offsets.npy"
TOKEN_TYPES = ("uint16", "uint32", "int32")
HOW = "make the folder as docs/running.md shows"


def open_tokens(folder: Path) -> "NDArray[Any]":
    """[tokens], of one of TOKEN_TYPES. Raises InputError."""
    return opened(folder / TOKENS, TOKEN_TYPES)


def open_offsets(folder: Path) -> "NDArray[np.int64]":
    """[rows + 1]. Raises InputError."""
    offsets = opened(folder / OFFSETS, ("int64",))
    if len(offsets) < 2:
        raise InputError("there are no rows: offsets are one more than rows", where=str(folder / OFFSETS), fix=HOW)
    return offsets


def opened(path: Path, types: tuple[str, ...]) -> "NDArray[Any]":
    """A one-dimensional array of one of these types, mapped into memory. Raises InputError."""
    import numpy as np

    try:
        array = np.load(path, mmap_mode="r", allow_pickle=False)
    except OSError as error:
        raise InputError(f"cannot read the tokens: {error.strerror or error}", where=str(path), fix=HOW) from error
    except (ValueError, EOFError) as error:
        raise InputError(f"this is no array of numpy: {error}", where=str(path), fix=HOW) from error
    if not isinstance(array, np.ndarray) or array.ndim != 1 or array.dtype.name not in types:
        said = f"{array.dtype}{[*array.shape]}" if isinstance(array, np.ndarray) else "an archive"
        raise InputError(f"{said} is not one row of {' or '.join(types)}", where=str(path), fix=HOW)
    return array


def row_lengths(offsets: "NDArray[np.int64]", folder: Path, first: int, last: int) -> list[int]:
    """Tokens of rows `first` to before `last`, as far as there are any. Raises InputError where offsets do not rise."""
    import numpy as np

    lengths = np.diff(offsets[first : last + 1])
    for wrong in np.flatnonzero(lengths < 1)[:1]:
        require_row(offsets, folder, first + int(wrong))
    return [int(length) for length in lengths]


def require_row(offsets: "NDArray[np.int64]", folder: Path, row: int) -> tuple[int, int]:
    """The first token of a row and the one after its last. Raises InputError where there is no such row."""
    if row >= len(offsets) - 1:
        what = f"there is no row {row}: the folder has {len(offsets) - 1}"
        raise InputError(what, where=str(folder), fix="give the folder that the plan was made from")
    begin, end = int(offsets[row]), int(offsets[row + 1])
    if not 0 <= begin < end:
        what = f"row {row} is from token {begin} to {end}: offsets must rise"
        raise InputError(what, where=str(folder / OFFSETS), fix=HOW)
    return begin, end
