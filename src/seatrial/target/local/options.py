"""What a suite may say of a local target."""

from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field


class LocalOptions(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)

    parallel: int | None = Field(
        default=None, ge=1, description="How many jobs run at once; without it as many as there are CPUs."
    )
    engine: Literal["docker", "podman"] | None = Field(
        default=None, description="What runs images; without it the first of podman and docker that works."
    )
    state: Path | None = Field(default=None, description="Folder of the jobs; without it $XDG_STATE_HOME/seatrial.")
    cache: Path | None = Field(default=None, description="Folder of environments; without it $XDG_CACHE_HOME/seatrial.")
