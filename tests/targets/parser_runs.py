"""What the scripts of `make parsers` share: an environment for each program's own parser, a run of it over many files,
and verdicts written an entry a line.
"""

import hashlib
import json
import os
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

HOME = Path(__file__).parents[2]
PARSERS = HOME / ".parsers"
VERDICTS = Path(__file__).parent / "verdicts"
TABLES = ("launches", "configurations")  # of verdicts, whose entries are on lines of their own


def environment(name: str, *installs: tuple[str, ...]) -> Path:
    """The interpreter of an environment with packages, by words for pip, and the torch of this one."""
    folder = PARSERS / name
    python = folder / "bin" / "python"
    if not python.exists():
        subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
        paths = folder / "lib" / f"python{sys.version_info.major}.{sys.version_info.minor}" / "site-packages"
        (paths / "torch_of.pth").write_text(sysconfig.get_paths()["purelib"] + "\n")
        for words in installs:
            subprocess.run([str(python), "-m", "pip", "install", "--quiet", *words], check=True)
    return python


def answers_of(
    python: Path | str, script: str, cases: list[dict[str, Any]], variables: dict[str, str] | None = None
) -> list[dict[str, Any]]:
    """What a parser says of each case, by a script beside this one that reads and writes JSON lines."""
    done = subprocess.run(
        [str(python), str(Path(__file__).parent / script)],
        input="".join(json.dumps(case) + "\n" for case in cases),
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        check=True,
        env={**os.environ, "PYTHONPATH": "", **(variables or {})},
        cwd=tempfile.gettempdir(),
    )
    answers = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    assert len(answers) == len(cases)
    return answers


def refusals(kinds: Iterable[str], answers: list[dict[str, Any]], here: Iterable[str]) -> dict[str, list[str]]:
    """Who refuses each kind of mutation: the parser, planner, or both. `here`: what `planner import` says."""
    return {
        kind: [*["parser"] * ("error" in answer), *["planner"] * bool(message)]
        for kind, answer, message in zip(kinds, answers, here, strict=True)
    }


def refusal(read: Callable[[], object], error: type[Exception]) -> str:
    """What is said where something is refused; empty: it is read."""
    try:
        read()
    except error as refused:
        return str(refused)
    return ""


def digest(text: str) -> str:
    """The short digest of a file."""
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def write_verdicts(name: str, stored: dict[str, Any]) -> None:
    """What parsers said, an entry a line."""
    lines = []
    for key, value in stored.items():
        nested = isinstance(value, dict) and key in TABLES
        entries = [f"  {json.dumps(each)}: {json.dumps(own)}" for each, own in value.items()] if nested else []
        told = "{\n" + ",\n".join(entries) + "\n }" if nested else json.dumps(value)
        lines.append(f" {json.dumps(key)}: {told}")
    (VERDICTS / f"{name}.json").write_text("{\n" + ",\n".join(lines) + "\n}\n")
