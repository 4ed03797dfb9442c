"""TGIS's gRPC protocol: encodes neutral requests, and decodes its messages into neutral answers. Pure.

In proto3 a field that was not sent is zero. So zero is None for a rank, a seed or a count inside a stream, and
log-probabilities are only read if they were requested; NaN is None."""

import math
from collections.abc import Iterable
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from msgspec import structs

from seatrial.kinds.serving.generation import (
    Generation,
    Guide,
    Guided,
    Method,
    Request,
    StopReason,
    Token,
    Tokenization,
    TopToken,
)

# Message classes of TGIS's gRPC protocol (`fmaas.GenerationService`) and of gRPC's health service. They are made from
# the tables below, with the number of each field, so that no generated code ties Seatrial to a version of protobuf.
# `*` is a repeated field, `?` an optional one, `guided|` a member of the oneof `guided`.


GENERATION, HEALTH = "fmaas", "grpc.health.v1"

_ENUMS = {
    "DecodingMethod": "GREEDY SAMPLE",
    "StopReason": "NOT_FINISHED MAX_TOKENS EOS_TOKEN CANCELLED TIME_LIMIT STOP_SEQUENCE TOKEN_LIMIT ERROR",
    "ModelKind": "DECODER_ONLY ENCODER_DECODER",
    "ResponseFormat": "TEXT JSON",
}
_MESSAGES = {
    "GenerationRequest": "text:2 string",
    "BatchedGenerationRequest": (
        "model_id:1 string; prefix_id:2 ?string; requests:3 *GenerationRequest; adapter_id:4 ?string; "
        "params:10 Parameters"
    ),
    "SingleGenerationRequest": (
        "model_id:1 string; prefix_id:2 ?string; request:3 GenerationRequest; adapter_id:4 ?string; "
        "params:10 Parameters"
    ),
    "BatchedGenerationResponse": "responses:1 *GenerationResponse",
    "GenerationResponse": (
        "generated_token_count:2 uint32; text:4 string; input_token_count:6 uint32; stop_reason:7 StopReason; "
        "tokens:8 *TokenInfo; input_tokens:9 *TokenInfo; seed:10 uint64; stop_sequence:11 string"
    ),
    "Parameters": (
        "method:1 DecodingMethod; sampling:2 SamplingParameters; stopping:3 StoppingCriteria; "
        "response:4 ResponseOptions; decoding:5 DecodingParameters; truncate_input_tokens:6 uint32"
    ),
    "SamplingParameters": "temperature:1 float; top_k:2 uint32; top_p:3 float; typical_p:4 float; seed:5 ?uint64",
    "StoppingCriteria": (
        "max_new_tokens:1 uint32; min_new_tokens:2 uint32; time_limit_millis:3 uint32; stop_sequences:4 *string; "
        "include_stop_sequence:5 ?bool"
    ),
    "ResponseOptions": (
        "input_text:1 bool; generated_tokens:2 bool; input_tokens:3 bool; token_logprobs:4 bool; token_ranks:5 bool; "
        "top_n_tokens:6 uint32"
    ),
    "LengthPenalty": "start_index:1 uint32; decay_factor:2 float",
    "StringChoices": "choices:1 *string",
    "DecodingParameters": (
        "repetition_penalty:1 float; length_penalty:2 ?LengthPenalty; format:3 guided|ResponseFormat; "
        "json_schema:4 guided|string; regex:5 guided|string; choice:6 guided|StringChoices; grammar:7 guided|string"
    ),
    "TopToken": "text:2 string; logprob:3 float",
    "TokenInfo": "text:2 string; logprob:3 float; rank:4 uint32; top_tokens:5 *TopToken",
    "TokenizeRequest": "text:1 string",
    "BatchedTokenizeRequest": (
        "model_id:1 string; requests:2 *TokenizeRequest; return_tokens:3 bool; return_offsets:4 bool; "
        "truncate_input_tokens:5 uint32; prefix_id:6 ?string; adapter_id:7 ?string"
    ),
    "Offset": "start:1 uint32; end:2 uint32",
    "TokenizeResponse": "token_count:1 uint32; tokens:2 *string; offsets:3 *Offset",
    "BatchedTokenizeResponse": "responses:1 *TokenizeResponse",
    "ModelInfoRequest": "model_id:1 string",
    "ModelInfoResponse": "model_kind:1 ModelKind; max_sequence_length:2 uint32; max_new_tokens:3 uint32",
}
_HEALTH_ENUMS = {"ServingStatus": "UNKNOWN SERVING NOT_SERVING SERVICE_UNKNOWN"}
_HEALTH_MESSAGES = {"HealthCheckRequest": "service:1 string", "HealthCheckResponse": "status:1 ServingStatus"}
_Field = descriptor_pb2.FieldDescriptorProto
_SCALARS = {
    "string": _Field.TYPE_STRING,
    "uint32": _Field.TYPE_UINT32,
    "uint64": _Field.TYPE_UINT64,
    "float": _Field.TYPE_FLOAT,
    "bool": _Field.TYPE_BOOL,
}


def _messages(package: str, messages: dict[str, str], enums: dict[str, str]) -> dict[str, Any]:
    file = descriptor_pb2.FileDescriptorProto(name=f"seatrial/{package}.proto", package=package, syntax="proto3")
    for name, words in enums.items():
        made = file.enum_type.add(name=name)
        for number, word in enumerate(words.split()):
            made.value.add(name=word, number=number)
    for name, fields in messages.items():
        _add_fields(file.message_type.add(name=name), fields, package, enums)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return {name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{package}.{name}")) for name in messages}


def _add_fields(message: descriptor_pb2.DescriptorProto, fields: str, package: str, enums: dict[str, str]) -> None:
    parsed = [(field.split(":")[0], *field.split(":")[1].split(" ")) for field in fields.split("; ")]
    if any("|" in kind for _, _, kind in parsed):
        message.oneof_decl.add(name="guided")  # before those of optional fields
    for name, number, kind in parsed:
        field = message.field.add(name=name, number=int(number), label=_Field.LABEL_OPTIONAL)
        if kind.startswith("*"):
            field.label = _Field.LABEL_REPEATED
        elif kind.startswith("?"):
            field.proto3_optional, field.oneof_index = True, len(message.oneof_decl)
            message.oneof_decl.add(name=f"_{name}")
        elif "|" in kind:
            field.oneof_index = 0
        kind = kind.rpartition("|")[2].lstrip("*?")
        field.type = _SCALARS.get(kind, _Field.TYPE_ENUM if kind in enums else _Field.TYPE_MESSAGE)
        if kind not in _SCALARS:
            field.type_name = f".{package}.{kind}"


Messages = _messages(GENERATION, _MESSAGES, _ENUMS)
Health = _messages(HEALTH, _HEALTH_MESSAGES, _HEALTH_ENUMS)

_STOPS = [StopReason(word.lower()) for word in _ENUMS["StopReason"].split()]


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
    stopping, decoding = asked.stopping.explicit, asked.decoding.explicit
    penalty = decoding.length_penalty
    return {
        "method": int(sampled),
        "sampling": {name: getattr(sampling, name) for name in ("temperature", "top_k", "top_p", "typical_p", "seed")},
        "stopping": {
            "max_new_tokens": stopping.max_new_tokens,
            "min_new_tokens": stopping.min_new_tokens,
            "time_limit_millis": stopping.time_limit_ms,
            "stop_sequences": stopping.stop_sequences,
            "include_stop_sequence": asked.stopping.include_stop_sequence,
        },
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
    stop = _STOPS[response.stop_reason] if response.stop_reason < len(_STOPS) else StopReason.ERROR
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
