"""The parts of an attempt at a serving cell: the server, where it is to be started, and the driver that asks it."""

import msgspec

from seatrial import __version__
from seatrial.job import Environment, Job, Limits, Part, Port, Ready, Resources, Step
from seatrial.job.generation import Case
from seatrial.job.serving import EMBEDDINGS_TOKEN, SERVER_PORT, TOKEN, Embeddings, Question, ServingWork, Tls
from seatrial.suite import HERE, Cell, substitute
from seatrial.trial.job import make_job, workspace_inputs
from seatrial.trial.planned import plan_workspace
from seatrial.trial.serving.gathered import EMBEDDING_MODEL, asked_cases, trace_of
from seatrial.trial.serving.model import ServingTrial

SERVER, DRIVER = "server", "driver"
HEALTH_PORT = "health"


def model_of(cell: Cell) -> ServingTrial:
    assert isinstance(cell.model, ServingTrial)
    return cell.model


def parts_of(cell: Cell, run: str, attempt: int) -> tuple[Part, ...]:
    """A server that is there already is no part: then the driver is all there is."""
    model = model_of(cell)
    job = make_job(cell, run, attempt, (), workspace_inputs(cell, model.workspace_of(cell.runtime)))
    driver = Part(DRIVER, _driver(cell, job), cell.target if model.driver else HERE)
    if model.server.url is not None:
        return (driver,)
    server = Part(SERVER, _server(cell, job), cell.target, leads=False)
    return server, msgspec.structs.replace(driver, after=SERVER)


def _server(cell: Cell, job: Job) -> Job:
    model = model_of(cell)
    server = model.server
    ready = server.ready
    ports = [Port(SERVER_PORT, server.port)]
    probe = Ready(SERVER_PORT, within_s=ready.within_s)
    if ready.http is not None:
        number, path = ready.place(substitute(ready.http, cell))
        if number is not None:
            ports.append(Port(HEALTH_PORT, number))
        probe = Ready(HEALTH_PORT if number is not None else SERVER_PORT, path, ready.within_s)
    steps = [planned.step for planned in plan_workspace(cell, model.workspace_of(cell.runtime))]
    steps.append(Step(SERVER, "run", {"command": substitute(server.command, cell)}))
    return msgspec.structs.replace(
        job,
        name=f"{job.name}-{SERVER}",
        part=SERVER,
        steps=tuple(steps),
        ports=tuple(ports),
        ready=probe,
        limits=_longer(job.limits, ready.within_s),
    )


def _longer(limits: Limits, ready_s: float) -> Limits:
    """A server is up before its driver begins and must outlive it: its own limit is only for when nobody ends it. It
    may say nothing for as long as nobody asks."""
    run_s = None if limits.run_s is None else limits.run_s + 2 * ready_s + limits.grace_s
    return msgspec.structs.replace(limits, run_s=run_s, stall_s=None)


def _driver(cell: Cell, job: Job) -> Job:
    """Its environment is Seatrial's own, or an image that has it, without the server's variables: it needs none of
    them."""
    model = model_of(cell)
    place = model.driver
    embeddings = model.compare.embeddings
    tokens = {TOKEN: model.server.token, EMBEDDINGS_TOKEN: embeddings.token if embeddings else None}
    work = msgspec.to_builtins(work_of(cell))
    return msgspec.structs.replace(
        job,
        name=f"{job.name}-{DRIVER}",
        part=DRIVER,
        steps=(Step(DRIVER, "drive", {"kind": "serving", "work": work}),),
        environment=Environment("seatrial", image=substitute(place.image, cell) if place else None, seatrial=not place),
        resources=Resources(place.cpu, place.memory_bytes, select=dict(place.select)) if place else Resources(),
        env={},
        secrets={name: one.secret for name, one in tokens.items() if one is not None},
        inputs=(),
    )


def work_of(cell: Cell) -> ServingWork:
    """What the driver of this cell is given to do."""
    model = model_of(cell)
    server = model.server
    embeddings = model.compare.embeddings if model.purpose == "compare" else None
    return ServingWork(
        version=__version__ if model.driver else "",
        questions=tuple(_question(case, embeddings is not None) for case in asked_cases(cell)),
        protocol=server.protocol,
        url=substitute(server.url, cell) or "",
        model=substitute(model.model, cell),
        tls=_tls(cell),
        headers=substitute(server.headers, cell),
        extra=substitute(server.extra, cell, typed=True),
        stream=model.stream,
        batching=model.batching if model.purpose == "compare" else model.purpose == "calibrate",
        concurrency=1 if model.purpose == "record" else model.concurrency,
        seed=model.seed,
        request_s=model.request_s,
        ready_s=server.ready.within_s,
        load=model.load.work(model.seed, trace_of(cell)) if model.load and model.purpose == "compare" else None,
        embeddings=Embeddings(
            substitute(embeddings.url, cell) or "", embeddings.model, cell.gathered.get(EMBEDDING_MODEL, "")
        )
        if embeddings
        else None,
    )


def _question(case: Case, with_texts: bool) -> Question:
    expected = case.answer.generations if case.answer is not None and with_texts else ()
    return Question(case.name, case.request, case.error is not None, tuple(one.text or "" for one in expected))


def _tls(cell: Cell) -> Tls | None:
    tls = model_of(cell).server.tls
    if tls is None:
        return None
    files = {
        name: str(cell.directory.resolve() / substitute(path, cell)) if path else ""
        for name, path in (("ca", tls.ca), ("cert", tls.cert), ("key", tls.key))
    }
    return Tls(**files, name=substitute(tls.name, cell) or "", verify=tls.verify)
