"""Some hundred bad inputs of every kind, always the same; `make fuzz` makes as many as there is time for."""

import pytest

from fuzz import fuzzing
from fuzz.fuzzing import Kind, failures
from fuzz.inputs import all_kinds
from fuzz.mutate import json_text
from fuzz.seeds import Seeds

SEED, COUNT = 7, 200
# Written out, so that one that is gone is missed.
KINDS = [
    "answers-errors", "answers-http", "answers-pages", "answers-pods", "answers-roots", "answers-warnings",
    "answers-watches", "baselines", "cases", "cases-json", "curves", "curves-csv",
    "job-folders-end", "job-folders-job", "job-folders-supervisor", "journals", "kubeconfigs", "live-files",
    "load-prompts-csv", "load-prompts-jsonl", "load-results", "load-sharegpt-json", "load-trace-jsonl", "logs",
    "metrics-json", "metrics-lines",
    "models-answers", "models-refusals", "models-streams", "models-tokens", "notebooks", "notes",
    "observations-steps", "observations-train", "owners", "past-runs", "past-runs-csv", "plans", "profiles-gz",
    "profiles-kineto", "profiles-xplane", "records-steps", "records-train", "results", "runai-objects",
    "runai-sampled", "runai-submissions", "runai-submitted", "runai-templates", "scale-stamps", "scale-submitted",
    "series", "suites", "workflows",
]  # fmt: skip


@pytest.fixture(scope="module")
def kinds(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Kind]:
    return all_kinds(Seeds.make(tmp_path_factory.mktemp("seeds")))


@pytest.mark.xdist_group("fuzz")
@pytest.mark.parametrize("name", KINDS)
def test_whatever_is_read_only_our_errors_come_of_it(kinds: dict[str, Kind], name: str) -> None:
    found = list(failures(kinds[name], SEED, 0, COUNT))
    assert not found, f"{len(found)} of {COUNT} inputs failed; the first:\n{found[0]}"


@pytest.mark.xdist_group("fuzz")
def test_every_kind_is_in_the_list(kinds: dict[str, Kind]) -> None:
    assert sorted(kinds) == KINDS


def _good(data: bytes) -> bytes:
    return data


def _bad(data: bytes) -> object:
    return {}["not there"]


def _endless(data: bytes) -> object:
    while True:
        pass


def _greedy(data: bytes) -> object:
    return len(b"x" * (fuzzing.used_bytes() + fuzzing.MOST_BYTES + 1))


@pytest.mark.parametrize(
    ("use", "what"), [(_bad, "KeyError"), (_endless, "not read within 0.05 s"), (_greedy, "grew by")]
)
def test_an_error_of_others_a_hang_and_too_much_memory_are_found(
    use: fuzzing.Use, what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fuzzing, "MOST_BYTES", 32 << 20)
    monkeypatch.setattr(fuzzing, "MOST_S", 0.05 if use is _endless else 5.0)
    (found,) = failures(Kind("planted", [b"{}"], lambda data, rng: data, use), SEED, 3, 1)
    assert what in found.what
    assert "make fuzz KINDS=planted SEED=7 FIRST=3 COUNT=1" in str(found)


def test_the_same_numbers_make_the_same_input() -> None:
    kind = Kind("planted", [b'{"a": [1, 2, {"b": null}]}', b"[]"], json_text, _good)
    made = [kind.input(SEED, number) for number in range(50)]
    assert made == [kind.input(SEED, number) for number in range(50)]
    assert len(set(made)) > 20
