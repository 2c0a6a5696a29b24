"""The check whether a plan is legal, that is, can be executed, with one file for each kind of law."""
