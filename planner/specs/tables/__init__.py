"""Embedding tables of recommendation models: what a file says of each, and what a job asks of all."""

from planner.specs.tables.read_tables import TableFile, read_tables
from planner.specs.tables.table import CACHES, Cut, JobTables, Replicas, Table
from planner.specs.tables.torchrec_configs import read_configs
