"""YAML is read within limits, whoever wrote it."""

import pytest
import yaml

from seatrial.limited_yaml import YamlLimit, limited_events, load_all

NINE = [b"b%d: &b%d [%s]" % (n, n, b",".join([b"*b%d" % (n - 1) if n else b"x"] * 9)) for n in range(9)]
BOMB = b"\n".join(NINE)
MERGED = b"b0: &b0 {x: 1}\n" + BOMB.partition(b"\n")[2].replace(b"[", b"{<<: [").replace(b"]", b"]}")


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (b"a: " + b"[" * 40_000 + b"]" * 40_000, "nested too deeply (limit 50 levels)"),
        (b"a: " + b"{b: " * 40_000, "nested too deeply (limit 50 levels)"),
        (b"- " * 40_000, "nested too deeply (limit 50 levels)"),
        (BOMB, "too many values, including aliases (limit 200,000)"),
        (MERGED, "too many values, including aliases (limit 200,000)"),
        (b"a: &a [*a]", "alias *a is inside its own anchor"),
        (b"a: &a [x]\n---\nb: *a", "alias *a has no anchor before it"),
        (b"a: " + b"1" + b":01" * 200_000, "a number has too many digits (limit 300)"),
        (b'a: !!int "1' + b":01" * 200_000 + b'"', "a number has too many digits (limit 300)"),
        (b"a: 1" + b":01" * 300 + b".5", "a number has too many digits (limit 300)"),
    ],
    ids=[
        "lists", "maps", "blocks", "aliases", "merges", "circle", "other document", "number", "tagged number", "float",
    ],
)  # fmt: skip
def test_text_beyond_a_limit_is_refused_before_it_is_built(text: bytes, why: str) -> None:
    with pytest.raises(YamlLimit) as caught:
        load_all(text)
    assert caught.value.problem == why
    assert caught.value.problem_mark is not None


def test_values_are_counted_with_their_aliases() -> None:
    text = "a: &a [1, 2]\nb: *a\n"  # 1 map, 2 keys, 3 values and again 3
    assert len(list(limited_events(text, 9))) > 9
    with pytest.raises(YamlLimit, match=r"limit 8\); split it"):
        list(limited_events(text, 8, "split it"))


def test_what_is_within_the_limits_is_read_as_kubernetes_reads_it() -> None:
    text = "mode: 0644\non: yes\nlist: &l [1]\nagain: *l\n---\n" + "[" * 51 + "]" * 51
    first, second = load_all(text)
    assert first == {"mode": 0o644, True: True, "list": [1], "again": [1]}
    assert str(second) == "[" * 51 + "]" * 51


def test_invalid_yaml_is_an_error_of_yaml() -> None:
    with pytest.raises(yaml.YAMLError):
        load_all(b"a: [")
    with pytest.raises(ValueError, match="month"):
        load_all("a: 2026-13-45")
