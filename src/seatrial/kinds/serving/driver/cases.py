"""Asks the cases, several at a time; to test batching, first each alone, then all in a crowd.

A restarted client asks again what it had begun and not finished, which is safe because a generation has no side
effects. Whatever has an answer is never asked again, except turns of a conversation that is not finished."""

import asyncio
import re
import signal
from collections.abc import Iterator
from functools import partial
from itertools import chain, groupby
from typing import TYPE_CHECKING, Any

import msgspec

from seatrial.kinds.driver import NOTE_BYTES, Driver, wait_for
from seatrial.kinds.serving.answers.expect import unmet
from seatrial.kinds.serving.driver.client import Client, Clock, busy_for_s
from seatrial.kinds.serving.driver.openai_format import broken_rules
from seatrial.kinds.serving.generation import Answer, Failure, Generation, Trouble, generations_of
from seatrial.kinds.serving.request import Expect, Mode, Request, continued
from seatrial.kinds.serving.work import Ask, Note, Question, ServingWork, conversation_of, phases_of

if TYPE_CHECKING:
    from seatrial.kinds.serving.driver.embeddings import Embedder

_PATIENCE_S = 10.0  # limit for connecting to a server that was ready
RECONNECT_S = 0.1
LATE_IN_A_ROW = 3  # timeouts in a row, beyond `concurrency`, after which the server counts as gone
_STOP_S = 2.0  # for requests in flight when the client is stopped
_SEARCH_S = 2.0  # CPU time limit for checking the expectations of a case
_NO_TURN = Failure("", "it was not sent in this way", Trouble.NOT_ASKED)
PIECE_BYTES = NOTE_BYTES // 2
_BESIDE = "A text of another length, to fill a batch."


class Asking:
    def __init__(self, driver: Driver, work: ServingWork, client: Client, embedder: "Embedder | None" = None) -> None:
        self._driver, self._work, self._client, self._embedder = driver, work, client, embedder
        self._in_flight = 0
        self._late = 0
        self._unreachable_since: Clock | None = None
        self._gone = ""

    async def run(self) -> None:
        phases = phases_of(self._work)
        order = [ask.thing for asks, _ in phases for ask in asks]
        self._driver.note(Note.ORDER, seed=self._work.seed, concurrency=self._work.concurrency, things=order)
        for asks, at_a_time in phases:
            talks = [list(talk) for _, talk in groupby(asks, partial(conversation_of, self._work))]
            to_do = iter([talk for talk in talks if any(ask.thing not in self._driver.finished for ask in talk)])
            workers = [asyncio.create_task(self._worker(to_do)) for _ in range(min(at_a_time, len(asks)))]
            await self._finish(workers)

    async def _finish(self, workers: list["asyncio.Task[None]"]) -> None:
        """Waits for all workers; once the client is stopped, only `_STOP_S` for requests in flight."""
        stop = asyncio.create_task(self._driver.stopping.wait())
        done: asyncio.Future[Any] = asyncio.gather(*workers)
        try:
            await asyncio.wait([stop, done], return_when=asyncio.FIRST_COMPLETED)
            await asyncio.wait([done], timeout=_STOP_S)
            if done.done():
                done.result()
        finally:
            for task in (stop, *workers):
                task.cancel()
            await asyncio.gather(done, *workers, return_exceptions=True)

    async def _worker(self, talks: Iterator[list[Ask]]) -> None:
        earlier: list[Answer] = []
        for ask in chain.from_iterable(talks):
            if self._driver.stopping.is_set() or self._gone:
                return
            del earlier[self._work.questions[ask.case].request.turn :]
            beside = self._in_flight
            self._driver.begin(ask.thing)
            self._in_flight += 1
            try:
                answer, refused = await self._ask(ask, earlier)
            finally:
                self._in_flight -= 1
            self._record(ask, answer, beside, refused, await self._similarities(ask, answer))
            self._watch(answer.failure)
            earlier.append(answer)

    async def _ask(self, ask: Ask, earlier: list[Answer]) -> tuple[Answer, int]:
        """The answer, and how often the server was too busy before. Retries only busy servers that say when, and failed
        connections."""
        question = self._work.questions[ask.case]
        clock, refused, request = Clock(question.request.limit_s or self._work.request_s), 0, question.request
        if request.turn:
            failures = [one.failure for one in earlier if one.failure] + [_NO_TURN] * (len(earlier) < request.turn)
            if failures:
                text = f"an earlier turn has no answer: {failures[0].message}"
                return Answer(failure=msgspec.structs.replace(failures[0], message=text)), 0
            request = continued(request, earlier)
        while True:
            if ask.crowd and question.request.mode is Mode.EMBED:
                answer = await self._ask_otherwise_batched(question.request, clock)
            else:
                answer = await self._client.ask(request, ask.stream, max(clock.left_s, 0.001))
            failure = answer.failure
            if failure is None or question.error:
                return with_checks(answer, question, ask.stream), refused
            pause_s = busy_for_s(failure)
            if failure.trouble is Trouble.UNREACHABLE and not self._is_gone(failure):
                pause_s = RECONNECT_S
            if pause_s is None or pause_s >= clock.left_s or await wait_for(self._driver.stopping, pause_s):
                return answer, refused
            refused += failure.trouble is Trouble.ANSWERED

    async def _ask_otherwise_batched(self, asked: Request, clock: Clock) -> Answer:
        """Embeds several inputs one by one, and a single input together with another."""
        written = asked.body["input"]
        batches = [[one] for one in written] if len(asked.inputs) > 1 else [[asked.inputs[0], _BESIDE]]
        found: list[Generation] = []
        for batch in batches:
            request = msgspec.structs.replace(asked, inputs=tuple(map(str, batch)), body={**asked.body, "input": batch})
            answer = await self._client.ask(request, False, max(clock.left_s, 0.001))
            if answer.failure is not None:
                return answer
            found += answer.generations[:1]
        return msgspec.structs.replace(answer, generations=tuple(found))

    def _is_gone(self, failure: Failure) -> bool:
        """True once connecting has failed for `_PATIENCE_S`."""
        if self._gone:
            return True
        self._unreachable_since = self._unreachable_since or Clock(_PATIENCE_S)
        if self._unreachable_since.left_s > 0:
            return False
        self._give_up(f"no connection to the server for {_PATIENCE_S:g} s: {failure.message}")
        return True

    def _watch(self, failure: Failure | None) -> None:
        trouble = failure.trouble if failure else None
        if trouble not in (Trouble.UNREACHABLE, Trouble.NOT_ASKED):
            self._unreachable_since = None
        self._late = self._late + 1 if trouble is Trouble.LATE else 0
        if self._late >= self._work.concurrency + LATE_IN_A_ROW:
            self._give_up(f"the server stopped answering: {self._late} requests in a row timed out")

    def _give_up(self, why: str) -> None:
        if not self._gone:
            self._gone = why
            self._driver.note(Note.GONE, why=why)

    async def _similarities(self, ask: Ask, answer: Answer) -> list[float]:
        """Similarities to the expected texts for rule `embedding`; empty if there is nothing to compare."""
        expected = self._work.questions[ask.case].texts
        made = generations_of(answer)
        if self._embedder is None or answer.failure is not None or len(made) != len(expected):
            return []
        return await self._embedder.similarities(expected, [one.text or "" for one in made])

    def _record(self, ask: Ask, answer: Answer, beside: int, refused: int, similarities: list[float]) -> None:
        """Writes the answer as one note, or as pieces if it is too long."""
        data = msgspec.json.encode(msgspec.structs.replace(answer, raw=()))
        optional = {"refused": refused, "similarities": similarities}
        extra: dict[str, Any] = {"beside": beside, **{name: value for name, value in optional.items() if value}}
        if len(data) <= PIECE_BYTES:
            self._driver.finish(ask.thing, answer=msgspec.Raw(data), **extra)
            return
        text = data.decode()
        step = PIECE_BYTES // 8  # a character may take six bytes, and more as JSON inside JSON
        pieces = [text[at : at + step] for at in range(0, len(text), step)]
        for piece in pieces:
            self._driver.note(Note.PIECE, thing=ask.thing, text=piece)
        self._driver.finish(ask.thing, pieces=len(pieces), **extra)


def with_checks(answer: Answer, question: Question, stream: bool) -> Answer:
    """Adds the broken rules of the protocol, the unmet expectations, and whether an error's message matches the
    expected pattern. Done here, where an endless search costs only this case."""
    failure, expect, request = answer.failure, question.expect or Expect(), question.request
    problems = list(broken_rules(answer.raw, request, stream)) if failure is None else []
    if question.error_pattern or question.expect is not None or request.decoding.guided is not None:
        import jsonschema  # imported before the clock starts  # noqa: F401

        signal.signal(signal.SIGVTALRM, _ring)
        signal.setitimer(signal.ITIMER_VIRTUAL, _SEARCH_S)
        try:
            if failure is not None and question.error_pattern:
                matches = bool(re.search(question.error_pattern, failure.message))
                failure = msgspec.structs.replace(failure, matches=matches)
            unmet_ones = list(unmet(expect, request, answer, stream))
        except TimeoutError:
            unmet_ones = [f"not checked: it took more than {_SEARCH_S:g} s of CPU time"]
        finally:
            signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        problems += unmet_ones
    return msgspec.structs.replace(answer, failure=failure, problems=tuple(problems))


def _ring(number: int, frame: object) -> None:
    raise TimeoutError
