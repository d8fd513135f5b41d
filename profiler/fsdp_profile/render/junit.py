"""The verdicts of a check as JUnit XML, for a test report."""

from xml.etree import ElementTree

from fsdp_profile.analysis.check.result import CheckReport, Verdict
from fsdp_profile.core.text import plain


def check_junit(found: CheckReport) -> str:
    """One test case per check."""
    failures = sum(check.verdict is Verdict.BREACH for check in found.checks)
    errors = sum(check.verdict is Verdict.NOT_RECORDED for check in found.checks)
    counts = {"tests": str(len(found.checks)), "failures": str(failures), "errors": str(errors)}
    suite = ElementTree.Element("testsuite", {"name": "fsdp-profile check", **counts})
    for check in found.checks:
        case = ElementTree.SubElement(
            suite, "testcase", {"classname": f"fsdp-profile.{plain(found.run)}", "name": plain(check.name)}
        )
        if check.verdict is not Verdict.OK:
            tag = "failure" if check.verdict is Verdict.BREACH else "error"
            ElementTree.SubElement(case, tag, {"message": plain(check.message)})
    ElementTree.indent(suite)
    return '<?xml version="1.0" encoding="utf-8"?>\n' + ElementTree.tostring(suite, encoding="unicode") + "\n"
