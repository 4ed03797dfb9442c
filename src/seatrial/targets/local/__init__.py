"""The local target: jobs are processes on this machine, supervised by the agent, that outlive their submitter."""

from pathlib import Path
from typing import TYPE_CHECKING, Literal

from pydantic import BaseModel, ConfigDict, Field

if TYPE_CHECKING:
    from seatrial.targets.local.target import LocalTarget


class LocalOptions(BaseModel):
    """Fields of a local target in a suite."""

    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)

    parallel: int | None = Field(
        default=None, ge=1, description="Maximum number of jobs at once; default: the number of CPUs."
    )
    engine: Literal["docker", "podman"] | None = Field(
        default=None, description="Container engine; default: podman if it works, else docker."
    )
    state: Path | None = Field(default=None, description="Job folder; default: $XDG_STATE_HOME/seatrial.")
    cache: Path | None = Field(default=None, description="Environment folder; default: $XDG_CACHE_HOME/seatrial.")


class LocalKind:
    name = "local"
    options = LocalOptions
    one_machine = True

    def is_available(self) -> bool:
        return True

    def open(self, name: str, options: LocalOptions) -> "LocalTarget":
        from seatrial.targets.local.target import LocalTarget

        return LocalTarget(name, options)


kind = LocalKind()
