"""Learns the weights of stats/changes.py from labelled series, and says how well they do on series left out.

The series are dealt into eight parts, all of one source into the same part; for each part the weights and the
threshold are learned from the other seven. This is done three times with other parts.
"""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
from _labels import Labelled, labelled_series, metrics, pairs, score
from _measure import left_out, sized, table
from numpy.typing import NDArray

from seatrial.stats.changes import Signal, candidates, features, least_confidence, prune, signal_of

Floats = NDArray[np.float64]
PARTS, TIMES, ROUNDS = 8, sized(3, 1), 2
RIDGE = 1.0
MOST_FALSE = 0.85  # false alarms per 1,000 runs of the series learned from
STEEP = 0.2  # how fast the threshold rises with the number of changes, before the confidence is calibrated
THRESHOLDS = np.arange(0.16, 0.48, 0.01)  # for a single change
CONTEXTS = (0.1, 0.25, 0.4)  # thresholds of a first round, whose changes are learned from in the second


@dataclass(frozen=True)
class Example:
    labelled: Labelled
    signal: Signal
    places: NDArray[np.intp]


@dataclass(frozen=True)
class Rule:
    intercept: float
    weights: Floats

    def chance(self, rows: Floats) -> Floats:
        return np.asarray(1 / (1 + np.exp(-(self.intercept + rows @ self.weights))))

    def found(self, example: Example, least: float) -> tuple[NDArray[np.intp], Floats]:
        def chance(left: NDArray[np.intp], at: NDArray[np.intp], right: NDArray[np.intp]) -> Floats:
            return self.chance(features(example.signal, left, at, right))

        rising = partial(least_confidence, runs=len(example.signal), least=least, rise=STEEP)
        return prune(example.places, len(example.signal), chance, rising)


def learn(examples: Sequence[Example]) -> Rule:
    contexts = [[example.places] for example in examples]
    rule = fit(examples, contexts)
    for _ in range(ROUNDS - 1):
        contexts = [[e.places, *(rule.found(e, least)[0] for least in CONTEXTS)] for e in examples]
        rule = fit(examples, contexts)
    return rule


def fit(examples: Sequence[Example], contexts: Sequence[Sequence[NDArray[np.intp]]]) -> Rule:
    rows, shares, weights = [], [], []
    for example, sets in zip(examples, contexts, strict=True):
        sets = [places for places in sets if len(places)]
        for places in sets:
            bounds = np.concatenate(([0], places, [len(example.signal)]))
            rows.append(features(example.signal, bounds[:-2], bounds[1:-1], bounds[2:]))
            shares.append(marked(example.labelled, places))
            weights.append(np.full(len(places), 1 / len(sets)))
    return logistic(np.concatenate(rows), np.concatenate(shares), np.concatenate(weights))


def marked(labelled: Labelled, places: NDArray[np.intp]) -> Floats:
    """The share of people who marked each place."""
    votes = np.zeros(len(places))
    for marks in labelled.people:
        votes += np.isin(places, list(pairs(marks, places.tolist()).values()))
    return votes / len(labelled.people)


def logistic(rows: Floats, shares: Floats, weights: Floats) -> Rule:
    mean = np.average(rows, axis=0, weights=weights)
    scale = np.sqrt(np.average((rows - mean) ** 2, axis=0, weights=weights)) + 1e-9
    inputs = np.column_stack([np.ones(len(rows)), (rows - mean) / scale])
    ridge = np.diag([1e-9] + [RIDGE] * rows.shape[1])
    theta = np.zeros(inputs.shape[1])
    for _ in range(20):
        chance = 1 / (1 + np.exp(-inputs @ theta))
        slope = inputs.T @ (weights * (chance - shares)) + ridge @ theta
        theta -= np.linalg.solve((inputs * (weights * chance * (1 - chance))[:, None]).T @ inputs + ridge, slope)
    return Rule(float(theta[0] - (mean / scale) @ theta[1:]), theta[1:] / scale)


def threshold(rule: Rule, examples: Sequence[Example]) -> float:
    """The lowest with few enough false alarms."""
    for least in THRESHOLDS.tolist():
        scores = [score(e.labelled, rule.found(e, least)[0].tolist()) for e in examples]
        if metrics(scores)[2] <= MOST_FALSE:
            return float(least)
    return float(THRESHOLDS[-1])


def held_out(examples: Sequence[Example], seed: int) -> tuple[list[float], list[tuple[float, float]]]:
    """The three metrics and the mean threshold; and (chance, agreed or not) of all that was found."""
    dice = np.random.default_rng(seed)
    sources = sorted({e.labelled.source for e in examples})
    part = dict(zip(sources, dice.permutation(np.arange(len(sources)) % PARTS).tolist(), strict=True))
    scores, thresholds = [], []
    said: list[tuple[float, float]] = []
    for out in range(PARTS):
        rest = [e for e in examples if part[e.labelled.source] != out]
        rule = learn(rest)
        least = threshold(rule, rest)
        thresholds.append(least)
        for example in (e for e in examples if part[e.labelled.source] == out):
            places, chances = rule.found(example, least)
            scores.append(score(example.labelled, places.tolist()))
            right = np.isin(places, list(pairs(example.labelled.agreed, places.tolist()).values()))
            said += zip(chances.tolist(), right.tolist(), strict=True)
    return [*metrics(scores), statistics.fmean(thresholds)], said


def main() -> None:
    series = labelled_series()
    if not series:
        left_out("SEATRIAL_CHANGES_DATA names no file of labelled series")
    examples = []
    for labelled in series:
        signal = signal_of(np.array(labelled.values))
        if signal is not None:
            examples.append(Example(labelled, signal, candidates(signal)))
    rule = learn(examples)
    rounds = [held_out(examples, seed) for seed in range(TIMES)]
    print("held out, (F1, cF1, FA/1k, threshold) each time:")
    for result, _ in rounds:
        print("  ", [round(metric, 3) for metric in result])
    said = [pair for _, pairs_of_round in rounds for pair in pairs_of_round]
    chances, right = np.array([c for c, _ in said]), np.array([float(r) for _, r in said])
    sure = logistic(np.log(chances / (1 - chances))[:, None], right, np.full(len(right), 1 / TIMES))
    slope = float(sure.weights[0])
    weights = [round(slope * weight, 2) for weight in rule.weights.tolist()]
    print("INTERCEPT", round(sure.intercept + slope * rule.intercept, 2), "WEIGHTS", weights)
    least = statistics.fmean(result[3] for result, _ in rounds)
    single = float(sure.chance(np.array([[np.log(least / (1 - least))]]))[0])
    print("LEAST", round(single, 2), "RISE", round(slope * STEEP, 2))
    confident = sure.chance(np.log(chances / (1 - chances))[:, None])
    rows = []
    for low in (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9):
        some = (confident >= low) & (confident < low + 0.1)
        if some.any():
            rows.append(
                (f"{low:.1f} to {low + 0.1:.1f}", f"{confident[some].mean():.2f} said, {right[some].mean():.2f} so")
            )
    table("confidence, held out", rows)


if __name__ == "__main__":
    main()
