"""The plan file, its tasks, and whether it is legal.

Its nouns stand in `plan_file`; `tasks/expand` turns them into tasks, `legal/plan_laws` says whether it can be executed.
"""
