"""The live file of a run: what one process writes, any other can follow."""

from pathlib import Path

from seatrial.record import LiveReader, LiveWriter
from seatrial.record.live import LIVE


def read(reader: LiveReader) -> list[tuple[str, str, str]]:
    return [(one.cell, one.state, one.progress) for one in reader.changes()]


def test_a_reader_gets_each_change_once(tmp_path: Path) -> None:
    reader = LiveReader(tmp_path)
    assert read(reader) == []
    writer = LiveWriter(tmp_path)
    writer.update("a", "starting")
    writer.update("a", "running", "step 1")
    assert read(reader) == [("a", "starting", ""), ("a", "running", "step 1")]
    writer.update("a", "passed")
    assert read(reader) == [("a", "passed", "")]
    assert read(reader) == []
    writer.close()


def test_it_stays_small_and_a_reader_still_knows_every_cell(tmp_path: Path) -> None:
    writer = LiveWriter(tmp_path, most_bytes=2000)
    reader = LiveReader(tmp_path)
    state: dict[str, tuple[str, str]] = {}
    began: dict[str, float] = {}
    writer.update("b", "failed", "because")
    for number in range(1000):
        writer.update("a", "running", f"step {number}")
        if number % 7 == 0:
            for change in reader.changes():
                state[change.cell] = (change.state, change.progress)
                began.setdefault(change.cell, change.at_s)
    assert (tmp_path / LIVE).stat().st_size < 2500
    assert state == {"a": ("running", "step 994"), "b": ("failed", "because")}
    late = {change.cell: change.at_s for change in reversed(LiveReader(tmp_path).changes())}
    assert late["a"] == began["a"]  # since when it runs is known to who comes late
    writer.close()


def test_who_takes_a_run_up_begins_anew_but_not_before_its_first_change(tmp_path: Path) -> None:
    first = LiveWriter(tmp_path)
    first.update("a", "running")
    reader = LiveReader(tmp_path)
    reader.changes()
    second = LiveWriter(tmp_path)
    assert read(LiveReader(tmp_path)) == [("a", "running", "")]
    second.update("a", "passed")
    assert read(reader) == [("a", "passed", "")]
    first.close()
    second.close()


def test_a_folder_that_cannot_be_written_disturbs_nobody(tmp_path: Path) -> None:
    writer = LiveWriter(tmp_path / "gone" / "file")
    (tmp_path / "gone").write_text("")
    writer.update("a", "running")
    writer.close()


def test_a_line_that_is_only_half_there_waits_for_its_rest(tmp_path: Path) -> None:
    writer = LiveWriter(tmp_path)
    writer.update("a", "running")
    reader = LiveReader(tmp_path)
    reader.changes()
    with open(tmp_path / LIVE, "ab") as file:
        file.write(b'[1.0,"a","pas')
        file.flush()
        assert read(reader) == []
        file.write(b'sed",""]\n')
    assert read(reader) == [("a", "passed", "")]
    writer.close()
