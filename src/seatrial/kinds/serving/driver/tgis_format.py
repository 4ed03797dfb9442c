"""TGIS's gRPC protocol: encodes neutral requests, and decodes its messages into neutral answers. Pure.

In proto3 a field that was not sent is zero. So zero is None for a rank, a seed or a count inside a stream, and
log-probabilities are only read if they were requested; NaN is None."""

import math
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, text_format
from msgspec import structs

from seatrial.kinds.serving.generation import Generation, StopReason, Token, Tokenization, TopToken
from seatrial.kinds.serving.request import Guide, Guided, Method, Request

GENERATION, HEALTH = "fmaas", "grpc.health.v1"


def _message_classes() -> dict[str, Any]:
    """Classes of TGIS's protocol (`fmaas.GenerationService`) and of gRPC's health service, by name. Made when imported,
    so that no generated code ties Seatrial to a version of protobuf."""
    text = Path(__file__).with_name("tgis.txtpb").read_text()
    files = text_format.Parse(text, descriptor_pb2.FileDescriptorSet()).file
    pool = descriptor_pool.DescriptorPool()
    for file in files:
        pool.Add(file)
    found = message_factory.GetMessageClassesForFiles([file.name for file in files], pool)
    return {name.rpartition(".")[2]: one for name, one in found.items()}


Messages = _message_classes()


def enum_word(message: Any, field: str) -> str:
    """The name of an enum's value; that of a later version of the protocol is UNKNOWN."""
    value = message.DESCRIPTOR.fields_by_name[field].enum_type.values_by_number.get(getattr(message, field))
    return value.name if value else "UNKNOWN"


def _head(asked: Request, model: str) -> dict[str, str | None]:
    return {"model_id": asked.model or model, "prefix_id": asked.prefix_id, "adapter_id": asked.adapter_id}


def generate_request(asked: Request, model: str, stream: bool) -> Any:
    texts, head = [{"text": text} for text in asked.inputs], _head(asked, model)
    if stream:
        return Messages["SingleGenerationRequest"](request=texts[0], params=_parameters(asked), **head)
    return Messages["BatchedGenerationRequest"](requests=texts, params=_parameters(asked), **head)


def tokenize_request(asked: Request, model: str) -> Any:
    return Messages["BatchedTokenizeRequest"](
        requests=[{"text": text} for text in asked.inputs],
        return_tokens=asked.wanted.generated_tokens,
        return_offsets=asked.wanted.offsets,
        truncate_input_tokens=asked.truncate_input_tokens,
        **_head(asked, model),
    )


def _parameters(asked: Request) -> dict[str, object]:
    """Fields that are None are not sent."""
    sampled = asked.method is Method.SAMPLE
    sampling = asked.sampling.explicit if sampled else asked.sampling
    stopping, decoding = structs.asdict(asked.stopping.explicit), asked.decoding.explicit
    stopping["time_limit_millis"] = stopping.pop("time_limit_ms")
    stopping["include_stop_sequence"] = asked.stopping.include_stop_sequence
    penalty = decoding.length_penalty
    return {
        "method": int(sampled),
        "sampling": {name: getattr(sampling, name) for name in ("temperature", "top_k", "top_p", "typical_p", "seed")},
        "stopping": stopping,
        "response": {name: value for name, value in structs.asdict(asked.wanted).items() if name != "offsets"},
        "decoding": {
            "repetition_penalty": decoding.repetition_penalty,
            "length_penalty": structs.asdict(penalty) if penalty else None,
            **(_guided(decoding.guided) if decoding.guided else {}),
        },
        "truncate_input_tokens": asked.truncate_input_tokens,
    }


def _guided(guided: Guided) -> dict[str, object]:
    if guided.guide in (Guide.TEXT, Guide.JSON):
        return {"format": int(guided.guide is Guide.JSON)}
    if guided.guide is Guide.CHOICE:
        return {"choice": {"choices": guided.choices}}
    return {guided.guide.value: guided.value}


def generation_of(response: Any, asked: Request, message: bool) -> Generation:
    """Decodes a whole answer, or one `message` of a stream, where zero means not set."""
    wanted = asked.wanted
    word = enum_word(response, "stop_reason").lower()
    stop = StopReason(word) if word in set(StopReason) else StopReason.ERROR
    return Generation(
        text=response.text,
        input_count=response.input_token_count or (None if message else 0),
        generated_count=response.generated_token_count or (None if message else 0),
        stop_reason=None if message and stop is StopReason.NOT_FINISHED else stop,
        stop_sequence=response.stop_sequence or None,
        seed=response.seed or None,
        tokens=_tokens(response.tokens, asked) if wanted.generated_tokens and response.tokens else None,
        input_tokens=_tokens(response.input_tokens, asked) if wanted.input_tokens and response.input_tokens else None,
    )


def _tokens(tokens: Iterable[Any], asked: Request) -> tuple[Token, ...]:
    def logprob(one: Any) -> float | None:
        return one.logprob if asked.wanted.token_logprobs and not math.isnan(one.logprob) else None

    made = []
    for token in tokens:
        top = tuple(TopToken(top.text, logprob(top)) for top in token.top_tokens)
        made.append(Token(token.text, logprob(token), token.rank or None, top))
    return tuple(made)


def tokenization_of(response: Any, asked: Request) -> Tokenization:
    tokens = tuple(response.tokens) if asked.wanted.generated_tokens else None
    offsets = tuple((one.start, one.end) for one in response.offsets) if asked.wanted.offsets else None
    return Tokenization(response.token_count, tokens, offsets)
