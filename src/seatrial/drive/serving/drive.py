"""`python -m seatrial.drive serving`: waits for the server's first answer, then asks the cases and offers the load."""

import contextlib
import os
from collections.abc import AsyncIterator

import msgspec

from seatrial.drive.driver import Driver
from seatrial.drive.serving.cases import Asking
from seatrial.drive.serving.client import make_client
from seatrial.drive.serving.embeddings import make_embedder
from seatrial.drive.serving.load import offer_load
from seatrial.drive.serving.ready import wait_until_ready
from seatrial.job.serving import CLIENT_CERT, CLIENT_KEY, EMBEDDINGS_TOKEN, SERVER_PORT, TOKEN, ServingWork


async def drive(driver: Driver) -> None:
    work = driver.work_as(ServingWork)
    if work.tls is not None:
        shown = {"cert": os.environ.get(CLIENT_CERT, ""), "key": os.environ.get(CLIENT_KEY, "")}
        work = msgspec.structs.replace(work, tls=msgspec.structs.replace(work.tls, **shown))
    async with _address(driver, work) as url:
        client = make_client(work, url, os.environ.get(TOKEN, ""))
        embedder = make_embedder(work.embeddings, os.environ.get(EMBEDDINGS_TOKEN, "")) if work.embeddings else None
        try:
            if await wait_until_ready(driver, work, client):
                await Asking(driver, work, client, embedder).run()
                if work.load is not None and not driver.stopping.is_set():
                    await offer_load(driver, work, work.load, client)
        finally:
            await client.close()
            if embedder is not None:
                await embedder.close()


@contextlib.asynccontextmanager
async def _address(driver: Driver, work: ServingWork) -> AsyncIterator[str]:
    if work.url:
        yield work.url
        return
    async with driver.endpoint(SERVER_PORT) as address:
        yield f"{'https' if work.tls or address.tls else 'http'}://{address}"
