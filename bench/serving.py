"""The load that one driver offers a model server, against a stub on this machine: how many requests and tokens a
second, with a sample of the answers compared; how late it is itself, how well its metrics agree with the server's own
stamps; and with `--peer` the CPU time of a request beside guidellm's on the same stub.

Two processes share the machine with the stub: metrics are of 2 cores."""

import asyncio
import json
import os
import subprocess
import sys
import tempfile
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from _measure import cpu_of_one, environment, sized, table

from seatrial.kinds.arrivals import Arrivals
from seatrial.kinds.driver import Driver, Given
from seatrial.kinds.serving.driver.load import run_load
from seatrial.kinds.serving.driver.load_requests import Timed
from seatrial.kinds.serving.driver.openai import OpenAiClient
from seatrial.kinds.serving.generation import Answer, Generation, StopReason
from seatrial.kinds.serving.load_work import AnswerCheck, LoadSummary, LoadWork
from seatrial.kinds.serving.request import Request, Stopping
from seatrial.kinds.serving.work import Question, ServingWork

STUB = Path(__file__).with_name("_model_stub.py")
SECONDS, PACED_S = sized((5.0, 10.0), (0.5, 0.5))
UNARY_RATE, TOKENS_PER_S, TOKENS = sized((2200, 23_000, 50), (50, 500, 10))
RISE_S = sized(1.0, 0.1)  # until as many streams end as begin: each takes half a second
SAMPLE = 100  # answers that are compared with the recorded one, as by default
GUIDELLM, PEER_RATE, PEER_REQUESTS, PEER_TOKENS = "guidellm==0.8.*", 40, 1000, 16


@contextmanager
def stub() -> Iterator[str]:
    process = subprocess.Popen([sys.executable, str(STUB), "0"], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        yield f"http://127.0.0.1:{int(process.stdout.readline())}"
    finally:
        process.kill()
        process.wait()


async def load(
    url: str, rate: float, stream: bool, tokens: int, seconds: float = SECONDS
) -> tuple[LoadSummary, Sequence[Timed]]:
    request = Request(inputs=("one two three four",), stopping=Stopping(max_new_tokens=tokens))
    recorded = Generation(" word" * tokens, generated_count=tokens, stop_reason=StopReason.MAX_TOKENS)
    question = Question("one", request, tokens=tokens, answer=Answer((recorded,)))
    work = ServingWork(questions=(question,), model="stub")
    with tempfile.TemporaryDirectory() as folder:
        driver = Driver(Given({}, folder), os.open(os.devnull, os.O_WRONLY))
        client = OpenAiClient(work, url, "")
        offered = LoadWork(Arrivals("rate", rate), seconds=seconds, stream=stream, check=AnswerCheck(SAMPLE))
        found = await run_load(driver, work, offered, client, False)
        await client.close()
    return found


def steady_tokens_per_s(timed: Sequence[Timed]) -> float:
    """Tokens that came while requests were offered, from when the load had risen: not of its end, where streams only
    end."""
    begin_s, end_s = timed[0].intended_s + RISE_S, timed[-1].intended_s
    came = sum(
        count
        for one in timed
        if not one.error
        for at_s, count in zip(one.stamps, one.counts, strict=True)
        if begin_s <= at_s < end_s
    )
    return came / (end_s - begin_s)


def stamps(url: str) -> dict[str, float]:
    with urllib.request.urlopen(f"{url}/stamps") as answer:
        return dict(json.load(answer))


def row(summary: LoadSummary, tokens_per_s: float) -> str:
    lag, cpu_us = summary.latencies["lag"], summary.cpu_s / summary.requests * 1e6
    return (
        f"{summary.rate:,.0f} requests/s, {tokens_per_s:,.0f} tokens/s, lag p50 {lag['p50'] * 1e3:.2f} "
        f"p99 {lag['p99'] * 1e3:.2f} ms, {summary.error_kinds or 0} errors, {cpu_us:,.0f} us CPU a request"
    )


def peer_cpu_s(url: str) -> float:
    """Of one request: a run of many less a run of few, so that its start does not count. A first run, in which Python
    compiles its modules, is left out. It gets one worker process, as the driver is one: ten, its default, cost more."""
    program = environment("guidellm", GUIDELLM).with_name("guidellm")
    used = []
    with tempfile.TemporaryDirectory() as folder:
        prompts = Path(folder) / "prompts.jsonl"
        prompts.write_text("".join(f'{{"prompt": "one two three {number}"}}\n' for number in range(PEER_REQUESTS)))
        few = PEER_REQUESTS // 10
        for requests in (10, few, PEER_REQUESTS):
            options = {
                "backend": f"kind=openai_http,target={url},model=stub,request_format=/v1/completions",
                "profile": f"kind=constant,rate={PEER_RATE}",
                "constraint": f"kind=max_requests,count={requests}",
                "data": f"kind=json_file,path={prompts}",
                "output": f"kind=json,path={folder}/report.json",
            }
            argv = [program, "run", *(part for name, value in options.items() for part in (f"--{name}", value))]
            own = {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1"}
            own["GUIDELLM__MAX_WORKER_PROCESSES"] = "1"
            cpu_s, _, code = cpu_of_one(argv, cwd=folder, env={**os.environ, **own})
            if code:
                raise SystemExit(f"guidellm ended with {code}")
            used.append(cpu_s)
    return (used[-1] - used[-2]) / (PEER_REQUESTS - few)


def main() -> None:
    with stub() as url:
        unary, _ = asyncio.run(load(url, UNARY_RATE, False, 16))
        stamps(url)
        streamed, timed = asyncio.run(load(url, TOKENS_PER_S / TOKENS, True, TOKENS))
        theirs = stamps(url)
        paced, _ = asyncio.run(load(url, PEER_RATE, True, PEER_TOKENS, PACED_S))
        pace = stamps(url)
        rows = [("whole answers", row(unary, unary.tokens_per_s))]
        rows.append(("streams, while they are offered", row(streamed, steady_tokens_per_s(timed))))
        for name, summary, own in (("under that load", streamed, theirs), ("at 40 requests/s", paced, pace)):
            for metric in ("ttft", "itl"):
                seen, told = summary.latencies[metric]["p50"] * 1e3, own[metric] * 1e3
                rows.append((f"{metric} p50 {name}", f"{seen:.2f} ms, by the server {told:.2f} ms"))
        mine = paced.cpu_s / paced.requests
        rows.append((f"CPU of a request of {PEER_TOKENS} tokens", f"{mine * 1e6:,.0f} us"))
        if "--peer" in sys.argv:
            peer = peer_cpu_s(url)
            rows.append(("the same of guidellm", f"{peer * 1e6:,.0f} us, {peer / mine:.1f} times"))
        table("Load against a stub on this machine", rows)


if __name__ == "__main__":
    main()
