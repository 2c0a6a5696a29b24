"""What was found, as other programs read it: JUnit's XML for the tests of a pipeline, and annotations of GitHub."""

from collections.abc import Sequence
from xml.etree import ElementTree

from planner.check.case import CheckedCase
from planner.check.finding import BLOCKING, Finding, label, verdict
from planner.printable import one_line

LEVELS = {"regression": "error", "illegal": "error", "unjudged": "error", "changed_input": "warning"}
ESCAPES = {"%": "%25", "\r": "%0D", "\n": "%0A"}  # of a command's text; of its properties these, too:
OF_PROPERTIES = {":": "%3A", ",": "%2C"}


def junit(cases: Sequence[CheckedCase]) -> str:
    """A test for each case, failed where something blocks; the same text whenever the same is found."""
    blocked = sum(any(map(blocks, case.findings)) for case in cases)
    counts = {"tests": str(len(cases)), "errors": "0", "failures": str(blocked), "skipped": "0"}
    suites = ElementTree.Element("testsuites")
    suite = ElementTree.SubElement(suites, "testsuite", {"name": "planner check", **counts, "time": "0"})
    for case in cases:
        test = ElementTree.SubElement(suite, "testcase", {"classname": "planner.check", "name": title(case)})
        test.set("time", "0")
        lines = [one_line(f"{each.category}: {each.where}: {each.message}") for each in case.findings]
        if any(map(blocks, case.findings)):
            failure = ElementTree.SubElement(test, "failure", {"message": f"{label(case.findings)}; {lines[0]}"})
            failure.text = "\n".join(lines)
        elif lines:
            ElementTree.SubElement(test, "system-out").text = "\n".join([verdict(case.findings), *lines])
    ElementTree.indent(suites)
    return ElementTree.tostring(suites, encoding="unicode", xml_declaration=True) + "\n"


def annotations(cases: Sequence[CheckedCase]) -> str:
    """A command of GitHub for each finding that blocks, and for each changed input, at the plan of its case."""
    return "".join(
        f"::{LEVELS[each.category]} file={escaped(case.path.as_posix(), OF_PROPERTIES)},"
        f"title={escaped(f'{title(case)}: {label(case.findings)}', OF_PROPERTIES)}::{escaped(told(each))}\n"
        for case in cases
        for each in case.findings
        if each.category in LEVELS
    )


def title(case: CheckedCase) -> str:
    return one_line(case.name or case.path.as_posix())


def blocks(finding: Finding) -> bool:
    return finding.category in BLOCKING


def told(finding: Finding) -> str:
    return one_line(f"{finding.where}: {finding.message}")


def escaped(text: str, besides: dict[str, str] | None = None) -> str:
    """A text as it may stand in a command."""
    return "".join({**ESCAPES, **(besides or {})}.get(sign, sign) for sign in one_line(text))
