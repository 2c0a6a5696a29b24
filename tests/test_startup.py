"""Help is quick and loads nothing heavy."""

import subprocess
import sys

HEAVY = ("torch", "ortools", "pulp", "numpy", "rich")


def modules_after(statement: str) -> set[str]:
    code = f"import sys\n{statement}\nprint('\\n'.join({{m.partition('.')[0] for m in sys.modules}}))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(done.stdout.split())


def test_help_loads_nothing_heavy():
    loaded = modules_after(
        "from contextlib import redirect_stdout\nimport io\nfrom planner.cli.app import app\n"
        "with redirect_stdout(io.StringIO()):\n    app(['--help'], standalone_mode=False)"
    )
    assert not loaded & set(HEAVY)


def test_every_verb_has_help():
    from planner.cli.app import app

    for command in app.registered_commands:
        assert command.callback is not None
        assert command.callback.__doc__


def test_solving_loads_no_torch():
    loaded = modules_after("import planner.pipeline, planner.strategies.sequence_groups")
    assert not loaded & {"torch", "pulp", "ortools"}
