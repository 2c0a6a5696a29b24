"""What pictures are drawn on."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Canvas:
    """What is drawn on: columns, and whether neighbours must differ without colours."""

    width: int
    plain: bool = False
