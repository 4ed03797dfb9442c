"""Names of objects, labels and handles on a cluster. They depend on the job alone, so that the same job submitted twice
is found."""

import hashlib
import re

MANAGED_BY, SEATRIAL = "app.kubernetes.io/managed-by", "seatrial"
RUN, JOB, CELL, ATTEMPT, PART = "seatrial/run", "seatrial/job", "seatrial/cell", "seatrial/attempt", "seatrial/part"
SLICE_HOSTS = "seatrial/slice-hosts"  # label of a pod: the number of hosts of each slice, if there are several slices
JOB_INDEX = "jobset.sigs.k8s.io/job-index"  # label of JobSet: the number of the pod's Job
JOB_DATA, HOLDER, RENEWED = "seatrial/job-data", "seatrial/holder", "seatrial/renewed"  # annotations
ELSEWHERE = "seatrial/namespaces"  # annotation of a run object: other namespaces with an object of the same name

TRIAL, KEEPER = "trial", "keeper"  # the containers of a pod
PLACE = "/seatrial"  # in every pod
AGENT, CONFIG, INPUTS, VOLUME = f"{PLACE}/agent", f"{PLACE}/job", f"{PLACE}/inputs", f"{PLACE}/volume"
OUT = f"{VOLUME}/out"

# A pod of an Indexed Job is called NAME-NUMBER-RANDOM, and its host NAME-NUMBER; both must fit into 63 characters.
NAME_CHARACTERS = 50
_DIGEST_CHARACTERS = 8
_NOT_ALLOWED = re.compile(r"[^a-z0-9]+")
_LABEL_NOT_ALLOWED = re.compile(r"[^A-Za-z0-9._-]+")
_LABEL_MOST_CHARACTERS = 63


def object_name(name: str, most: int = NAME_CHARACTERS) -> str:
    """A readable name that Kubernetes accepts, different for every `name`."""
    plain = _NOT_ALLOWED.sub("-", name.lower()).strip("-")
    if plain == name and len(plain) <= most and plain[:1].isalpha():
        return plain
    digest = hashlib.sha256(name.encode()).hexdigest()[:_DIGEST_CHARACTERS]
    beginning = plain if plain[:1].isalpha() else f"{SEATRIAL}-{plain}"
    return f"{beginning[: most - _DIGEST_CHARACTERS - 1].rstrip('-')}-{digest}"


def run_object_name(run: str, of: str = "") -> str:
    """Name of the object that owns all objects of a run; with `of`, those that the driver of one attempt creates."""
    return object_name("-".join(filter(None, (SEATRIAL, run, of))))


def label_value(text: str) -> str:
    """`text` if it is a valid label value, else a readable, unique replacement."""
    plain = _LABEL_NOT_ALLOWED.sub("-", text).strip("-._")
    if plain == text and len(plain) <= _LABEL_MOST_CHARACTERS:
        return plain
    digest = hashlib.sha256(text.encode()).hexdigest()[:_DIGEST_CHARACTERS]
    return f"{plain[: _LABEL_MOST_CHARACTERS - _DIGEST_CHARACTERS - 1]}-{digest}".lstrip("-")


def run_labels(run: str, part: str) -> dict[str, str]:
    return {MANAGED_BY: SEATRIAL, RUN: label_value(run), PART: part}


def job_labels(run: str, name: str, cell: str, attempt: int, part: str) -> dict[str, str]:
    """`name` is that of the Seatrial job, not of its Kubernetes object."""
    own = {JOB: object_name(name), CELL: label_value(cell), ATTEMPT: str(attempt)}
    return {**run_labels(run, part), **own}


def selector(**labels: str) -> str:
    """Label selector of Seatrial's objects, limited by `run=`, `cell=` and `attempt=`, or `job=` (the object's name),
    and to one kind of object by `part=`."""
    keys = {"run": RUN, "job": JOB, "part": PART, "cell": CELL, "attempt": ATTEMPT}
    return ",".join([f"{MANAGED_BY}={SEATRIAL}", *(f"{keys[key]}={value}" for key, value in labels.items())])
