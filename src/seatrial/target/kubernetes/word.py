"""What a trial says itself of its end, in its termination message, and a pod as whoever fetches from it sees it."""

import msgspec

from seatrial.job import Outcome
from seatrial.target.kubernetes.names import KEEPER
from seatrial.target.kubernetes.seen import PodNow, PodSeen, Terminated

VERSION = 1
WORD_BYTES = 4096
KILLED = 128  # an exit code of 128 + N is a shell's and a container's way to say signal N
# Of these a trial cannot know itself.
NOT_ITS_TO_SAY = frozenset({Outcome.EVICTED, Outcome.LOST, Outcome.QUEUE})


class Word(msgspec.Struct, frozen=True):
    """A trial's own, as its agent writes it."""

    seatrial: int
    outcome: Outcome
    code: int | None = None
    message: str = ""
    steps: tuple[tuple[Outcome, int | None], ...] = ()


def read_word(ended: Terminated) -> Word | None:
    """What the trial said, when it did and it can be so. Whatever else was written there is no word of it."""
    try:
        word = msgspec.json.decode(ended.message.encode(errors="replace")[:WORD_BYTES], type=Word)
    except msgspec.DecodeError:
        return None
    known = word.seatrial == VERSION and word.outcome not in NOT_ITS_TO_SAY
    return word if known and _agrees(word, ended) else None


def _agrees(word: Word, ended: Terminated) -> bool:
    """A word from before the trial was killed, or written by what it ran, is not how it ended."""
    if word.outcome is Outcome.EXITED:
        return word.code is None or ended.exit_code in (word.code & 0xFF, min(word.code, 255))
    return ended.exit_code not in (0, KILLED + 9)


def pod_now(pod: PodSeen, trial: str, gone: bool = False) -> PodNow:
    there = not gone and not pod.phase_ended
    running = {name for name, state in pod.states() if state.running is not None} if there else set()
    ended = pod.state(trial).terminated
    word = read_word(ended) if ended is not None else None
    return PodNow(
        name=pod.metadata.name,
        number=pod.number,
        node=pod.spec.node_name,
        running=bool(running),
        trial_running=trial in running,
        trial_ended=not there or ended is not None,
        keeper_running=KEEPER in running,
        ended=not there,
        uid=pod.metadata.uid,
        real=not gone and any(one.container_id for one in pod.status.container_statuses),
        exit_code=ended.exit_code if ended is not None else None,
        step_ends=tuple((outcome.value, code) for outcome, code in word.steps) if word is not None else (),
    )
