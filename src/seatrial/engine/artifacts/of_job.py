"""Reads what a job wrote to an address (`gs://…`): the agent in the job, which has nothing but Python, cannot."""

import tempfile
from pathlib import Path

import msgspec

from seatrial.agent.masking.mask import Mask
from seatrial.agent.masking.words import texts
from seatrial.engine.artifacts.agent_read import read_as_agent
from seatrial.engine.artifacts.fetch_folder import CannotCheck, NothingThere, fetch_folder
from seatrial.job import Job, Observation, ObservedStep, Outcome, Step, read_records
from seatrial.record.remote import is_address


def with_artifacts(job: Job, observation: Observation, mask: Mask) -> Observation:
    """The observation with each step that looks for files at an address done from here. That they cannot be had is no
    fault of the job: the step's outcome says so."""
    far = {step.name: step for step in job.steps if step.kind == "files" and _address(step)}
    if not far or observation.exit.outcome in (Outcome.CANCELLED, Outcome.REFUSED):
        return observation
    steps = [
        _with_files(far[observed.name], observed, mask) if observed.name in far else observed
        for observed in observation.steps
    ]
    return msgspec.structs.replace(observation, steps=steps)


def _address(step: Step) -> str:
    return next((root for root in step.args.get("roots", ()) if is_address(root)), "")


def _with_files(step: Step, observed: ObservedStep, mask: Mask) -> ObservedStep:
    entries = step.args["entries"]
    with tempfile.TemporaryDirectory(prefix="seatrial-artifacts-") as scratch:
        try:
            fetch_folder(_address(step), [entry["match"] for entry in entries.values()], Path(scratch), logs=False)
        except NothingThere:
            pass  # that a job wrote nothing is for its checks to say
        except CannotCheck as error:
            return msgspec.structs.replace(observed, outcome=Outcome.INFRA, output=mask.text(str(error)), result={})
        records, ended = read_as_agent({"logs": [], "train": None, "roots": [scratch], "entries": entries})
    nothing = Step("train", "train")
    found = read_records(records, [nothing, step]).steps[1]
    output = ended.message if ended.outcome is not Outcome.EXITED else observed.output
    return msgspec.structs.replace(
        observed, outcome=ended.outcome, output=output, result=mask.data(found.result, texts(entries))
    )
