"""A report as JUnit XML, which CI systems show: one suite an artifact, one case a criterion."""

import re
from xml.etree import ElementTree

from quantflow.gate.criteria import CriterionResult
from quantflow.gate.verdict import Verdict
from quantflow.report.model import Report

_NOT_IN_XML = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""Characters that XML 1.0 has no way to write."""


def junit_xml(report: Report) -> str:
    """JUnit XML, as Jenkins and GitLab read it.

    A criterion that failed or is inconclusive is a failure, since neither is a pass; one in error is an
    error; an advisory one that did not pass is skipped.
    """
    suites = ElementTree.Element("testsuites", {"name": _text(f"quantflow {report.recipe}")})
    for artifact in report.artifacts:
        criteria = [c for c in report.criteria if c.artifact == artifact.name]
        cases = [_case(report, criterion) for criterion in criteria] or [_not_judged(report, artifact.name)]
        kinds = [case[0].tag if len(case) else "" for case in cases]
        attributes = {
            "name": _text(f"{report.recipe}.{artifact.name}"),
            "tests": str(len(cases)),
            "failures": str(kinds.count("failure")),
            "errors": str(kinds.count("error")),
            "skipped": str(kinds.count("skipped")),
        }
        ElementTree.SubElement(suites, "testsuite", attributes).extend(cases)
    ElementTree.indent(suites)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + ElementTree.tostring(suites, "unicode") + "\n"


def _case(report: Report, criterion: CriterionResult) -> ElementTree.Element:
    name = criterion.name if criterion.metric == criterion.name else f"{criterion.name} ({criterion.metric})"
    if criterion.slice != "all":
        name += f" [{criterion.slice}]"
    case = ElementTree.Element(
        "testcase", {"classname": _text(f"{report.recipe}.{criterion.artifact}"), "name": _text(name)}
    )
    if criterion.verdict is Verdict.PASS:
        return case
    kind = "error" if criterion.verdict is Verdict.ERROR else "failure"
    tag = kind if criterion.required else "skipped"
    said = {"message": _text(criterion.reason)}
    if criterion.required:
        said["type"] = criterion.verdict.value
    ElementTree.SubElement(case, tag, said)
    return case


def _not_judged(report: Report, artifact: str) -> ElementTree.Element:
    """An artifact without a single criterion was not judged, which must not look like one that passed."""
    case = ElementTree.Element(
        "testcase", {"classname": _text(f"{report.recipe}.{artifact}"), "name": "judged"}
    )
    ElementTree.SubElement(case, "error", {"message": _text(report.reason), "type": "not judged"})
    return case


def _text(text: str) -> str:
    return _NOT_IN_XML.sub("\ufffd", text)
