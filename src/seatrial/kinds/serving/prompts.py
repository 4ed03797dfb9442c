"""Prompts of a load: from a file (JSONL, CSV, ShareGPT's JSON, a Mooncake trace), made up by length, or of the cases.
Files are read piece by piece, because they may be larger than the memory. Imported by the client."""

import csv
import io
import random
import re
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from itertools import cycle, islice
from pathlib import Path
from typing import Annotated, Any, BinaryIO

import msgspec

from seatrial.job import Unreadable, convert, decode
from seatrial.job.reading import lines, opened_regular
from seatrial.kinds.serving.load_work import WORDS, LoadWork, WordList
from seatrial.kinds.serving.request import CHAT, COMPLETIONS, Mode, Request, Stopping
from seatrial.kinds.serving.work import Question

MOST_PROMPTS, MOST_BYTES = 100_000, 256 << 20  # that a client keeps; it repeats them
_PIECE = 1 << 20
_LONGEST = 16 << 20  # bytes of one prompt in a file
_BLOCK = 512  # tokens of a block of a Mooncake trace; prompts with the same first blocks begin with the same text
_TOKENS = 128  # of an answer, unless the file or `lengths` says how many
# Possessive: a long string needs no memory. The group is empty for a string that goes on after the end of the buffer.
_BRACKETS = re.compile(rb'"(?:[^"\\]++|\\.)*+("?)|[{}\[\]]', re.DOTALL)
_PEOPLE = ("human", "user")

_Length = Annotated[int, msgspec.Meta(ge=1, le=10_000_000)]


class _Said(msgspec.Struct, frozen=True, rename={"by": "from"}):
    by: str
    value: str


class _Row(msgspec.Struct, frozen=True):
    prompt: str = ""
    messages: tuple[dict[str, Any], ...] = ()
    turns: tuple[str, ...] = ()
    conversations: tuple[_Said, ...] = ()
    input_length: _Length | None = None
    hash_ids: tuple[int, ...] = ()
    max_tokens: _Length | None = None
    output_length: _Length | None = None


class Prompt(msgspec.Struct, frozen=True):
    question: Question
    tokens: int = 0  # length of a text to make up
    blocks: tuple[int, ...] = ()


def read_prompts(path: Path) -> Iterator[tuple[int, Prompt | str]]:
    """Each prompt of a file with its line; text instead of a prompt says what is wrong with it. Raises OSError."""
    with opened_regular(path, follow=True) as descriptor, open(descriptor, "rb", closefd=False) as file:
        begin = file.peek(64).removeprefix(b"\xef\xbb\xbf").lstrip()
        if path.suffix.lower() == ".csv":
            yield from _csv_rows(file)
        elif begin.startswith(b"["):
            yield from _list_items(file)
        else:
            for number, line in enumerate(lines(file, _LONGEST), 1):
                if len(line) >= _LONGEST:
                    yield number, f"the line is longer than {_LONGEST:,} bytes"
                    return
                if text := line.removeprefix(b"\xef\xbb\xbf").strip():
                    yield number, _prompt(text)


def _csv_rows(file: BinaryIO) -> Iterator[tuple[int, Prompt | str]]:
    csv.field_size_limit(_LONGEST)
    rows = csv.DictReader(io.TextIOWrapper(file, "utf-8-sig", newline=""))
    try:
        for row in rows:
            if "prompt" not in row:
                yield 1, "the first line must have the column `prompt`"
                return
            known = {name: value for name, value in row.items() if name in ("prompt", "max_tokens") and value}
            yield rows.line_num, _prompt({**known, **_number(known.get("max_tokens"))})
    except (csv.Error, UnicodeError) as error:
        yield rows.line_num + 1, f"invalid CSV: {error}"


def _number(text: str | None) -> dict[str, object]:
    return {"max_tokens": int(text) if text.isdecimal() and len(text) < 9 else text} if text else {}


def _list_items(file: BinaryIO) -> Iterator[tuple[int, Prompt | str]]:
    """The items of a list of maps, one at a time."""
    buffer, line, depth, place, start = b"", 1, 0, 0, -1
    while True:
        for found in _BRACKETS.finditer(buffer, place):
            mark = found[0]
            if mark.startswith(b'"') and not found[1]:
                break
            stray = buffer[place : found.start()].strip(b" \t\r\n,") if depth == 1 else b""  # a number, null
            if stray or (depth == 1 and mark.startswith(b'"')):
                at = buffer.index(stray, place) if stray else found.start()
                yield line + buffer.count(b"\n", 0, at), "each item of the list must be a map"
                return
            place = found.end()
            if mark in (b"{", b"["):
                depth += 1
                start = found.start() if depth == 2 else start
            elif mark in (b"}", b"]"):
                depth -= 1
                if depth == 1:
                    yield line + buffer.count(b"\n", 0, start), _prompt(buffer[start : found.end()])
                    start = -1
            if depth < 1:
                return
        kept = start if start >= 0 else place
        line += buffer.count(b"\n", 0, kept)
        buffer, place, start = buffer[kept:], place - kept, 0 if start >= 0 else -1
        more = file.read(_PIECE)
        if not more or len(buffer) > _LONGEST:
            why = "the file ends within the list" if not more else f"an item is longer than {_LONGEST:,} bytes"
            yield line, why
            return
        buffer += more


def _prompt(data: bytes | Mapping[str, object]) -> Prompt | str:
    try:
        row = decode(data, _Row) if isinstance(data, bytes) else convert(data, _Row)
    except Unreadable as error:
        return f"invalid prompt: {error}"
    turns = row.turns or tuple(one.value for one in row.conversations if one.by in _PEOPLE)
    choices = {"prompt": row.prompt, "messages": row.messages, "turns": turns, "input_length": row.input_length}
    given = [name for name, value in choices.items() if value]
    if len(given) != 1:
        found = f"found {' and '.join(given)}" if given else "found none"
        return f"a prompt needs one of `prompt`, `messages`, `turns`, `conversations` and `input_length`; {found}"
    messages = ({"role": "user", "content": turns[0]},) if turns else row.messages
    stopping = Stopping(row.max_tokens or row.output_length or _TOKENS)
    asked = Request((row.prompt,) if row.prompt else (), messages, stopping=stopping)
    return Prompt(Question("", asked, turns=turns[1:]), row.input_length or 0, row.hash_ids)


def makes_up(load: LoadWork) -> bool:
    """Whether texts are made up by length, because there is no file or it is a trace."""
    first = next(read_prompts(Path(load.prompts)), (0, ""))[1] if load.prompts else ""
    return not load.prompts or (isinstance(first, Prompt) and first.tokens > 0)


async def measure_words(count: Callable[[str], Awaitable[int | None]], unit: str) -> WordList | None:
    """How many tokens each word has within a text; None if that is unknown."""
    sizes: dict[int, dict[str, int]] = {}  # by the tokens that a text has besides
    for word in WORDS:
        one, many = await count(word), await count(" ".join([word] * 9))
        if one is None or many is None:
            return None
        size, rest = divmod(many - one, 8)
        if 0 < size <= one and not rest:
            sizes.setdefault(one - size, {})[word] = size
    added, words = max(sizes.items(), key=lambda item: len(item[1]), default=(0, {}))
    return WordList(tuple(words.items()), added, unit) if words else None


def questions_of(load: LoadWork) -> list[Question]:
    """The first prompts of the load's file. Raises Unreadable."""
    found: list[Question] = []
    path, words = Path(load.prompts), load.words
    size, most = 0, min(load.requests or MOST_PROMPTS, MOST_PROMPTS)
    try:
        for line, prompt in read_prompts(path):
            if isinstance(prompt, str):
                raise Unreadable(f"{path.name}, line {line}: {prompt}")
            question = prompt.question
            if prompt.tokens:
                blocks, left = prompt.blocks or (line,), prompt.tokens - words.added
                sizes = [min(_BLOCK, left - place * _BLOCK) for place in range(len(blocks) - 1)]
                sizes.append(left - sum(sizes))
                parts = zip(blocks, sizes, strict=True)
                text = " ".join(words.text(length, random.Random(f"{block} block")) for block, length in parts)
                asked = msgspec.structs.replace(question.request, inputs=(text,))
                question = msgspec.structs.replace(question, request=asked)
            found.append(question)
            size += len(msgspec.json.encode(question))
            if len(found) == most or size > MOST_BYTES:
                break
    except OSError as error:
        raise Unreadable(f"cannot read the prompts: {error}") from error
    if not found:
        raise Unreadable(f"{path.name} has no prompts")
    return found


def requests_of(load: LoadWork, questions: Sequence[Question], number: int) -> list[Question]:
    """The given number of requests, determined by the seed: prompts of a file in their order, made-up ones, or cases
    that expect an answer, reshuffled each round. Raises ValueError if no case can be used."""
    chance, lengths, words = random.Random(f"{load.seed} requests"), load.lengths, load.words
    if lengths is not None:
        made = []
        for one in islice(cycle(questions if load.prompts else [Question("", Request())]), number):
            asked = one.request
            if not load.prompts:
                text = words.text(draw(lengths.input, chance) - words.added, chance)
                asked = msgspec.structs.replace(asked, inputs=(text,))
            tokens = draw(lengths.output, chance)
            asked = msgspec.structs.replace(asked, stopping=Stopping(tokens, tokens))
            made.append(msgspec.structs.replace(one, request=asked))
        return made
    if load.prompts:
        return list(islice(cycle(questions), number))
    usable = [one for one in questions if not one.error and one.request.mode is not Mode.TOKENIZE]
    paths = ("", COMPLETIONS, CHAT)
    good = [one for one in usable if one.request.single and one.request.path in paths and not one.request.turn]
    if not good:
        raise ValueError("no case is usable as a load; add one with a single input and an expected answer")
    found: list[Question] = []
    while len(found) < number:
        found += chance.sample(good, len(good))
    return found[:number]


def draw(spread: Sequence[float], chance: random.Random) -> int:
    """A length: from a range, or also normally distributed within it."""
    low, high, *normal = spread
    if normal:
        return int(min(max(round(chance.gauss(*normal)), low), high))
    return chance.randint(int(low), int(high))
