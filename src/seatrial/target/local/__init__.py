"""Jobs on this machine: processes of their own, supervised by the agent, that outlive who started them."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from seatrial.target.local.options import LocalOptions
    from seatrial.target.local.target import LocalTarget


class LocalKind:
    name = "local"
    one_machine = True

    def at_hand(self) -> bool:
        return True

    @property
    def options(self) -> "type[LocalOptions]":
        from seatrial.target.local.options import LocalOptions

        return LocalOptions

    def open(self, name: str, options: "LocalOptions") -> "LocalTarget":
        from seatrial.target.local.target import LocalTarget

        return LocalTarget(name, options)


kind = LocalKind()
