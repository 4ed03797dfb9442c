"""`examples/serving`: its suite means what it says, and its story comes out as it is told."""

import sys
from collections import Counter

from llama import EXAMPLE

from seatrial.job import Distribution, Series, Table, TokenDiff, Verdict
from seatrial.kinds.serving.charts import MOST_DIFFERENCES
from world import World


def test_its_precisions_pass_and_its_fault_is_caught_by_its_answers(world: World) -> None:
    for name in ("cases.yaml", "server"):
        (world.folder / name).symlink_to(EXAMPLE / name)
    text = (EXAMPLE / "suite.yaml").read_text()
    built = 'llama: {python: ">=3.11", packages: [xllamacpp==2026.10.*],'
    assert built in text
    text = text.replace(built, f"llama: {{interpreter: {sys.executable},")
    world.suite(text.replace("lag: 500ms", "lag: 1h").replace("ttft.p99: 5s", "ttft.p99: 1h"))
    world.seatrial("run", "suite.yaml", check=1)
    cells = {cell.id: cell for cell in world.results().cells}
    faulty = cells.pop("faulty[runtime=llama]")
    assert {str(cell.verdict) for cell in cells.values()} == {"passed"}
    assert cells["loaded[runtime=llama]"].metrics["load"]["goodput"]["value"] >= 0.95
    bad = [finding for finding in faulty.findings if finding.verdict is not Verdict.PASSED]
    assert {finding.class_ for finding in bad} <= {"drift", "diverged"}
    first = next(finding for finding in bad if finding.step == "case A table")
    assert first.evidence.splitlines()[1].startswith("expected '*' -1.97")
    assert first.data["agreement"] == "drift"
    kinds = Counter(type(chart) for chart in faulty.charts)
    assert kinds == {Table: 1, TokenDiff: MOST_DIFFERENCES}
    difference = next(chart for chart in faulty.charts if chart.title == "A table (unary)")
    assert [side.text for side in (difference.data.expected, difference.data.got)] == ["*", "*"]
    assert len(difference.data.got.top) == 5
    (table,) = (chart for chart in cells["tiny[runtime=llama,precision=f32]"].charts if isinstance(chart, Table))
    assert [row[1] for row in table.rows] == ["passed"] * 18
    shown = {type(chart): chart for chart in cells["loaded[runtime=llama]"].charts}
    assert [row[0] for row in shown[Distribution].rows] == ["lag", "ttft", "first_byte", "itl", "tpot", "e2e"]
    assert sum(row[1] for row in shown[Series].rows) == 100
