"""Parts of an attempt at a serving cell: the server, if the trial starts it, and the client."""

import random

import msgspec

from seatrial import __version__
from seatrial.job import SECRET_FILE, Input, JobSpec, PartSpec, Port, Ready, Step
from seatrial.kinds.job import DRIVER, driver_job, make_job, plan_workspace, workspace_inputs
from seatrial.kinds.serving.answers import Tolerance, tolerance_for
from seatrial.kinds.serving.load_model import TOKENIZER, port_and_path
from seatrial.kinds.serving.load_work import AnswerCheck, LoadWork
from seatrial.kinds.serving.model import ServingTrial
from seatrial.kinds.serving.request import Case, ErrorMatch
from seatrial.kinds.serving.work import SERVER_PORT, Embeddings, Question, ServingWork, Tls, Variable
from seatrial.suite import HERE, Cell

SERVER = "server"
HEALTH_PORT, METRICS_PORT = "health", "metrics"
_ANSWER_BYTES = 256 << 10  # of a sample of recorded answers
CA = "ca.pem"  # in the client's work folder


def parts_of(cell: Cell) -> tuple[PartSpec, ...]:
    """Server and client; only the client if the server is already running."""
    model: ServingTrial = cell.spec
    job = make_job(cell, (), workspace_inputs(cell, model.workspace_of(cell.runtime)))
    driver = PartSpec(DRIVER, _driver(cell, job), cell.target if model.client else HERE)
    if model.server.url is not None:
        return (driver,)
    server = PartSpec(SERVER, _server(cell, job), cell.target, leads=False)
    return server, msgspec.structs.replace(driver, after=SERVER)


def _server(cell: Cell, job: JobSpec) -> JobSpec:
    model: ServingTrial = cell.spec
    server, ready_s = model.server, model.server.ready.within_s
    ports = _ports(model)
    probe = Ready(SERVER_PORT, within_s=ready_s)
    if server.ready.http is not None:
        path = port_and_path(server.ready.http)[1]
        probe = Ready(HEALTH_PORT if HEALTH_PORT in ports else SERVER_PORT, path, ready_s)
    steps = [planned.step for planned in plan_workspace(cell, model.workspace_of(cell.runtime))]
    # The server starts before the client and must outlive it; its own limit only matters if it is never stopped. It
    # may be silent while it has no requests, so it has no stall limit.
    limits = job.limits
    run_s = None if limits.run_s is None else limits.run_s + 2 * ready_s + limits.grace_s
    return msgspec.structs.replace(
        job,
        part=SERVER,
        steps=(*steps, Step(SERVER, "command", {"command": server.command})),
        ports=tuple(Port(name, number) for name, number in ports.items()),
        ready=probe,
        limits=msgspec.structs.replace(limits, run_s=run_s, stall_s=None),
    )


def _ports(model: ServingTrial) -> dict[str, int]:
    """Ports by name: for requests, and for readiness and the server's metrics if those differ."""
    ports = {SERVER_PORT: model.server.port}
    paths = {HEALTH_PORT: model.server.ready.http or "", METRICS_PORT: model.load.metrics if model.load else ""}
    for name, path in paths.items():
        number = port_and_path(path)[0]
        if number is not None and number not in ports.values():
            ports[name] = number
    return ports


def _load(cell: Cell) -> LoadWork | None:
    """A TGIS server has its metrics on the health port, because its own port only speaks gRPC."""
    model: ServingTrial = cell.spec
    if model.load is None or model.purpose != "compare":
        return None
    number, path = port_and_path(model.load.metrics)
    ports = _ports(model)
    if model.server.url is not None:
        port = str(number or "")
    elif number is None:
        port = HEALTH_PORT if model.server.protocol == "tgis" and HEALTH_PORT in ports else ""
    else:
        port = next(name for name, one in ports.items() if one == number)
    check = AnswerCheck(None, model.compare.rule, tolerance_of(cell))
    return model.load.work(model.seed, cell.gathered.trace, path, port, check)


def tolerance_of(cell: Cell) -> Tolerance:
    found: Tolerance | None = cell.gathered.tolerance
    return found or tolerance_for(cell.spec.compare.precision)


def _questions(cell: Cell, load: LoadWork | None, with_texts: bool) -> tuple[Question, ...]:
    """The cases. Those that a load may compare have their answers: as many as the sample, within a limit, because the
    description of a job in Kubernetes is limited."""
    cases, room = cell.gathered.asked, _ANSWER_BYTES
    carried: set[int] = set()
    if load is not None and load.check and not (load.lengths or load.prompts or load.check.rule.similarity):
        most = load.check.sample
        for index in random.Random(f"{load.seed} answers").sample(range(len(cases)), len(cases)):
            room -= len(msgspec.json.encode(cases[index].answer)) if most is not None else 0
            if room < 0 or len(carried) == most:
                break
            carried.add(index)
    return tuple(_question(case, with_texts, index in carried) for index, case in enumerate(cases))


def _driver(cell: Cell, job: JobSpec) -> JobSpec:
    """The client's job, without the server's environment variables."""
    model: ServingTrial = cell.spec
    embeddings = model.compare.embeddings
    tls = model.server.tls
    tokens = {Variable.TOKEN: model.server.token, Variable.EMBEDDINGS_TOKEN: embeddings.token if embeddings else None}
    secrets = {name.value: one.secret for name, one in tokens.items() if one is not None}
    shown = {Variable.CLIENT_CERT: tls.cert, Variable.CLIENT_KEY: tls.key} if tls else {}
    folder = cell.directory.resolve()
    secrets |= {name.value: f"{SECRET_FILE}{folder / path}" for name, path in shown.items() if path is not None}
    files = {CA: tls.ca if tls else None}
    if (load := model.load) is not None:
        files |= {load.prompts_file: load.prompts, TOKENIZER: load.lengths.tokenizer if load.lengths else None}
    inputs = tuple(Input(str(folder / path), name) for name, path in files.items() if path)
    driver = driver_job(job, "serving", work_of(cell), model.client)
    return msgspec.structs.replace(driver, env={}, secrets=secrets, inputs=inputs)


def work_of(cell: Cell) -> ServingWork:
    """What the client of this cell has to do."""
    model: ServingTrial = cell.spec
    server, tls, crowd = model.server, model.server.tls, model.concurrency > 1
    load = _load(cell)
    embeddings, place = model.compare.embeddings if model.purpose == "compare" else None, None
    if embeddings is not None:
        place = Embeddings(embeddings.url or "", embeddings.model, cell.gathered.embedding_model)
    return ServingWork(
        version=__version__ if model.client else "",
        questions=_questions(cell, load, embeddings is not None),
        protocol=server.protocol,
        url=server.url or "",
        model=model.model,
        tls=Tls(ca=CA if tls.ca else "", name=tls.name or "", verify=tls.verify) if tls else None,
        headers=server.headers,
        extra=server.extra,
        stream=model.stream,
        batching=model.purpose == "calibrate" or (model.purpose == "compare" and model.batching and crowd),
        concurrency=1 if model.purpose == "record" else model.concurrency,
        seed=model.seed,
        request_s=model.request_s,
        ready_s=server.ready.within_s,
        load=load,
        embeddings=place,
    )


def _question(case: Case, with_texts: bool, with_answer: bool) -> Question:
    recorded = case.answer.generations if case.answer is not None else ()
    expected = recorded if with_texts else ()
    pattern = (case.error.message or "") if case.error and case.error.match is ErrorMatch.PATTERN else ""
    return Question(
        case.name,
        case.request,
        case.error is not None,
        tuple(one.text or "" for one in expected),
        (recorded[0].generated_count if recorded[0].text else 0) if len(recorded) == 1 else None,
        case.answer if with_answer else None,
        case.skip_check,
        pattern,
        case.expect,
    )
