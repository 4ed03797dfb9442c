"""The values of a Kubernetes target's options: what may be written for each, and what is wrong with the rest."""

import re
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, Field, WithJsonSchema

from seatrial.job.units import DURATION_PATTERN, SIZE_PATTERN, parse_duration, parse_size

_LABEL_PART = r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,61}[A-Za-z0-9])?"
_SUBDOMAIN = r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?(?:\.[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?)*"
_KEY = re.compile(rf"(?:({_SUBDOMAIN})/)?({_LABEL_PART})")
_VALUE = re.compile(rf"(?:{_LABEL_PART})?")
_CPU = re.compile(r"(\d+(?:\.\d+)?)(m?)")
_CPU_PATTERN = r"^\d+(\.\d+)?m?$"
_NAME = re.compile(_SUBDOMAIN)
_NAMESPACE = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?")


def _text(text: str) -> str:
    if not text.strip() or "\0" in text:
        raise ValueError(f"{text!r} is empty, or has a NUL in it")
    return text


def _object_name(text: str) -> str:
    if not _NAME.fullmatch(text) or len(text) > 253:
        raise ValueError(f"{text!r} cannot be the name of an object: lower case letters, digits, - and .")
    return text


def _namespace(text: str) -> str:
    if not _NAMESPACE.fullmatch(text):
        raise ValueError(f"{text!r} cannot be a namespace: at most 63 lower case letters, digits and -")
    return text


def _label_key(text: str) -> str:
    if not _KEY.fullmatch(text):
        raise ValueError(
            f"{text!r} cannot be a label: write name or domain/name, as in `kubectl get nodes --show-labels`"
        )
    return text


def _label_value(text: str) -> str:
    if not _VALUE.fullmatch(text):
        raise ValueError(f"{text!r} cannot be a label's value: at most 63 letters, digits, -, _ and .")
    return text


def _resource_name(text: str) -> str:
    found = _KEY.fullmatch(text)
    if not found or not found[1]:
        raise ValueError(
            f"{text!r} is not the name of a GPU resource: nvidia.com/gpu, nvidia.com/mig-1g.10gb, amd.com/gpu"
        )
    return text


def _variable(text: str) -> str:
    if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", text):
        raise ValueError(f"{text!r} cannot be the name of a variable: letters, digits and _, and no digit first")
    return text


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


Text = Annotated[str, Field(strict=True), AfterValidator(_text)]
ObjectName = Annotated[str, Field(strict=True), AfterValidator(_object_name)]
Namespace = Annotated[str, Field(strict=True), AfterValidator(_namespace)]
LabelKey = Annotated[str, Field(strict=True), AfterValidator(_label_key)]
LabelValue = Annotated[str, Field(strict=True), AfterValidator(_label_value)]
Labels = dict[LabelKey, LabelValue]
ResourceName = Annotated[str, Field(strict=True), AfterValidator(_resource_name)]
Variable = Annotated[str, Field(strict=True), AfterValidator(_variable)]
Folder = Annotated[str, Field(strict=True), AfterValidator(_folder)]
Duration = Annotated[
    float,
    BeforeValidator(parse_duration),
    WithJsonSchema(
        {"anyOf": [{"type": "number", "exclusiveMinimum": 0}, {"type": "string", "pattern": DURATION_PATTERN}]}
    ),
]
Size = Annotated[
    int, BeforeValidator(parse_size), WithJsonSchema({"type": "string", "pattern": SIZE_PATTERN, "examples": ["16Gi"]})
]
Cpu = Annotated[
    float,
    BeforeValidator(parse_cpu),
    WithJsonSchema({"anyOf": [{"type": "number", "exclusiveMinimum": 0}, {"type": "string", "pattern": _CPU_PATTERN}]}),
]
