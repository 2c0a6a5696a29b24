"""Layouts of all modules of a job at once: their candidates, the search among them, simple plans to compare with."""
