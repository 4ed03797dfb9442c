"""JUnit: well-formed whatever a job said, by the rules of the schemas that CI systems use, and nothing lost."""

import re
import xml.etree.ElementTree as ET
from pathlib import Path

import sample
from hypothesis import given
from hypothesis import strategies as st

from seatrial.job import Excluded, Finding, RunResults, Verdict
from seatrial.report.junit import render_junit
from seatrial.report.view.run import RunView

# The common core of the schemas of Jenkins, GitLab and Surefire: attributes (True: required) and children, in order.
RULES: dict[str, tuple[dict[str, bool], list[str]]] = {
    "testsuites": (
        {"name": False, "time": False, "tests": False, "failures": False, "errors": False, "skipped": False},
        ["testsuite"],
    ),
    "testsuite": (
        dict.fromkeys(("name", "tests", "failures", "errors", "skipped", "time", "timestamp", "hostname"), True),
        ["properties", "testcase", "system-out", "system-err"],
    ),
    "properties": ({}, ["property"]),
    "property": ({"name": True, "value": True}, []),
    "testcase": ({"name": True, "classname": True, "time": True}, ["skipped", "error", "failure"]),
    "skipped": ({"message": False}, []),
    "failure": ({"type": True, "message": False}, []),
    "error": ({"type": True, "message": False}, []),
    "system-out": ({}, []),
    "system-err": ({}, []),
}


def check_rules(element: ET.Element) -> None:
    attributes, children = RULES[element.tag]
    assert set(element.attrib) <= set(attributes), element.tag
    assert {name for name, required in attributes.items() if required} <= set(element.attrib), element.tag
    places = [children.index(child.tag) for child in element]
    assert places == sorted(places), f"children of {element.tag} are out of order"
    for name in ("time", "tests", "failures", "errors", "skipped"):
        if name in element.attrib:
            assert re.fullmatch(r"\d+(\.\d+)?", element.attrib[name])
    if "timestamp" in element.attrib:
        assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d", element.attrib["timestamp"])
    if element.tag == "testcase":
        assert len(element) <= 1
    for child in element:
        check_rules(child)


def parsed(run: RunResults, folder: Path) -> ET.Element:
    root = ET.fromstring(render_junit(RunView(run, sample.write_run(folder, run))))
    check_rules(root)
    for suite in root:
        names = [case.get("name") for case in suite.findall("testcase")]
        assert len(names) == len(set(names))
        assert int(suite.get("tests", "")) == len(names)
        for attribute, tag in (("failures", "failure"), ("errors", "error"), ("skipped", "skipped")):
            assert int(suite.get(attribute, "")) == len(suite.findall(f"testcase/{tag}"))
    assert int(root.get("tests", "")) == len(root.findall("testsuite/testcase"))
    return root


def case(root: ET.Element, hash_: str, name: str) -> ET.Element:
    for suite in root:
        if suite.find(f"properties/property[@name='hash'][@value='{hash_}']") is not None:
            return next(one for one in suite.findall("testcase") if one.get("name") == name)
    raise AssertionError(hash_)


def test_every_verdict_has_its_element(tmp_path: Path) -> None:
    root = parsed(sample.small(), tmp_path)
    assert len(case(root, "69b56f04", "import numpy")) == 0
    failure = case(root, "a1b2c3d4", "import scipy").find("failure")
    assert failure is not None
    assert (failure.get("type"), failure.get("message")) == ("crashed", "scipy is installed but does not import")
    assert "ImportError: libgfortran.so.5" in (failure.text or "")
    timeout = case(root, "7e577e57", "run python slow.py").find("failure")
    assert timeout is not None
    assert timeout.get("type") == "timeout"
    assert case(root, "5ca1ab1e", "import flax").find("failure") is not None
    infra = case(root, "deadbeef", "job").find("error")
    assert infra is not None
    assert infra.get("message") == "no space left on device while the environment was built"
    xfail = case(root, "0badc0de", "notebook memory.ipynb fresh").find("skipped")
    assert xfail is not None
    assert (xfail.get("message") or "").startswith("xfail: the kernel was killed")
    skipped = case(root, "c0ffee00", "job").find("skipped")
    assert skipped is not None
    assert skipped.get("message") == "stopped after 5 failures (--max-failures 5)"


def test_the_time_of_a_step_is_its_own(tmp_path: Path) -> None:
    root = parsed(sample.small(), tmp_path)
    assert case(root, "a1b2c3d4", "import scipy").get("time") == "0.700"
    assert case(root, "a1b2c3d4", "notebook train.ipynb rerun").get("time") == "2.700"


def test_a_flaky_cell_tells_both_places(tmp_path: Path) -> None:
    root = parsed(sample.small(), tmp_path)
    suite = next(one for one in root if one.get("name") == "generic[runtime=pytorch,machine=large]")
    assert suite.find("properties/property[@name='flaky'][@value='true']") is not None
    out = suite.findtext("system-out", "")
    assert "gpu-node-17" in out
    assert "gpu-node-04" in out


def test_holes_are_skipped_and_very_many_are_told_by_reason(tmp_path: Path) -> None:
    root = parsed(sample.small(), tmp_path / "a")
    assert [one.get("message") for one in root.findall("testsuite[@name='holes']/testcase/skipped")] == [
        "driver too old until 2026-12",
        "needs gpu.count >=1, the machine has 0",
        "needs gpu.count >=1, the machine has 0",
    ]
    many = [Excluded("t", {"n": str(n)}, f"reason {n % 3}") for n in range(5000)]
    root = parsed(sample.results("s", Verdict.PASSED, [], many), tmp_path / "b")
    names = [one.get("name") for one in root.findall("testsuite[@name='holes']/testcase")]
    assert names[0] == "1,667 combinations: reason 0"
    assert len(names) == 3
    chosen = [Excluded("t", {"n": str(n)}, "not asked for", "select") for n in range(7)]
    root = parsed(sample.results("s", Verdict.PASSED, [], chosen), tmp_path / "c")
    assert [one.get("name") for one in root.findall("testsuite/testcase")] == ["7 combinations: not asked for"]


def test_findings_of_one_step_are_one_test_case_with_all_that_was_found(tmp_path: Path) -> None:
    findings = [
        Finding("facts", "python", Verdict.PASSED),
        Finding("facts", "gpu-count", Verdict.FAILED, message="2 GPUs, 4 were declared"),
        Finding("facts", "gpu-memory", Verdict.FAILED, message="16 GiB, 40 GiB were declared"),
    ]
    run = sample.results("s", Verdict.FAILED, [sample.cell("00000000", "a", "m", Verdict.FAILED, *findings)], [])
    failure = case(parsed(run, tmp_path), "00000000", "facts").find("failure")
    assert failure is not None
    assert failure.get("message") == "2 GPUs, 4 were declared"
    assert "16 GiB, 40 GiB were declared" in (failure.text or "")


def test_a_long_story_is_bounded(tmp_path: Path) -> None:
    finding = Finding("run x", "run", Verdict.FAILED, message="m" * 10_000, evidence="e" * 10_000_000)
    run = sample.results("s", Verdict.FAILED, [sample.cell("00000000", "a", "m", Verdict.FAILED, finding)], [])
    assert len(render_junit(RunView(run, tmp_path))) < 30_000


@sample.untimed
@given(st.text(), st.text(), st.text())
def test_any_text_at_all_gives_well_formed_xml(step: str, message: str, evidence: str) -> None:
    finding = Finding(step, "c", Verdict.FAILED, message, message, evidence)
    run = sample.results(message, Verdict.FAILED, [sample.cell("00000000", step, "m", Verdict.FAILED, finding)], [])
    check_rules(ET.fromstring(render_junit(RunView(run, Path("/nowhere")))))
