"""Jobs on this machine: processes of their own, supervised by the agent, that outlive who started them."""

from pathlib import Path
from typing import TYPE_CHECKING, Literal

from pydantic import BaseModel, ConfigDict, Field

if TYPE_CHECKING:
    from seatrial.targets.local.target import LocalTarget


class LocalOptions(BaseModel):
    """What a suite may say of a local target."""

    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)

    parallel: int | None = Field(
        default=None, ge=1, description="How many jobs run at once; without it as many as there are CPUs."
    )
    engine: Literal["docker", "podman"] | None = Field(
        default=None, description="What runs images; without it the first of podman and docker that works."
    )
    state: Path | None = Field(default=None, description="Folder of the jobs; without it $XDG_STATE_HOME/seatrial.")
    cache: Path | None = Field(default=None, description="Folder of environments; without it $XDG_CACHE_HOME/seatrial.")


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
