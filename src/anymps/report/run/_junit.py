"""The findings as JUnit XML: a test case for each finding, skipped where a test suite expects it.

Elements and attributes are those that Jenkins, GitLab and pytest's own writer agree on (the "xunit2" family).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from xml.etree import ElementTree

from anymps.findings import Finding, Severity, Story
from anymps.report._text import clean, place
from anymps.report._words import expected, verdict

_SUITE = "anymps"
# What XML 1.0 cannot hold at all, not even escaped (www.w3.org/TR/xml, production Char).
_NOT_XML = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def junit_pieces(story: Story, findings: Sequence[Finding], _: str | None = None) -> Iterator[str]:
    """Errors and warnings as failures; what is only worth knowing stands in the test case's output."""
    directory = story.run.directory
    cases = [_case(finding, expected(finding, story.run.suite), directory) for finding in findings]
    cases = cases or [_nothing_found(story)]
    counts = {
        "tests": str(len(cases)),
        "failures": str(sum(case.find("failure") is not None for case in cases)),
        "errors": "0",
        "skipped": str(sum(case.find("skipped") is not None for case in cases)),
    }
    when = {"timestamp": clean(story.run.started)} if story.run.started else {}
    suite = ElementTree.Element("testsuite", {"name": _SUITE, **counts, **when})
    properties = ElementTree.SubElement(suite, "properties")
    run = story.run
    for name, value in (("mac", run.mac), ("torch_version", run.torch_version), ("script", run.script)):
        if value:
            ElementTree.SubElement(properties, "property", {"name": name, "value": _xml(clean(value))})
    suite.extend(cases)
    ElementTree.SubElement(suite, "system-out").text = _xml("\n".join(verdict(story, findings)))
    suites = ElementTree.Element("testsuites", {"name": _SUITE, **counts})
    suites.append(suite)
    ElementTree.indent(suites)
    yield '<?xml version="1.0" encoding="utf-8"?>\n'
    yield ElementTree.tostring(suites, encoding="unicode")
    yield "\n"


def _case(finding: Finding, expected: str, directory: str) -> ElementTree.Element:
    """One finding: failed, skipped if it is expected, passed with a word of output if it is only worth knowing."""
    where = place(finding.site, directory)
    name = _xml(f"{finding.id} {finding.title}: {where}")
    case = ElementTree.Element("testcase", {"classname": _SUITE, "name": name, "time": "0"})
    if expected:
        ElementTree.SubElement(case, "skipped", {"message": _xml(expected)}).text = _xml(_text(finding, directory))
    elif finding.severity is Severity.INFO:
        ElementTree.SubElement(case, "system-out").text = _xml(_text(finding, directory))
    else:
        message = _xml(f"{where}: {clean(finding.what)}")
        failure = ElementTree.SubElement(case, "failure", {"type": finding.severity.label, "message": message})
        failure.text = _xml(_text(finding, directory))
    return case


def _nothing_found(story: Story) -> ElementTree.Element:
    """A document without a single case is an error to some readers."""
    name = _xml(verdict(story, ())[0])
    return ElementTree.Element("testcase", {"classname": _SUITE, "name": name, "time": "0"})


def _text(finding: Finding, directory: str) -> str:
    lines = [f"{place(finding.site, directory)}"]
    if finding.site.source:
        lines.append(f"    {clean(finding.site.source.strip())}")
    lines += [f"{finding.related_as} {place(site, directory)}" for site in finding.related_sites]
    lines += [clean(finding.what), f"why: {clean(finding.why)}", f"fix: {clean(finding.fix)}"]
    return "\n".join([*lines, f"source: {clean(finding.source)}"])


def _xml(text: str) -> str:
    return _NOT_XML.sub("\ufffd", text)
