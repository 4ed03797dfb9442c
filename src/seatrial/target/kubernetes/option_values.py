"""The values of a Kubernetes target's options: what may be written for each, and what is wrong with the rest."""

import re
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, Field, WithJsonSchema

from seatrial.job.units import DURATION_PATTERN, SIZE_PATTERN, parse_duration, parse_size

_LABEL_PART = r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,61}[A-Za-z0-9])?"
_DNS_LABEL = r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?"
_SUBDOMAIN = rf"{_DNS_LABEL}(?:\.{_DNS_LABEL})*"
_CPU = re.compile(r"(\d+(?:\.\d+)?)(m?)")
_CPU_PATTERN = r"^\d+(\.\d+)?m?$"


def _matching(pattern: str, problem: str) -> AfterValidator:
    """A text that fits; `problem` is what the message says of others."""
    compiled = re.compile(pattern, re.DOTALL)

    def check(text: str) -> str:
        if not compiled.fullmatch(text):
            raise ValueError(f"{text!r} {problem}")
        return text

    return AfterValidator(check)


def _folder(text: str) -> str:
    if not text.startswith("/") or text == "/" or ":" in text or ".." in text.split("/"):
        raise ValueError(f"{text!r} is not a folder: an absolute path, not / itself, without .. and :")
    return text.rstrip("/")


def parse_cpu(value: Any) -> float:
    """Cores of `0.5`, `"2"`, `"50m"`."""
    cores = 0.0
    if isinstance(value, int | float) and not isinstance(value, bool):
        cores = float(value)
    elif isinstance(value, str) and (found := _CPU.fullmatch(value.strip())):
        cores = float(found[1]) / (1000 if found[2] else 1)
    if not 0.001 <= cores <= 1e6:
        raise ValueError(f"{value!r} is not a number of cores; write 2, 0.5 or thousandths (50m)")
    return cores


def _number_or(pattern: str) -> WithJsonSchema:
    return WithJsonSchema(
        {"anyOf": [{"type": "number", "exclusiveMinimum": 0}, {"type": "string", "pattern": pattern}]}
    )


_StrictText = Annotated[str, Field(strict=True)]
NonEmptyText = Annotated[_StrictText, _matching(r"(?=.*\S)[^\0]*", "is empty, or has a NUL in it")]
ObjectName = Annotated[
    _StrictText,
    _matching(rf"(?=.{{1,253}}$){_SUBDOMAIN}", "cannot be the name of an object: lower case letters, digits, - and ."),
]
Namespace = Annotated[
    _StrictText, _matching(_DNS_LABEL, "cannot be a namespace: at most 63 lower case letters, digits and -")
]
LabelKey = Annotated[
    _StrictText,
    _matching(
        rf"(?:{_SUBDOMAIN}/)?{_LABEL_PART}",
        "cannot be a label: write name or domain/name, as in `kubectl get nodes --show-labels`",
    ),
]
LabelValue = Annotated[
    _StrictText,
    _matching(f"(?:{_LABEL_PART})?", "cannot be a label's value: at most 63 letters, digits, -, _ and ."),
]
Labels = dict[LabelKey, LabelValue]
ResourceName = Annotated[
    _StrictText,
    _matching(
        f"{_SUBDOMAIN}/{_LABEL_PART}",
        "is not the name of a GPU resource: nvidia.com/gpu, nvidia.com/mig-1g.10gb, amd.com/gpu",
    ),
]
VariableName = Annotated[
    _StrictText,
    _matching(r"[A-Za-z_][A-Za-z0-9_]*", "cannot be the name of a variable: letters, digits and _, and no digit first"),
]
Folder = Annotated[_StrictText, AfterValidator(_folder)]
DurationValue = Annotated[float, BeforeValidator(parse_duration), _number_or(DURATION_PATTERN)]
SizeValue = Annotated[
    int, BeforeValidator(parse_size), WithJsonSchema({"type": "string", "pattern": SIZE_PATTERN, "examples": ["16Gi"]})
]
Cpu = Annotated[float, BeforeValidator(parse_cpu), _number_or(_CPU_PATTERN)]
