"""The floors of the house as one table, and what docs/house.md and CONTRIBUTING draw of it.

`python -m tests.house` writes both pictures anew; tests/test_architecture.py holds imports to the table, and the
pictures to what this file draws. What a package is for is the first sentence of its own docstring.
"""

import ast
from pathlib import Path

HOME = Path(__file__).parents[1]
ROOT = HOME / "planner"

# Top floor first. Packages that share a floor may not import each other.
FLOORS = (
    ("cli",),
    ("workflows",),
    ("pipeline",),
    ("report",),
    ("check", "export", "ledger", "online", "pools", "why"),
    ("solve_job",),
    ("profiling", "runtime", "calibrate", "serving"),
    ("launch",),
    ("strategies", "models", "published"),
    ("scoring", "packing", "placer", "replay", "learning"),
    ("layouts", "policies"),
    ("simulate", "orders"),
    ("costs", "programs", "follow", "targets", "graphs"),
    ("plan", "hf"),
    ("specs",),
    ("files",),
    ("extras",),
    ("units", "errors", "callbacks", "moves"),
    ("printable",),
)
FLOOR_OF = {name: number for number, floor in enumerate(FLOORS) for name in floor} | {"__main__": -1}
MARK = "<!-- drawn by tests/house.py -->"


def path_of(name: str) -> Path:
    """The file whose docstring says what a package or a module is for."""
    return ROOT / name / "__init__.py" if (ROOT / name).is_dir() else ROOT / f"{name}.py"


def shown(name: str) -> str:
    return f"{name}/" if (ROOT / name).is_dir() else f"{name}.py"


def purpose(name: str) -> str:
    """The first sentence of a package's docstring, without its full stop."""
    docstring = ast.get_docstring(ast.parse(path_of(name).read_text())) or ""
    return docstring.split("\n\n")[0].replace("\n", " ").removesuffix(".")


def tree() -> str:
    """For docs/house.md: packages from the top, with what each is for."""
    lines = [f"  {shown(name):<14}{purpose(name)}" for floor in FLOORS for name in floor]
    return "\n".join(["```", "planner/", *lines, "```"])


def table() -> str:
    """For CONTRIBUTING: floors by number, the ground is 0."""
    rows = [
        f"| {len(FLOORS) - 1 - number} | `{shown(name)}` | {purpose(name)} |"
        for number, floor in enumerate(FLOORS)
        for name in floor
    ]
    return "\n".join(["| floor | package | what it is for |", "|---|---|---|", *rows])


PICTURES = {HOME / "docs" / "house.md": tree, HOME / "CONTRIBUTING.md": table}


def redrawn(text: str, picture: str) -> str:
    """A document with its picture, which stands between two marks, drawn anew."""
    before, _, after = text.split(MARK)
    return f"{before}{MARK}\n{picture}\n{MARK}{after}"


if __name__ == "__main__":
    for document, draw in PICTURES.items():
        document.write_text(redrawn(document.read_text(), draw()))
