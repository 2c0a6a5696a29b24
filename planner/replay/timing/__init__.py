"""Graphs of one or more ranks on one clock, and what their times say: breakdown, critical path, stragglers."""
