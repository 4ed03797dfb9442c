"""A server that answers as an API server does: nothing is there, and then very many pods go through their stages.

`python _scale_watch.py PODS RATE` prints its port, serves one watch, and ends with it."""

import asyncio
import sys
import time

NAMES = (("Pending", ""), ("Pending", "node-1"), ("Running", "node-1"), ("Running", "node-1"))
EMPTY = b'{"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"1"},"items":[]}'
TICK_S = 0.01
PADDING = "x" * 1500  # a real pod's event is about 2 kB


def line(pod: int, stage: int, version: int) -> bytes:
    phase, node = NAMES[stage]
    ready = "True" if stage == 3 else "False"
    spec = f'"nodeName":"{node}",' if node else ""
    return (
        f'{{"type":"{"MODIFIED" if stage else "ADDED"}","object":{{"kind":"Pod","apiVersion":"v1","metadata":{{'
        f'"name":"bench-{pod}-abcde","namespace":"default","uid":"00000000-0000-4000-8000-{pod:012d}",'
        f'"resourceVersion":"{version}","creationTimestamp":"2026-11-17T06:00:00Z",'
        f'"labels":{{"a":"b","seatrial/workload":"{pod}"}}}},"spec":{{{spec}"x":"{PADDING}"}},'
        f'"status":{{"phase":"{phase}","conditions":[{{"type":"Ready","status":"{ready}"}}]}}}}}}\n'
    ).encode()


async def head_of(reader: asyncio.StreamReader) -> bytes:
    """Of the next request; nothing when there is none."""
    try:
        return await reader.readuntil(b"\r\n\r\n")
    except asyncio.IncompleteReadError:
        return b""


async def serve(pods: int, rate: float) -> None:
    over = asyncio.Event()
    blocks = [b"".join(line(pod, stage, 2 + pod * 4 + stage) for stage in range(4)) for pod in range(pods)]

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while b"watch=1" not in (head := await head_of(reader)):
            if not head:
                return
            writer.write(
                b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(EMPTY)
            )
            writer.write(EMPTY)
        if b"/pods?" not in head:
            return
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n\r\n")
        begun_s, sent = time.monotonic(), 0
        while sent < pods:
            due = min(pods, int((time.monotonic() - begun_s) * rate / 4) + 1)
            writer.write(b"".join(blocks[sent:due]))
            sent = due
            await writer.drain()
            await asyncio.sleep(TICK_S)
        print(f"{time.monotonic() - begun_s:.3f}", flush=True)
        await reader.read()  # until the watcher goes
        over.set()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await over.wait()


if __name__ == "__main__":
    asyncio.run(serve(int(sys.argv[1]), float(sys.argv[2])))
