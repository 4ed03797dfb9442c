"""A reader of another distribution: lines such as `copy h2d 52.5 GB/s`, and a last line `done` or `errors: N`."""

import re

METRICS = {"h2d": ("GB/s", "higher"), "d2h": ("GB/s", "higher"), "latency": ("us", "lower")}


def read(data: bytes, options: dict) -> dict:
    text = data.decode("utf-8", "replace")
    if "bug" in text:
        raise KeyError("bug")
    found = re.findall(r"^(?:copy )?(\w+) ([\d.]+|inf|nan) (?:GB/s|us)$", text, re.M)
    if not found:
        raise ValueError("there is no line of a copy")
    metrics = {name: float(value) * float(options.get("scale", 1)) for name, value in found}
    errors = re.search(r"errors: (\d+)", text)
    if errors:
        return {"metrics": metrics, "verdict": "failed", "why": f"{errors[1]} copies were wrong"}
    if "done" not in text:
        return {"metrics": metrics, "verdict": "unjudged", "why": "it does not say that it was done"}
    return {"metrics": metrics}
