"""Seconds of what a server of a model does: encode images, prefill prompts, decode, and move keys and values."""

from planner.costs.serving.fitted_stages import fitted_prices
from planner.costs.serving.rated_stages import rated_prices
from planner.costs.serving.stage_prices import (
    MOST_TABLED,
    EncodePrices,
    IterationPrices,
    StagePrices,
    line_table,
    tabled,
)
