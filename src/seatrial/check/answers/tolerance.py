"""How far answers may be apart, by the precision that the server computes in: data, and what calibration measured."""

import msgspec


class Tolerance(msgspec.Struct, frozen=True, omit_defaults=True):
    """In nats, natural logarithms of probabilities."""

    precision: str
    drift: float  # of one log-probability
    rms: float  # of all of a trial: the root of their mean square
    near_tie: float  # between the two likeliest tokens, for a text that went the other way
    near_ties: float | None = None  # share of cases that went the other way, as calibration saw it
    source: str = ""  # where it comes from


_MEASURED = (
    "a Llama of 156 K parameters through transformers, llama.cpp and NumPy against transformers in float32: "
    "about twice the largest difference that was only rounding"
)
# Of larger models both rounding and faults are larger: `seatrial calibrate` measures the one that is served.
TOLERANCES = {
    "f32": Tolerance("f32", drift=8e-3, rms=1e-3, near_tie=8e-3, source=_MEASURED),
    "f16": Tolerance("f16", drift=2e-2, rms=3.5e-3, near_tie=2e-2, source=_MEASURED),
    "bf16": Tolerance("bf16", drift=0.16, rms=3e-2, near_tie=0.16, source=_MEASURED),
    "q8_0": Tolerance("q8_0", drift=0.25, rms=4e-2, near_tie=0.25, source=_MEASURED),
}
PRECISIONS = {
    **{"float32": "f32", "fp32": "f32", "float": "f32", "float16": "f16", "fp16": "f16", "half": "f16"},
    **{"bfloat16": "bf16", "int8": "q8_0", "q8": "q8_0"},
}


def tolerance_for(precision: str) -> Tolerance:
    """By its name, or one of its other names. Raises KeyError for what nobody has measured."""
    name = precision.lower()
    return TOLERANCES[PRECISIONS.get(name, name)]
