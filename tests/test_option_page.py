"""The page of options says what the verbs declare, and what each verb's own parser takes."""

import pytest
import typer

from planner.cli.app import VERBS, app
from tests.option_page import PAGE, page

TEXT = PAGE.read_text(encoding="utf-8")
COMMANDS = typer.main.get_command(app).commands


def test_the_page_is_what_the_verbs_declare():
    assert page() == TEXT, "python -m tests.option_page writes it"


@pytest.mark.parametrize("name", VERBS)
def test_every_option_that_the_parser_takes_is_on_it(name):
    below = TEXT.partition(f"\n## {name}\n")[2].partition("\n## ")[0]
    for parameter in COMMANDS[name].params:
        for spelled in parameter.opts if parameter.param_type_name == "option" else ():
            assert spelled == "--help" or f"`{spelled}`" in below
