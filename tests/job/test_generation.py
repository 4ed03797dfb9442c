import msgspec

from seatrial.kinds.serving.generation import Answer, Generation, StopReason, Token, merge_messages
from seatrial.kinds.serving.request import Case, Request, Sampling, Stopping


def test_what_a_case_does_not_state_is_sent_as_off_and_a_seed_is_not_made_up() -> None:
    explicit = Sampling(top_k=10).explicit
    assert explicit == Sampling(1.0, 10, 1.0, 1.0, 0.0, 0.0, 0.0, None)
    assert Sampling(temperature=0.0, seed=0).explicit.seed == 0
    assert Sampling(temperature=0.0).explicit.temperature == 0.0
    assert Stopping().explicit == Stopping(20, 0, 0, (), True)


def test_a_case_survives_json() -> None:
    expected = Answer((Generation("hi", 3, 1, StopReason.MAX_TOKENS, tokens=(Token("hi", None, 1),)),))
    case = Case("greedy", Request(("Once",)), expected, tags=("short",))
    assert msgspec.json.decode(msgspec.json.encode(case), type=Case) == case


def test_messages_of_a_stream_come_to_one_answer() -> None:
    messages = [
        Generation(input_count=4),
        Generation(input_tokens=(Token("a"), Token("b"))),
        Generation(text=" x", generated_count=1, tokens=(Token(" x", -0.5),)),
        Generation(
            text=" y", generated_count=2, tokens=(Token(" y", -0.25),), stop_reason=StopReason.EOS_TOKEN, seed=7
        ),
    ]
    tokens = (Token(" x", -0.5), Token(" y", -0.25))
    inputs = (Token("a"), Token("b"))
    assert merge_messages(messages) == (Generation(" x y", 4, 2, StopReason.EOS_TOKEN, None, 7, tokens, inputs),)
    assert merge_messages([]) == ()
