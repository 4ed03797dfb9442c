"""No secret gets through, however its bytes arrive."""

from hypothesis import given
from hypothesis import strategies as st

from seatrial.agent.mask import MASK, Mask
from seatrial.job import MASK as MASK_OF_ALL

TEXT = st.text(alphabet="abx", max_size=40)
SECRETS = st.lists(st.text(alphabet="ab", min_size=1, max_size=5), min_size=1, max_size=4)


def streamed(mask: Mask, pieces: list[bytes]) -> bytes:
    stream = mask.stream()
    return b"".join(map(stream.feed, pieces)) + stream.flush()


@given(SECRETS, st.lists(TEXT, max_size=8))
def test_no_secret_is_left_whatever_the_pieces(secrets: list[str], pieces: list[str]) -> None:
    masked = streamed(Mask(secrets), [piece.encode() for piece in pieces]).decode()
    assert not any(secret in part for secret in secrets for part in masked.split(MASK))


@given(SECRETS, TEXT)
def test_what_is_no_secret_stays(secrets: list[str], text: str) -> None:
    masked = streamed(Mask(secrets), [text.encode()]).decode()
    assert masked.count("x") == text.count("x")


def test_nothing_waits_that_cannot_become_a_secret() -> None:
    stream = Mask(["secret"]).stream()
    assert stream.feed(b"said: ") == b"said: "
    assert stream.feed(b"sec") == b""
    assert stream.feed(b"ond") == b"second"
    assert stream.feed(b"secre") == b""
    assert stream.flush() == b"secre"


def test_a_secret_inside_json_is_masked_as_it_looks_there() -> None:
    secret = 'a"b\nc'
    assert Mask([secret]).text('{"x": "a\\"b\\nc"}') == f'{{"x": "{MASK}"}}'


def test_data_is_masked_in_keys_and_values_and_can_become_json() -> None:
    data = {"k-secret": ["x secret", {"n": float("inf")}, 3, None]}
    assert Mask(["secret"]).data(data) == {f"k-{MASK}": [f"x {MASK}", {"n": None}, 3, None]}


def test_all_parts_of_seatrial_use_the_same_mask() -> None:
    assert MASK == MASK_OF_ALL
