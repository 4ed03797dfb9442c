"""Offers a load to a server: requests start on schedule, whether or not earlier ones have finished. Meanwhile the
server's own metrics are sampled."""

import asyncio
import contextlib
import gc
import math
import time
from collections.abc import AsyncIterator, Callable, Iterable
from pathlib import Path
from urllib.parse import urlsplit

import msgspec

from seatrial.job import Unreadable, value_text
from seatrial.kinds.arrivals import Arrivals, offsets
from seatrial.kinds.driver import Driver, DriverError, wait_for
from seatrial.kinds.search import WARMUP, Try, search_rate, try_each
from seatrial.kinds.serving.driver.client import Client
from seatrial.kinds.serving.driver.http import Connections
from seatrial.kinds.serving.driver.load_metrics import summarize_load
from seatrial.kinds.serving.driver.load_requests import Prepared, Sender, Timed, check_sample, draw_sample
from seatrial.kinds.serving.driver.offering import Offering, Window
from seatrial.kinds.serving.driver.openai import OpenAiClient
from seatrial.kinds.serving.load_work import LOAD, LoadNote, LoadStage, LoadSummary, LoadWork, WordList
from seatrial.kinds.serving.prompts import makes_up, measure_words, questions_of, requests_of
from seatrial.kinds.serving.request import Mode, Request
from seatrial.kinds.serving.work import Question, ServingWork

CLOSE = 1.025  # a search ends when the lowest broken rate is at most this many times the highest that holds
_MOST_RATE = 100_000.0  # highest rate of a search
_IDLE_REQUESTS = 20  # one after the other, for the latency of an idle server
_NEAR = 0.05  # a rate that differs less from a measured one is not measured again
CUT = "cut"  # error of a request that was in flight when the client stopped


async def run_load(
    driver: Driver, work: ServingWork, load: LoadWork, client: Client, again: bool
) -> tuple[LoadSummary, list[Timed]]:
    sender = Sender(client, load)
    at_once = load.arrivals.burst if load.arrivals.shape == "in_flight" else 0
    asked: list[Question] = []
    prepared: list[Prepared] = []
    made: dict[int, Prepared] = {}
    later: list[Timed] = []  # requests of conversations after the first one

    def next_until(seconds: float | None) -> list[Timed]:
        """The requests from the last ones on. The same seed gives the same first ones."""
        try:
            times = offsets(load.arrivals, load.requests, seconds, load.seed)
            fresh = requests_of(load, work.questions, len(times))[len(asked) :]
        except ValueError as error:
            raise DriverError(str(error)) from error
        timed = [Timed(at_s, turn=int(bool(one.turns))) for at_s, one in zip(times[len(asked) :], fresh, strict=True)]
        asked.extend(fresh)
        for number in draw_sample(load, asked[-len(timed) :]):
            timed[number].keep = True
        for question in asked[len(prepared) :]:
            if id(question) not in made:
                made[id(question)] = sender.prepare(question)
            prepared.append(made[id(question)])
        return timed

    def send(number: int, timed: Timed, done: Callable[[Timed], None]) -> None:
        """Each turn of a conversation starts when the one before is answered, and includes its answer."""
        question, messages = asked[number], list(asked[number].request.messages)
        turns = iter(question.turns)

        def answered(one: Timed) -> None:
            said = None if one.error or driver.stopping.is_set() else next(turns, None)
            if said is None:
                done(timed)
                return
            messages.extend([{"role": "assistant", "content": one.said}, {"role": "user", "content": said}])
            asks = msgspec.structs.replace(question.request, messages=tuple(messages))
            now_s = time.monotonic()
            later.append(Timed(now_s, now_s, turn=one.turn + 1))
            sender.send(sender.prepare(msgspec.structs.replace(question, request=asks)), later[-1], answered)

        sender.send(prepared[number], timed, answered if question.turns else done)

    window, first = Window(load) if load.peak else None, next_until(load.seconds)
    offering = Offering(driver, send, at_once)
    cpu_s = time.process_time()
    gc.collect()
    gc.freeze()  # collecting the prepared requests would pause the load
    try:
        cut = await offering.run(first, window, next_until)
    finally:
        gc.unfreeze()
    cpu_s = time.process_time() - cpu_s
    timed = offering.timed[: offering.started]
    for one in (*timed, *later):
        if not one.end_s:  # the client was stopped before the answer arrived
            one.end_s, one.error = time.monotonic(), CUT
    answers = check_sample(load, asked[: len(timed)], timed, work.protocol)
    timed = sorted([*timed, *later], key=lambda one: one.intended_s)
    summary = msgspec.structs.replace(
        summarize_load(load, timed, answers),
        cpu_s=cpu_s,
        most_in_flight=offering.most_in_flight,
        falls_behind=window.flow.falls_behind if window and window.flow else "",
        cut=cut,
        again=again,
    )
    return summary, timed


REQUESTS = "load-requests.jsonl"


async def offer_load(driver: Driver, work: ServingWork, load: LoadWork, client: Client) -> None:
    """Runs one load, or a search for the highest rate that keeps the bounds. A restarted client starts over, and the
    summary has `again` set."""
    if LOAD in driver.finished:
        return
    again = LOAD in driver.unknown
    driver.begin(LOAD)
    try:
        if load.prompts or (load.lengths and load.lengths.input):
            load = msgspec.structs.replace(load, words=await _measured_words(load, client))
        if load.prompts:
            work = msgspec.structs.replace(work, questions=tuple(questions_of(load)))
    except Unreadable as error:
        raise DriverError(str(error)) from error
    async with scraping(driver, work, load, client) as scrape:
        if load.peak or load.points:
            note = await _search(driver, work, load, client, again)
        else:
            summary, timed = await run_load(driver, work, load, client, again)
            write_requests(driver.files / REQUESTS, timed, "wb")
            note = LoadNote(summary)
    driver.finish(LOAD, **msgspec.structs.asdict(note), scrape=scrape)


async def _measured_words(load: LoadWork, client: Client) -> WordList:
    """The words of made-up prompts, with their tokens by the server's tokenizer or by the given one, if possible."""
    if load.prompts and not makes_up(load):
        return WordList()

    async def by_server(text: str) -> int | None:
        answer = await client.ask(Request(inputs=(text,), mode=Mode.TOKENIZE), False, load.request_s)
        return answer.tokenizations[0].count if answer.failure is None and answer.tokenizations else None

    found = await measure_words(by_server, "tokens, by the server's tokenizer")
    if found is None and load.lengths is not None and load.lengths.tokenizer:
        from tokenizers import Tokenizer

        tokenizer = Tokenizer.from_file(load.lengths.tokenizer)

        async def by_file(text: str) -> int | None:
            return len(tokenizer.encode(text).ids)

        found = await measure_words(by_file, f"tokens, by the file {load.lengths.tokenizer}")
    return found or WordList(unit="words: the server has no /tokenize, and `lengths` no `tokenizer`")


async def _search(driver: Driver, work: ServingWork, load: LoadWork, client: Client, again: bool) -> LoadNote:
    """Finds the highest rate that keeps the bounds, or tries the given rates or numbers in flight."""
    stages: list[LoadStage] = []

    async def attempt(rate: float, longer: bool = False) -> Try[LoadSummary]:  # windows extend anyway
        if load.arrivals.shape == "in_flight":
            offered = msgspec.structs.replace(load, arrivals=msgspec.structs.replace(load.arrivals, burst=int(rate)))
        else:
            seconds = min(load.seconds or math.inf, load.requests / rate if load.requests else math.inf)
            arrivals = msgspec.structs.replace(load.arrivals, rate=rate, every_s=seconds * WARMUP)
            offered = msgspec.structs.replace(load, arrivals=arrivals, seconds=seconds, requests=None, peak=True)
        driver.progress(f"load: {rate:.4g}{load.unit}")
        summary, timed = await run_load(driver, work, offered, client, again)
        write_requests(driver.files / REQUESTS, timed, "ab" if stages else "wb", rate)
        lag, most = value_text(summary.lag_s, "s"), value_text(load.lag_s, "s")
        late = f"the client was late by {lag} (limit {most})" if summary.lag_s > load.lag_s else ""
        doubt = "the client was stopped before the end; run it again" if summary.cut else late
        behind = [f"the server {summary.falls_behind}"] if summary.falls_behind else []
        broken = load.broken_bounds(summary) + behind
        tried = Try(rate, broken, doubt, summary)
        stages.append(LoadStage(rate, tried.broken, doubt, msgspec.structs.replace(summary, series=[])))
        return tried

    stopped = driver.stopping.is_set
    if load.points:
        found = await try_each(load.points, attempt, stopped)
        return LoadNote(found.holds, stages, found.low, found.high, found.doubt)
    first = load.arrivals.rate
    if load.auto:
        one_by_one = Arrivals("in_flight", burst=1)
        alone = msgspec.structs.replace(load, arrivals=one_by_one, requests=_IDLE_REQUESTS, peak=False)
        idle, _ = await run_load(driver, work, alone, client, again)
        stages.append(LoadStage(idle.rate, load.broken_bounds(idle), "", msgspec.structs.replace(idle, series=[])))
        first = idle.rate or 1.0
    found = await search_rate(first, _MOST_RATE, attempt, stopped, CLOSE)
    for number in range(load.auto if found.low and not found.doubt else 0):
        rate = first + (found.low - first) * number / load.auto
        if not stopped() and all(abs(stage.rate / rate - 1) > _NEAR for stage in stages):
            await attempt(rate)
    return LoadNote(found.holds, stages, found.low, found.high, found.doubt)


def write_requests(path: Path, timed: Iterable[Timed], mode: str, rate: float | None = None) -> None:
    """Writes every request with all its times, one per line; seconds from the first scheduled start."""
    with path.open(mode) as file:
        begin_s = None
        for number, one in enumerate(timed):
            begin_s = one.intended_s if begin_s is None else begin_s
            row: dict[str, object] = {"number": number, **({"rate": rate} if rate is not None else {})}
            for name in ("intended_s", "begun_s", "sent_s", "first_byte_s", "end_s"):
                value = getattr(one, name)
                row[name] = round(value - begin_s, 6) if value else None
            row |= {"turn": one.turn} if one.turn else {}
            row |= {"tokens": one.tokens, "tokens_s": [round(at_s - begin_s, 6) for at_s in one.stamps]}
            row |= {"counts": one.counts if any(count != 1 for count in one.counts) else [], "error": one.error}
            file.write(msgspec.json.encode(row) + b"\n")


METRICS = "load-metrics.jsonl"
_EVERY_S = 1.0
_LIMIT_S = 5.0


class Scraped(msgspec.Struct):
    samples: int = 0
    why: str = ""  # why there are no samples, or no more


@contextlib.asynccontextmanager
async def scraping(driver: Driver, work: ServingWork, load: LoadWork, client: Client) -> AsyncIterator[Scraped]:
    """Samples the server's metrics every second during the block, once before and once after it. Stops at the first
    failure."""
    found = Scraped()
    async with contextlib.AsyncExitStack() as stack:
        try:
            connections = await _connections(stack, driver, work, load, client)
        except DriverError as error:
            found.why = str(error)
            yield found
            return
        begin_s = time.monotonic()
        file = stack.enter_context((driver.files / METRICS).open("wb"))

        async def sample() -> None:
            if found.why:
                return
            at_s = time.monotonic() - begin_s
            status, data = await connections.get(load.metrics, _LIMIT_S)
            if status != 200:
                found.why = f"GET {load.metrics} returned {status or 'no response'}"
                return
            found.samples += 1
            file.write(msgspec.json.encode({"at_s": round(at_s, 3), "values": parse_metrics(data)}) + b"\n")

        async def repeat() -> None:
            while not await wait_for(over, _EVERY_S):
                await sample()

        await sample()
        over = asyncio.Event()
        task = asyncio.create_task(repeat())
        try:
            yield found
        finally:
            over.set()
            await task
        await sample()


async def _connections(
    stack: contextlib.AsyncExitStack, driver: Driver, work: ServingWork, load: LoadWork, client: Client
) -> Connections:
    """Connections for the server's metrics. A separate port is asked over plain HTTP and without the token, like the
    health port. Raises DriverError with the reason if they are not sampled."""
    if not load.metrics:
        raise DriverError("not requested")
    if not load.metrics_port:
        if isinstance(client, OpenAiClient):
            return client.connections
        raise DriverError(f"the server's port speaks gRPC; use `metrics: :3000{load.metrics}` for another port")
    if work.url:
        url = f"http://{urlsplit(work.url).hostname}:{load.metrics_port}"
    else:
        address = await stack.enter_async_context(driver.endpoint(load.metrics_port))
        url = f"{'https' if address.tls else 'http'}://{address}"
    connections = Connections(url, None, {})
    stack.push_async_callback(connections.close)
    return connections


def parse_metrics(data: bytes) -> dict[str, float]:
    """Parses Prometheus' text format: values by name and labels, without histogram buckets."""
    found = {}
    for line in data.decode("utf-8", "replace").splitlines():
        name, _, value = line.rpartition(" ")
        if name and not line.startswith("#") and "_bucket" not in name:
            try:
                found[name] = float(value)
            except ValueError:
                continue
    return found
