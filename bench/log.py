"""A job that writes 100 MB/s: how much the memory of its supervisor and of Seatrial's own process grows, and the disk.

python bench/log.py [SECONDS]
"""

import asyncio
import contextlib
import json
import os
import sys
import tempfile
from pathlib import Path

from _measure import sized, table

from seatrial.job import Job, Step
from seatrial.targets.local import kind

RATE_BYTES = 100_000_000
WRITER = """
import os, time
block, begun, written = b"x" * 99 + b"\\n", time.monotonic(), 0
block *= 10_000
while (now := time.monotonic() - begun) < {seconds}:
    if written < {rate} * now:
        written += os.write(1, block)
    else:
        time.sleep(0.001)
os.write(2, b"%d bytes written\\n" % written)
"""


def resident_bytes(pid: int) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


async def main(seconds: float) -> None:
    with tempfile.TemporaryDirectory() as state:
        os.environ["SEATRIAL_STATE"] = state
        script = Path(state) / "writer.py"
        script.write_text(WRITER.format(seconds=seconds, rate=RATE_BYTES))
        target = kind.open("here", kind.options())
        await target.open()
        command = f"sleep 0.5; {sys.executable} {script}"
        job = Job(
            name="bench-log-1",
            run="bench-log",
            cell="00000000",
            attempt=1,
            title="log",
            steps=(Step("run writer", "command", {"command": command}),),
        )
        handle = await target.submit(job, {})
        folder = Path(state) / "jobs" / "bench-log" / "bench-log-1"
        supervisor = json.loads((folder / "supervisor.json").read_text())["pid"]
        first = {"supervisor": resident_bytes(supervisor), "seatrial": resident_bytes(os.getpid())}
        highest, most_on_disk, exited = dict(first), 0, False

        async def follow() -> None:
            async for _ in target.logs(handle, follow=True):
                pass

        async def end() -> None:
            async for event in target.watch():
                if event.exit is not None:
                    return

        following, ending = asyncio.create_task(follow()), asyncio.create_task(end())
        while not exited:
            exited = ending.done()
            for name, pid in (("supervisor", supervisor), ("seatrial", os.getpid())):
                if Path(f"/proc/{pid}/statm").exists() and not exited:
                    highest[name] = max(highest[name], resident_bytes(pid))
            with contextlib.suppress(FileNotFoundError):  # a part was dropped just now
                most_on_disk = max(most_on_disk, sum(path.stat().st_blocks * 512 for path in folder.glob("log.txt*")))
            await asyncio.sleep(0.05)
        await following
        said = json.loads((folder / "records.jsonl").read_bytes().splitlines()[-1])
        await target.remove(handle)
        await target.close()
    grown = {name: (highest[name] - first[name]) / 1e6 for name in first}
    table(
        f"a job that writes {said['log_bytes'] / 1e6:.0f} MB in {seconds:g} s, its log followed",
        [
            ("memory of the supervisor", f"{grown['supervisor']:+6.1f} MB"),
            ("memory of Seatrial", f"{grown['seatrial']:+6.1f} MB   (to reach: < 50 MB)"),
            ("log on disk, at most", f"{most_on_disk / 1e6:6.1f} MB"),
        ],
    )


if __name__ == "__main__":
    asyncio.run(main(float(sys.argv[1]) if len(sys.argv) > 1 else sized(5.0, 0.5)))
