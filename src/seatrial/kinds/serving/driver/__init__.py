"""The client of a serving trial: asks cases and offers load, over HTTP or gRPC, and records the answers."""

import contextlib
import os

import msgspec

from seatrial.kinds.driver import Driver, wait_for
from seatrial.kinds.serving.driver.cases import Asking
from seatrial.kinds.serving.driver.client import LASTING, Client, Clock, busy_for_s, make_client
from seatrial.kinds.serving.driver.load import offer_load
from seatrial.kinds.serving.generation import Trouble
from seatrial.kinds.serving.request import EMBEDDINGS, RESPONSES, Mode, Request, Stopping
from seatrial.kinds.serving.work import SERVER_PORT, Note, Question, ServingWork, Variable

FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.05, 2.0
GREETING = Request(inputs=("Hello",))


async def wait_until_ready(driver: Driver, work: ServingWork, client: Client) -> bool:
    """Asks for one token until it is answered: some servers answer /health and crash on the first request. A restarted
    client does not ask again."""
    if Note.READY in driver.finished:
        return True
    asked = readiness_request(work.questions)
    clock, pause_s, tries = Clock(work.ready_s), FIRST_PAUSE_S, 0
    last, lasting, reached = "", False, False
    driver.begin(Note.READY)
    while not driver.stopping.is_set() and clock.left_s > 0:
        tries += 1
        limit_s = min(work.request_s, clock.left_s)
        failure = await client.health(limit_s) or (await client.ask(asked, False, limit_s)).failure
        if failure is None:
            seconds, about = round(clock.past_s, 4), await client.describe(limit_s)
            driver.finish(Note.READY, seconds=seconds, tries=tries, **({"about": about} if about else {}))
            return True
        last, lasting = failure.text, failure.code in LASTING
        reached = reached or failure.trouble is not Trouble.UNREACHABLE
        if lasting:
            break
        if tries == 1 or pause_s == LONGEST_PAUSE_S:
            driver.progress(f"waiting for the first answer: {last}")
        if await wait_for(driver.stopping, min(busy_for_s(failure) or pause_s, max(clock.left_s, 0.0))):
            break
        pause_s = min(2 * pause_s, LONGEST_PAUSE_S)
    driver.note(Note.UNREADY, seconds=round(clock.past_s, 4), tries=tries, why=last, lasting=lasting, reached=reached)
    return False


def readiness_request(questions: tuple[Question, ...]) -> Request:
    """Asks for one token with the shortest case, so that the request is like those that follow."""
    good = [one.request for one in questions if not one.error and one.request.mode is not Mode.TOKENIZE]
    good = [one for one in good if "".join(one.inputs[:1]) or one.messages]  # some servers refuse an empty prompt
    plain = [one for one in good if one.path not in (EMBEDDINGS, RESPONSES)]
    shortest = min(plain or good, key=lambda one: len(str((one.inputs, one.messages))), default=GREETING)
    if shortest.path in (EMBEDDINGS, RESPONSES):
        return shortest  # its server may refuse a completion
    inputs = shortest.inputs[:1]
    return msgspec.structs.replace(
        GREETING, inputs=inputs, messages=shortest.messages, model=shortest.model, stopping=Stopping(max_new_tokens=1)
    )


async def drive(driver: Driver) -> None:
    """`python -m seatrial.kinds.driver serving`: waits for the first answer, asks the cases, then offers the load."""
    work = driver.work_as(ServingWork)
    if work.tls is not None:
        shown = {"cert": os.environ.get(Variable.CLIENT_CERT, ""), "key": os.environ.get(Variable.CLIENT_KEY, "")}
        work = msgspec.structs.replace(work, tls=msgspec.structs.replace(work.tls, **shown))
    async with contextlib.AsyncExitStack() as stack:
        url = work.url
        if not url:
            address = await stack.enter_async_context(driver.endpoint(SERVER_PORT))
            url = f"{'https' if work.tls or address.tls else 'http'}://{address}"
        client = make_client(work, url, os.environ.get(Variable.TOKEN, ""))
        stack.push_async_callback(client.close)
        embedder = None
        if work.embeddings:
            from seatrial.kinds.serving.driver.embeddings import Embedder

            embedder = Embedder(work.embeddings, os.environ.get(Variable.EMBEDDINGS_TOKEN, ""))
            stack.push_async_callback(embedder.close)
        if await wait_until_ready(driver, work, client):
            await Asking(driver, work, client, embedder).run()
            if work.load is not None and not driver.stopping.is_set():
                await offer_load(driver, work, work.load, client)
