"""What is tried again avoids each host that a job of several hosts had."""

from pathlib import Path

from scripted import Fate, Script

from seatrial.job import Exit, Outcome


def test_each_host_of_a_job_of_several_is_avoided(tmp_path: Path) -> None:
    fates = {1: Fate(end_s=5.0, exit=Exit(Outcome.EVICTED), hosts=("n3", "n5")), 2: Fate(end_s=5.0)}
    made = Script(tmp_path, lambda job: fates[job.attempt], retries=1)
    life = made.life()
    assert made.run(life) is not None
    assert [job.avoid for job in life.target.submissions] == [(), ("n3", "n5")]
