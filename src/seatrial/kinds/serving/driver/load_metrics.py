"""Summarizes the requests of a load: quantiles, rates, errors by kind, and a series by second. Pure."""

from collections import Counter
from collections.abc import Sequence

from seatrial.kinds.serving.driver.load_requests import Timed
from seatrial.kinds.serving.load_work import LATENCIES, QUANTILES, CheckedAnswers, LoadBound, LoadSummary, LoadWork

WARMUP_SHARE = 4  # warm-up is at most one in this many requests


def summarize_load(load: LoadWork, timed: Sequence[Timed], answers: CheckedAnswers | None = None) -> LoadSummary:
    """`timed` is in the order of scheduled starts."""
    import numpy as np

    good = [one for one in timed if not one.error]
    # First turns only: their later ones may be faster because the beginning of the prompt is cached.
    first = [one for one in good if one.turn <= 1]
    warm = warmup_requests([own_latency(one) for one in first])
    left_out = {id(one) for one in first[:warm]}
    counted = [one for one in good if id(one) not in left_out]
    values: dict[str, list[float]] = {
        "lag": [one.begun_s - one.intended_s for one in timed],
        "ttft": [one.stamps[0] - one.begun_s for one in counted if one.stamps],
        "ttfo": [one.answer_s - one.begun_s for one in counted if one.answer_s is not None],
        "first_byte": [one.first_byte_s - one.begun_s for one in counted if one.first_byte_s is not None],
        "itl": [gap for one in counted for gap in token_gaps(one)],
        "tpot": [own for one in counted if (own := tpot(one)) is not None],
        "e2e": [one.end_s - one.begun_s for one in counted],
    }
    if values["ttfo"] == values["ttft"] and all(bound.metric != "ttfo" for bound in load.bounds):
        values["ttfo"] = []  # there was no reasoning
    asked = {float(bound.part[1:]) for bound in load.bounds if bound.part.startswith("p")}
    percents = sorted({*QUANTILES, *asked})
    latencies = {}
    for name in LATENCIES:
        if values[name]:
            # inverted_cdf: a value that was actually measured, not an interpolation
            found = np.quantile(np.asarray(values[name]), [one / 100 for one in percents], method="inverted_cdf")
            latencies[name] = {f"p{one:g}": float(value) for one, value in zip(percents, found, strict=True)}
            mean, most = sum(values[name]) / len(values[name]), max(values[name])
            latencies[name] |= {"mean": mean, "max": most, "count": float(len(values[name]))}
    begin_s = timed[0].intended_s if timed else 0.0
    seconds = max((one.end_s for one in timed), default=begin_s) - begin_s
    offered_s = timed[-1].intended_s - begin_s if timed else 0.0
    tokens = sum(one.tokens for one in good)
    errors = Counter(one.error for one in timed if one.error)
    wrong = answers.wrong if answers is not None else 0
    # Answers that were not checked count as wrong as often as those that were.
    wrong_share = wrong / answers.checked if answers is not None and wrong else 0.0
    failed = errors.total() - wrong
    in_time = [one for one in timed if is_good(one, load.bounds)]
    unchecked = sum(not one.keep for one in in_time)
    return LoadSummary(
        requests=len(timed),
        warmup=warm,
        errors=failed + round(wrong_share * (len(timed) - failed)),
        error_kinds=dict(errors.most_common()),
        seconds=seconds,
        offered_rate=(len(timed) - 1) / offered_s if offered_s > 0 else 0.0,
        rate=len(good) / seconds if seconds > 0 else 0.0,
        tokens=tokens,
        tokens_per_s=tokens / seconds if seconds > 0 else 0.0,
        goodput=(len(in_time) - wrong_share * unchecked) / len(timed) if timed else 0.0,
        latencies=latencies,
        series=_series(timed, begin_s),
        turns=_turns(counted),
        lengths=load.words.unit,
        answers=answers,
    )


def own_latency(one: Timed) -> float:
    return (one.stamps[0] if one.stamps else one.end_s) - one.begun_s


def warmup_requests(values: Sequence[float]) -> int:
    """How many of the first requests took longer than all of the second half, because the server compiles or fills
    caches. 0 for a load that gets slower."""
    later = max(values[len(values) // 2 :], default=0.0)
    most = len(values) // WARMUP_SHARE
    return next((place for place in range(most) if values[place] <= later), most)


def token_gaps(one: Timed) -> list[float]:
    """Gaps between tokens. Tokens that arrive together share the time since the previous ones; gaps within the first
    group are unknown."""
    found: list[float] = []
    before_s, together = one.stamps[0] if one.stamps else 0.0, 0
    for place, at_s in enumerate(one.stamps):
        together += one.counts[place]
        if place + 1 < len(one.stamps) and one.stamps[place + 1] == at_s:
            continue
        if at_s > before_s:
            found += [(at_s - before_s) / together] * together
        before_s, together = at_s, 0
    return found


def tpot(one: Timed) -> float | None:
    """Time per output token; None for fewer than two tokens."""
    return (one.stamps[-1] - one.stamps[0]) / (one.tokens - 1) if len(one.stamps) > 1 and one.tokens > 1 else None


def is_good(one: Timed, bounds: Sequence[LoadBound]) -> bool:
    """True if answered within every bound that applies to a single request."""
    if one.error:
        return False
    ttft = one.stamps[0] - one.begun_s if one.stamps else None
    ttfo = one.answer_s - one.begun_s if one.answer_s is not None else None
    own = {"ttft": ttft, "ttfo": ttfo, "tpot": tpot(one), "e2e": one.end_s - one.begun_s}
    return all(bound.met_by(value) for bound in bounds if (value := own.get(bound.metric)) is not None)


def _turns(timed: Sequence[Timed]) -> list[dict[str, float]]:
    """The time to first token of each turn of conversations: the prompt grows, and its beginning may be cached."""
    found: dict[int, list[float]] = {}
    for one in timed:
        if one.turn and one.stamps:
            found.setdefault(one.turn, []).append(one.stamps[0] - one.begun_s)
    rows = [(turn, sorted(values)) for turn, values in sorted(found.items())]
    return [
        {"turn": turn, "requests": len(own), "p50": own[(len(own) - 1) // 2], "p99": own[-(-99 * len(own) // 100) - 1]}
        for turn, own in rows
    ]


def _series(timed: Sequence[Timed], begin_s: float) -> list[dict[str, float]]:
    """Rows by second of the scheduled start; at most 600, so long loads have wider rows."""
    if not timed:
        return []
    step = max(1.0, (timed[-1].intended_s - begin_s) / 600)
    found: dict[int, list[Timed]] = {}
    for one in timed:
        found.setdefault(int((one.intended_s - begin_s) // step), []).append(one)
    rows = []
    for number, ones in sorted(found.items()):
        latencies = sorted(own_latency(one) for one in ones if not one.error)
        requests, errors = float(len(ones)), float(len(ones) - len(latencies))
        row = {"at_s": number * step, "requests": requests, "errors": errors}
        if latencies:
            row["p50"], row["max"] = latencies[len(latencies) // 2], latencies[-1]
        rows.append(row)
    return rows
