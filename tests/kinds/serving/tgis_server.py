"""A TGIS server for tests: grpcio in front of a real llama.cpp in the same process, whose tokens and logprobs it gives.

Usage: tgis_server.py MODEL.gguf. It listens on SEATRIAL_PORT; TLS_CERT, TLS_KEY and TLS_CLIENT_CA make it speak TLS and
want a certificate of its clients, TOKEN a bearer token. On SEATRIAL_PORT_HEALTH, if that is given, it has TGIS's
`/health` and `/metrics`, plain."""

import asyncio
import os
import sys
from pathlib import Path
from typing import Any

import grpc
import xllamacpp
from llama import free_port

from seatrial.kinds.serving.driver.openai import OpenAiClient
from seatrial.kinds.serving.driver.tgis_format import Messages
from seatrial.kinds.serving.generation import Generation, StopReason
from seatrial.kinds.serving.request import Method, Mode, Request, Sampling, Stopping, Wanted
from seatrial.kinds.serving.work import ServingWork

MOST_NEW, MOST = 100, 512
_STOPS = {StopReason.MAX_TOKENS: 1, StopReason.STOP: 2}


def start_llama(path: str) -> str:
    port = free_port()
    parameters = xllamacpp.CommonParams()
    parameters.model.path, parameters.hostnames, parameters.port = path, ["127.0.0.1"], port
    parameters.n_ctx, parameters.n_parallel, parameters.warmup = 8 * MOST, 8, False
    parameters.cpuparams.n_threads = 1
    start_llama.kept = xllamacpp.Server(parameters)  # type: ignore[attr-defined]
    return f"http://127.0.0.1:{port}"


class Service:
    def __init__(self, llama: OpenAiClient) -> None:
        self._llama = llama
        self.requests = self.tokens = 0  # that were answered, and generated

    async def http(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        metrics = f'# TYPE tgi_request_success counter\ntgi_request_success{{kind="single"}} {self.requests}\n'
        metrics += f"tgi_request_generated_tokens_sum {self.tokens}\ntgi_queue_size 0\n"
        body = metrics.encode() if head.startswith(b"GET /metrics ") else b""
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body))
        writer.close()

    async def generate(self, request: Any, context: Any) -> Any:
        await self._check(request.params, context)
        made = Messages["BatchedGenerationResponse"]()
        for one in request.requests:
            _, generation = await self._ask(one.text, request.params, context)
            made.responses.append(self._response(one.text, request.params, generation))
        return made

    async def stream(self, request: Any, context: Any) -> Any:
        params, text = request.params, request.request.text
        await self._check(params, context)
        _, generation = await self._ask(text, params, context)
        whole = self._response(text, params, generation)
        first = Messages["GenerationResponse"](input_token_count=whole.input_token_count)
        first.text = text if params.response.input_text else ""
        yield first
        if params.response.input_tokens:
            yield Messages["GenerationResponse"](input_tokens=whole.input_tokens)
        for place, token in enumerate(generation.tokens or ()):
            last = place + 1 == len(generation.tokens or ())
            message = Messages["GenerationResponse"](generated_token_count=place + 1, text=token.text)
            if params.response.generated_tokens:
                message.tokens.append(whole.tokens[place])
            if last:
                message.stop_reason, message.seed = whole.stop_reason, whole.seed
                message.generated_token_count = whole.generated_token_count
            yield message
            if os.environ.get("DIE_IN_STREAM") and place == 2:
                os._exit(3)

    async def tokenize(self, request: Any, context: Any) -> Any:
        made = Messages["BatchedTokenizeResponse"]()
        for one in request.requests:
            found = (await self._tokens(one.text)) or ()
            answer = made.responses.add(token_count=len(found))
            if request.return_tokens:
                answer.tokens.extend(found)
            at = 0
            for token in found if request.return_offsets else ():
                answer.offsets.add(start=at, end=at + len(token))
                at += len(token)
        return made

    async def model_info(self, request: Any, context: Any) -> Any:
        return Messages["ModelInfoResponse"](model_kind=0, max_sequence_length=MOST, max_new_tokens=MOST_NEW)

    async def health(self, request: Any, context: Any) -> Any:
        return Messages["HealthCheckResponse"](status=1)

    async def _check(self, params: Any, context: Any) -> None:
        token = os.environ.get("TOKEN")
        if token and ("authorization", f"Bearer {token}") not in list(context.invocation_metadata()):
            await context.abort(grpc.StatusCode.UNAUTHENTICATED, "who are you")
        stopping = params.stopping
        if stopping.max_new_tokens > MOST_NEW:
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, f"max_new_tokens must be <= {MOST_NEW}")
        if stopping.min_new_tokens > (stopping.max_new_tokens or 20):
            text = "min_new_tokens must be <= max_new_tokens"
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, text)

    async def _ask(self, text: str, params: Any, context: Any) -> tuple[Request, Generation]:
        sampling, top = params.sampling, max(params.response.top_n_tokens, 1)
        asked = Request(
            inputs=(text,),
            method=Method.SAMPLE if params.method else Method.GREEDY,
            sampling=Sampling(sampling.temperature or 1.0, sampling.top_k, sampling.top_p or 1.0, seed=sampling.seed),
            stopping=Stopping(params.stopping.max_new_tokens, stop_sequences=tuple(params.stopping.stop_sequences)),
            wanted=Wanted(generated_tokens=True, token_logprobs=True, top_n_tokens=top),
        )
        answer = await self._llama.ask(asked, False, 60.0)
        if answer.failure is not None:
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, answer.failure.message)
        self.requests, self.tokens = self.requests + 1, self.tokens + (answer.generations[0].generated_count or 0)
        return asked, answer.generations[0]

    async def _tokens(self, text: str) -> tuple[str, ...] | None:
        (found,) = (await self._llama.ask(Request(inputs=(text,), mode=Mode.TOKENIZE), False, 60.0)).tokenizations
        return found.tokens

    def _response(self, text: str, params: Any, generation: Generation) -> Any:
        options = params.response
        made = Messages["GenerationResponse"](
            input_token_count=generation.input_count,
            generated_token_count=generation.generated_count,
            text=(text if options.input_text else "") + (generation.text or ""),
            stop_reason=_STOPS[generation.stop_reason or StopReason.STOP],
            seed=params.sampling.seed if params.method else 0,
        )
        if options.generated_tokens:
            for token in generation.tokens or ():
                info = made.tokens.add(text=token.text, rank=1 if options.token_ranks else 0)
                info.logprob = (token.logprob or 0.0) if options.token_logprobs else 0.0
                for top in token.top[: options.top_n_tokens]:
                    info.top_tokens.add(text=top.text, logprob=(top.logprob or 0.0) if options.token_logprobs else 0.0)
        return made


def credentials() -> Any:
    key, cert, ca = (os.environ.get(name) for name in ("TLS_KEY", "TLS_CERT", "TLS_CLIENT_CA"))
    if not key or not cert:
        return None
    pair = (Path(key).read_bytes(), Path(cert).read_bytes())
    return grpc.ssl_server_credentials([pair], Path(ca).read_bytes() if ca else None, require_client_auth=bool(ca))


async def main() -> None:
    service = Service(OpenAiClient(ServingWork(model="tiny"), start_llama(sys.argv[1]), ""))

    def unary(method: Any, request: Any) -> Any:
        return grpc.unary_unary_rpc_method_handler(
            method, request_deserializer=request.FromString, response_serializer=lambda made: made.SerializeToString()
        )

    handlers = {
        "Generate": unary(service.generate, Messages["BatchedGenerationRequest"]),
        "Tokenize": unary(service.tokenize, Messages["BatchedTokenizeRequest"]),
        "ModelInfo": unary(service.model_info, Messages["ModelInfoRequest"]),
        "GenerateStream": grpc.unary_stream_rpc_method_handler(
            service.stream,
            request_deserializer=Messages["SingleGenerationRequest"].FromString,
            response_serializer=lambda made: made.SerializeToString(),
        ),
    }
    server = grpc.aio.server()
    checked = {"Check": unary(service.health, Messages["HealthCheckRequest"])}
    server.add_generic_rpc_handlers(
        (
            grpc.method_handlers_generic_handler("fmaas.GenerationService", handlers),
            grpc.method_handlers_generic_handler("grpc.health.v1.Health", checked),
        )
    )
    address, secure = f"127.0.0.1:{os.environ['SEATRIAL_PORT']}", credentials()
    bound = server.add_secure_port(address, secure) if secure else server.add_insecure_port(address)
    assert bound
    await server.start()
    if health := os.environ.get("SEATRIAL_PORT_HEALTH"):
        await asyncio.start_server(service.http, "127.0.0.1", int(health))
    print("listening", flush=True)
    await server.wait_for_termination()


asyncio.run(main())
