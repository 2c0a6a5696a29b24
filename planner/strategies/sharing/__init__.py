"""Shares of devices among modules on the same ranks: those that are tried, and plans with them."""

from planner.strategies.sharing.share_search import STEPS, ShareSearch
from planner.strategies.sharing.shared_plan import Shares, sharing_modules, with_shares
