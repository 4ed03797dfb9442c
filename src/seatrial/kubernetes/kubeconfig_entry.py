"""One cluster, context or user of a kubeconfig, read field by field: each error names its file and its field."""

import base64
import binascii
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from seatrial.kubernetes.access import Material
from seatrial.kubernetes.errors import KubeconfigError

SECRET_FIELDS = ("token", "password", "client-key-data")  # their values are in no message


@dataclass(frozen=True)
class Entry:
    """One cluster, context or user, with the file and the place that it was read from."""

    file: Path
    field: str
    values: Mapping[str, Any]

    def error(self, name: str, problem: str) -> KubeconfigError:
        return KubeconfigError(str(self.file), f"{self.field}.{name}" if name else self.field, problem)

    def text(self, name: str) -> str:
        value = self.values.get(name)
        if value is None:
            return ""
        if not isinstance(value, str):
            raise self.error(name, f"must be a text, not {value!r}" if name not in SECRET_FIELDS else "must be a text")
        return value

    def flag(self, name: str) -> bool:
        value = self.values.get(name)
        if value not in (None, True, False):
            raise self.error(name, f"must be true or false, not {value!r}")
        return bool(value)

    def path(self, name: str) -> Path | None:
        text = self.text(name)
        return self.file.parent / text if text else None  # an absolute path stays as it is

    def material(self, name: str) -> Material:
        """`NAME-data` (base64 of PEM) before `NAME` (a file), as kubectl has it."""
        inline = self.text(f"{name}-data")
        if inline:
            try:
                return Material(data=base64.b64decode("".join(inline.split()), validate=True))
            except (binascii.Error, ValueError) as error:
                raise self.error(f"{name}-data", f"is not base64: {error}") from None
        return Material(file=self.path(name))

    def readable(self, name: str) -> Material:
        """The same, looked at: a file that is there, a text that is PEM."""
        material = self.material(name)
        if material.file is not None and not material.file.is_file():
            raise self.error(name, f"no such file: {material.file}")
        if not material.file and material and b"-----BEGIN" not in material.data:
            raise self.error(f"{name}-data", "is base64, but not of a PEM text")
        return material
