"""TGIS's gRPC protocol: a neutral request as its message, and its messages as neutral answers. Pure.

In proto3 a field that was not sent is zero. So zero is nothing where a server says nothing (a rank, a seed, a count in
the middle of a stream), and a log-probability is read where it was asked for; NaN is none."""

import math
from collections.abc import Iterable
from typing import Any

from seatrial.drive.serving.tgis_proto import Messages
from seatrial.job.generation import (
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

_GUIDES = {Guide.JSON_SCHEMA: "json_schema", Guide.REGEX: "regex", Guide.GRAMMAR: "grammar"}
_STOPS = (
    StopReason.NOT_FINISHED,
    StopReason.MAX_TOKENS,
    StopReason.EOS_TOKEN,
    StopReason.CANCELLED,
    StopReason.TIME_LIMIT,
    StopReason.STOP_SEQUENCE,
    StopReason.TOKEN_LIMIT,
    StopReason.ERROR,
)


def generate_request(asked: Request, model: str, stream: bool) -> Any:
    head = {"model_id": asked.model or model, "params": _parameters(asked), **_ids(asked)}
    texts = [Messages["GenerationRequest"](text=text) for text in asked.inputs]
    if stream:
        return Messages["SingleGenerationRequest"](request=texts[0], **head)
    return Messages["BatchedGenerationRequest"](requests=texts, **head)


def tokenize_request(asked: Request, model: str) -> Any:
    return Messages["BatchedTokenizeRequest"](
        model_id=asked.model or model,
        requests=[Messages["TokenizeRequest"](text=text) for text in asked.inputs],
        return_tokens=asked.wanted.generated_tokens,
        return_offsets=asked.wanted.offsets,
        truncate_input_tokens=asked.truncate_input_tokens,
        **_ids(asked),
    )


def _ids(asked: Request) -> dict[str, str]:
    named = {"prefix_id": asked.prefix_id, "adapter_id": asked.adapter_id}
    return {name: value for name, value in named.items() if value is not None}


def _parameters(asked: Request) -> Any:
    sampled = asked.method is Method.SAMPLE
    sampling = asked.sampling.explicit if sampled else asked.sampling
    given = {name: getattr(sampling, name) for name in ("temperature", "top_k", "top_p", "typical_p", "seed")}
    stopping, wanted = asked.stopping.explicit, asked.wanted
    made = Messages["Parameters"](
        method=int(sampled),
        sampling=Messages["SamplingParameters"](**{name: value for name, value in given.items() if value is not None}),
        stopping=Messages["StoppingCriteria"](
            max_new_tokens=stopping.max_new_tokens,
            min_new_tokens=stopping.min_new_tokens,
            time_limit_millis=stopping.time_limit_ms,
            stop_sequences=stopping.stop_sequences,
        ),
        response=Messages["ResponseOptions"](
            input_text=wanted.input_text,
            generated_tokens=wanted.generated_tokens,
            input_tokens=wanted.input_tokens,
            token_logprobs=wanted.token_logprobs,
            token_ranks=wanted.token_ranks,
            top_n_tokens=wanted.top_n_tokens,
        ),
        decoding=_decoding(asked),
        truncate_input_tokens=asked.truncate_input_tokens,
    )
    if asked.stopping.include_stop_sequence is not None:
        made.stopping.include_stop_sequence = asked.stopping.include_stop_sequence
    return made


def _decoding(asked: Request) -> Any:
    decoding = asked.decoding.explicit
    made = Messages["DecodingParameters"](repetition_penalty=decoding.repetition_penalty)
    if decoding.length_penalty is not None:
        penalty = decoding.length_penalty
        made.length_penalty.CopyFrom(
            Messages["LengthPenalty"](start_index=penalty.start_index, decay_factor=penalty.decay_factor)
        )
    if decoding.guided is not None:
        _guide(made, decoding.guided)
    return made


def _guide(made: Any, guided: Guided) -> None:
    if guided.guide in (Guide.TEXT, Guide.JSON):
        made.format = int(guided.guide is Guide.JSON)
    elif guided.guide is Guide.CHOICE:
        made.choice.choices.extend(guided.choices)
    else:
        setattr(made, _GUIDES[guided.guide], guided.value)


def generation_of(response: Any, asked: Request, message: bool) -> Generation:
    """Of a whole answer, or of one `message` of a stream, in which what is zero was not said."""
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
    wanted = asked.wanted.token_logprobs
    return tuple(
        Token(
            token.text,
            _logprob(token.logprob) if wanted else None,
            token.rank or None,
            tuple(TopToken(top.text, _logprob(top.logprob) if wanted else None) for top in token.top_tokens),
        )
        for token in tokens
    )


def _logprob(value: float) -> float | None:
    return None if math.isnan(value) else value


def tokenization_of(response: Any, asked: Request) -> Tokenization:
    tokens, offsets = asked.wanted.generated_tokens, asked.wanted.offsets
    return Tokenization(
        response.token_count,
        tuple(response.tokens) if tokens else None,
        tuple((one.start, one.end) for one in response.offsets) if offsets else None,
    )
