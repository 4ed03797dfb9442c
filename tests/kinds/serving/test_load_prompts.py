"""Prompts of a load: files of four formats, lengths in tokens, and conversations."""

import json
import random
import resource
from importlib.util import find_spec
from pathlib import Path

import pytest
from llama import command, llama
from prompt_files import FILES, JSONL

from seatrial.job import Table
from seatrial.kinds.arrivals import Arrivals
from seatrial.kinds.arrivals_model import read_trace
from seatrial.kinds.serving.driver.openai import OpenAiClient
from seatrial.kinds.serving.load_work import WORDS, Lengths, LoadWork, WordList
from seatrial.kinds.serving.prompts import Prompt, draw, measure_words, questions_of, read_prompts, requests_of
from seatrial.kinds.serving.request import Mode, Request
from seatrial.kinds.serving.work import Question, ServingWork
from world import World


def written(folder: Path, name: str, data: bytes | None = None) -> Path:
    path = folder / name
    path.write_bytes(FILES[name] if data is None else data)
    return path


def prompts(path: Path) -> list[tuple[int, Prompt]]:
    found = list(read_prompts(path))
    assert not [one for _, one in found if isinstance(one, str)]
    return [(line, one) for line, one in found if isinstance(one, Prompt)]


def test_lines_of_json_are_prompts_messages_or_conversations(tmp_path: Path) -> None:
    (one, text), (two, chat), (three, talk) = prompts(written(tmp_path, "prompts.jsonl"))
    assert (one, two, three) == (1, 3, 4)
    assert (text.question.request.inputs, text.question.request.stopping.max_new_tokens) == (("one",), 7)
    assert [message["role"] for message in chat.question.request.messages] == ["system", "user"]
    assert talk.question.request.messages == ({"role": "user", "content": "three"},)
    assert talk.question.turns == ("and then?", "thanks")


def test_csv_has_a_column_of_prompts(tmp_path: Path) -> None:
    (one, first), (two, second) = prompts(written(tmp_path, "prompts.csv"))
    assert (first.question.request.inputs, first.question.request.stopping.max_new_tokens) == (("one, two\nthree",), 7)
    assert (one, two, second.question.request.inputs) == (3, 4, ("four",))


def test_sharegpt_is_a_list_of_conversations_without_the_recorded_answers(tmp_path: Path) -> None:
    (one, first), (two, second) = prompts(written(tmp_path, "sharegpt.json"))
    assert (one, two) == (2, 15)
    assert (first.question.request.messages[0]["content"], first.question.turns) == ("hi ] }", ())
    assert (second.question.request.messages[0]["content"], second.question.turns) == ('a "quote" \\', ("c",))


def test_requests_of_a_mooncake_trace_share_the_text_of_their_common_blocks(tmp_path: Path) -> None:
    path = written(tmp_path, "trace.jsonl")
    assert read_trace(path) == [0.0, 1.5]
    words = WordList(tuple((word, 1) for word in ("a", "b", "c")), added=1)
    first, second = questions_of(LoadWork(Arrivals("trace"), prompts=str(path), words=words))
    one, two = first.request.inputs[0].split(), second.request.inputs[0].split()
    assert (len(one), len(two)) == (599, 519)  # and one token that the tokenizer adds
    assert one[:512] == two[:512]
    assert one[512:519] != two[512:]
    assert (first.request.stopping.max_new_tokens, second.request.stopping.max_new_tokens) == (5, 6)


def test_a_string_may_go_on_in_the_next_piece_of_a_file(tmp_path: Path) -> None:
    text = "]}[{" * 200_000 + "\\\\" * 200_000 + '\\"' * 100_001
    for space in range(3):
        data = f'[{" " * space}{{"turns": ["{text}"]}},\n{{"turns": ["b"]}}]'.encode()
        (_, first), (line, second) = prompts(written(tmp_path, "a.json", data))
        assert len(first.question.request.messages[0]["content"]) == 800_000 + 200_000 + 100_001
        assert (line, second.question.request.messages[0]["content"]) == (2, "b")


@pytest.mark.parametrize(
    ("name", "data", "line", "why"),
    [
        ("a.jsonl", b'{"prompt": "a"}\n{"prompt": 3}\n', 2, "invalid prompt: Expected `str`"),
        ("a.jsonl", b'{"prompt": "a"\n', 1, "invalid prompt: "),
        ("a.jsonl", b'{"prompt": "a", "turns": ["b"]}', 1, "; found prompt and turns"),
        ("a.jsonl", b'{"text": "a"}', 1, "a prompt needs one of `prompt`, `messages`"),
        ("a.jsonl", b'{"prompt": "\xff"}', 1, "invalid prompt: "),
        ("a.jsonl", b'{"input_length": 99999999999, "output_length": 1}', 1, "invalid prompt: Expected `int` <="),
        ("a.jsonl", b'{"input_length": 5, "max_tokens": 0}', 1, "invalid prompt: Expected `int` >= 1"),
        ("a.jsonl", b"x" * (17 << 20), 1, "the line is longer than 16,777,216 bytes"),
        ("a.csv", b"text\nhello\n", 1, "the first line must have the column `prompt`"),
        ("a.csv", b"prompt,max_tokens\nhello,many\n", 2, "invalid prompt: Expected `int"),
        ("a.csv", b"prompt\nhe\xffllo\n", 1, "invalid CSV: "),
        ("a.csv", b'prompt\n"' + b"x" * (17 << 20), 2, "invalid CSV: field larger than field limit"),
        ("a.json", b'[{"turns": ["a"]},\n"b"]', 2, "each item of the list must be a map"),
        ("a.json", b'[{"turns": ["a"]},\nnull,\n{"turns": ["b"]}]', 2, "each item of the list must be a map"),
        ("a.json", b'[{"turns": ["a"]},\n\n3]', 3, "each item of the list must be a map"),
        ("a.json", b'[{"turns": ["a]}', 1, "the file ends within the list"),
        ("a.json", b'[{"conversations": []}\n, {"turns": ["a"]}', 1, "found none"),
        ("a.json", b'[{"turns": ["a"]},\n{"turns": ["b"]}', 2, "the file ends within the list"),
        ("a.json", b'[{"turns": ["a"]},\n\n{"turns": [' + b'"x",' * (5 << 20), 3, "an item is longer than"),
    ],
)
def test_what_is_wrong_with_a_file_is_said_with_its_line(
    tmp_path: Path, name: str, data: bytes, line: int, why: str
) -> None:
    wrong = [(at, one) for at, one in read_prompts(written(tmp_path, name, data)) if isinstance(one, str)]
    assert wrong
    assert wrong[0][0] == line
    assert why in wrong[0][1]


@pytest.mark.parametrize("name", ["large.jsonl", "large.json", "large.csv"])
def test_a_large_file_is_never_in_memory(tmp_path: Path, name: str) -> None:
    row = {"jsonl": b'{"prompt": "%s"}\n', "json": b'{"turns": ["%s"]},', "csv": b"%s\n"}[name.rpartition(".")[2]]
    begin, end = {"large.json": (b"[", b'{"turns": ["a"]}]'), "large.csv": (b"prompt\n", b"")}.get(name, (b"", b""))
    with (tmp_path / name).open("wb") as file:
        file.write(begin)
        for _ in range(200):
            file.write(row % (b"x" * 500_000))
        file.write(end)
    list(read_prompts(written(tmp_path, "small.jsonl", JSONL)))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert sum(1 for _ in read_prompts(tmp_path / name)) >= 200
    assert (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) << 10 < 60 << 20


def test_prompts_of_a_file_are_sent_in_their_order_and_repeated() -> None:
    load = LoadWork(Arrivals("rate", 1.0), prompts="x", lengths=Lengths((), (3, 5)))
    asked = [Question("", Request(inputs=(text,))) for text in "abc"]
    made = requests_of(load, asked, 7)
    assert [one.request.inputs[0] for one in made] == list("abcabca")
    assert {one.request.stopping.max_new_tokens for one in made} <= {3, 4, 5}
    assert requests_of(load, asked, 4) == made[:4]  # a longer load begins like a shorter one


def test_lengths_are_uniform_or_normal_within_their_limits() -> None:
    chance = random.Random(1)
    assert {draw((3, 5), chance) for _ in range(100)} == {3, 4, 5}
    found = [draw((10, 100, 50, 30), chance) for _ in range(2000)]
    assert (min(found), max(found)) == (10, 100)
    assert 45 < sum(found) / 2000 < 58
    assert len(set(found)) > 60


async def test_made_up_prompts_have_exactly_the_tokens_of_the_servers_own_tokenizer() -> None:
    with llama() as url:
        client = OpenAiClient(ServingWork(model="tiny"), url, "")

        async def count(text: str) -> int | None:
            return (await client.ask(Request(inputs=(text,), mode=Mode.TOKENIZE), False, 60.0)).tokenizations[0].count

        words = await measure_words(count, "tokens")
        assert words is not None
        assert max(size for _, size in words.words) > 1  # a tiny vocabulary: words are not tokens
        load = LoadWork(Arrivals("rate", 1.0), lengths=Lengths((40, 40), (1, 1)), words=words)
        asked = requests_of(load, (), 20)
        assert len({one.request.inputs[0] for one in asked}) == 20
        assert {await count(one.request.inputs[0]) for one in asked} == {40}
        await client.close()


async def test_a_server_that_cannot_count_tokens_gives_no_sizes() -> None:
    async def unknown(text: str) -> int | None:
        return None

    assert await measure_words(unknown, "tokens") is None


SUITE = """
name: prompts
trials:
  tiny:
    kind: serving
    model: tiny
    retries: 0
    server: {{{server}}}
    load: {{{load}, lag: 1h, metrics: ""}}
"""


def test_conversations_wait_for_each_answer_and_show_the_time_to_first_token_by_turn(world: World) -> None:
    (world.folder / "talks.jsonl").write_text('{"turns": ["hello", "and then?", "thanks"], "max_tokens": 6}\n' * 2)
    load = "arrivals: {burst: 3}, requests: 3, prompts: talks.jsonl"
    world.suite(SUITE.format(server=f"command: '{command()}'", load=load))
    world.seatrial("run", "suite.yaml", check=0)
    (cell,) = world.results().cells
    measured = next(one for one in cell.findings if (one.step, one.check) == ("load", "measured"))
    assert measured.message.startswith("9 requests")
    (table,) = (one for one in cell.charts if isinstance(one, Table) and "by turn" in one.title)
    assert [row[:2] for row in table.rows] == [[1, 3], [2, 3], [3, 3]]
    (path,) = world.folder.glob("runs/*/cells/*/1/**/load-requests.jsonl")
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    assert [row["turn"] for row in rows].count(3) == 3
    ends = {turn: min(row["end_s"] for row in rows if row["turn"] == turn) for turn in (1, 2)}
    for turn in (2, 3):
        assert min(row["begun_s"] for row in rows if row["turn"] == turn) >= ends[turn - 1]


def test_a_later_turn_has_the_answer_of_the_turn_before(world: World) -> None:
    """The server repeats what it was sent, and fails for the last turn of the second conversation."""
    (world.folder / "echo.py").write_text(ECHO)
    (world.folder / "talks.jsonl").write_text('{"turns": ["a", "b"]}\n{"turns": ["x", "fail", "never"]}\n')
    load = "arrivals: {in_flight: 1}, requests: 2, prompts: talks.jsonl, bounds: {errors: 1}"
    world.suite(SUITE.format(server="command: exec python3 $SEATRIAL_SUITE_FOLDER/echo.py", load=load))
    text = (world.folder / "suite.yaml").read_text().replace("$SEATRIAL_SUITE_FOLDER", str(world.folder))
    (world.folder / "suite.yaml").write_text(text)
    world.seatrial("run", "suite.yaml", check=0)
    asked = [json.loads(line) for line in (world.folder / "asked.jsonl").read_text().splitlines()]
    assert asked[1] == ["a", "<a>", "b"]
    assert ["x", "<x>", "fail"] in asked
    assert not [one for one in asked if "never" in one]


ECHO = """
import http.server, json, os, pathlib
class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def do_POST(self):
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        texts = [one["content"] for one in asked.get("messages", [])]
        if asked.get("stream"):
            with open(pathlib.Path(__file__).with_name("asked.jsonl"), "a") as file:
                file.write(json.dumps(texts) + "\\n")
        said = "<" + (texts or ["?"])[-1] + ">"
        if texts[-1:] == ["fail"]:
            return self.reply(500, "application/json", b"{}")
        if not asked.get("stream"):
            choice = {"index": 0, "text": said, "message": {"content": said}, "finish_reason": "stop"}
            return self.reply(200, "application/json", json.dumps({"choices": [choice]}).encode())
        parts = [{"role": "assistant", "content": said[:1]}, {"content": said[1:]}]
        events = [{"choices": [{"index": 0, "delta": part, "finish_reason": None}]} for part in parts]
        events.append({"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]})
        lines = [*(json.dumps(one) for one in events), "[DONE]"]
        self.reply(200, "text/event-stream", "".join(f"data: {line}\\n\\n" for line in lines).encode())
    def reply(self, status, kind, data):
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)
    def log_message(self, *arguments): pass
http.server.ThreadingHTTPServer(("127.0.0.1", int(os.environ["SEATRIAL_PORT"])), Handler).serve_forever()
"""


def test_the_report_says_how_lengths_were_counted(world: World) -> None:
    load = "arrivals: {burst: 4}, requests: 4, lengths: {input: {mean: 30, sd: 5, max: 60}, output: 4}"
    world.suite(SUITE.format(server=f"command: '{command()}'", load=load))
    world.seatrial("run", "suite.yaml", check=0)
    (cell,) = world.results().cells
    measured = next(one.message for one in cell.findings if (one.step, one.check) == ("load", "measured"))
    assert measured.endswith("; prompt lengths in tokens, by the server's tokenizer")
    (world.folder / "echo.py").write_text(ECHO)
    echo = f"command: exec python3 {world.folder}/echo.py"
    load = load.replace("output: 4", "output: 1").replace("requests: 4", "requests: 4, check: none")
    world.suite(SUITE.format(server=echo, load=load))
    world.seatrial("run", "suite.yaml")
    (cell,) = world.results().cells
    measured = next(one.message for one in cell.findings if (one.step, one.check) == ("load", "measured"))
    assert "prompt lengths in words: the server has no /tokenize, and `lengths` no `tokenizer`" in measured


@pytest.mark.parametrize(
    ("load", "said"),
    [
        ("requests: 3, prompts: bad.jsonl", "bad.jsonl:2:1: a prompt needs one of"),
        ("requests: 3, prompts: empty.jsonl", "empty.jsonl:1:1: the file has no prompts"),
        ("requests: 3, prompts: none.jsonl", "file not found: 'none.jsonl'"),
        ("requests: 3, lengths: {output: 3}", "exactly one of `prompts` and `lengths.input`"),
        ("requests: 3, prompts: good.jsonl, lengths: {input: 3, output: 3}", "exactly one of `prompts` and"),
        ("requests: 3, lengths: {input: {mean: 3}, output: 3}", "`sd` is missing"),
    ],
)
def test_what_is_wrong_is_said_before_anything_runs(world: World, load: str, said: str) -> None:
    (world.folder / "good.jsonl").write_text('{"prompt": "a"}\n')
    (world.folder / "bad.jsonl").write_text('{"prompt": "a"}\n{}\n')
    (world.folder / "empty.jsonl").write_text("\n")
    world.suite(SUITE.format(server="url: 'http://127.0.0.1:1'", load=f"arrivals: {{rate: 4/s}}, {load}"))
    done = world.seatrial("plan", "suite.yaml", check=2)
    assert said in done.stdout + done.stderr


def test_a_tokenizer_needs_its_package_and_a_file_that_it_can_read(world: World) -> None:
    """Both are said before anything runs; the result says that the file was used."""
    load = "arrivals: {burst: 4}, requests: 4, check: none, lengths: {input: 30, output: 1, tokenizer: words.json}"
    world.suite(SUITE.format(server=f"command: exec python3 {world.folder}/echo.py", load=load))
    (world.folder / "echo.py").write_text(ECHO)
    (world.folder / "words.json").write_text("{}")
    done = world.seatrial("plan", "suite.yaml", check=2)
    if not find_spec("tokenizers"):
        assert "`lengths.tokenizer` needs the package tokenizers; run `" in done.stdout + done.stderr
        return
    assert "`lengths.tokenizer`: cannot read " in done.stdout + done.stderr
    model = {"type": "WordLevel", "vocab": {"?": 0, **{word: place for place, word in enumerate(WORDS, 1)}}}
    data = {"version": "1.0", "model": {**model, "unk_token": "?"}, "pre_tokenizer": {"type": "Whitespace"}}
    (world.folder / "words.json").write_text(json.dumps({**data, "added_tokens": []}))
    world.seatrial("run", "suite.yaml", check=0)
    (cell,) = world.results().cells
    assert any("prompt lengths in tokens, by the file tokenizer.json" in one.message for one in cell.findings)
