"""Certificates that openssl makes: an authority, and what it signed."""

import shutil
import subprocess
from pathlib import Path

import pytest


def authority(folder: Path) -> Path:
    _openssl(folder, "req", "-x509", *_KEY, "-keyout", "ca.key", "-out", "ca.pem", "-subj", "/CN=test authority")
    return folder / "ca.pem"


def certificate(folder: Path, name: str, address: str = "127.0.0.1") -> tuple[Path, Path]:
    """Of a server at that address, or of a client; signed by the folder's authority."""
    kind = "IP" if address[0].isdigit() else "DNS"
    (folder / f"{name}.ext").write_text(f"subjectAltName={kind}:{address}\nbasicConstraints=CA:FALSE\n")
    _openssl(folder, "req", "-new", *_KEY, "-keyout", f"{name}.key", "-out", f"{name}.csr", "-subj", f"/CN={name}")
    signing = ("-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial", "-days", "2", "-extfile", f"{name}.ext")
    _openssl(folder, "x509", "-req", "-in", f"{name}.csr", "-out", f"{name}.pem", *signing)
    return folder / f"{name}.pem", folder / f"{name}.key"


_KEY = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")


def _openssl(folder: Path, *arguments: str) -> None:
    if shutil.which("openssl") is None:
        pytest.skip("needs the command openssl to make certificates")
    subprocess.run(["openssl", *arguments], cwd=folder, check=True, capture_output=True)
