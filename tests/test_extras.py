"""The command that installs an extra works in the environment that Seatrial runs in, which may have no pip."""

import shlex
import subprocess
import sys

from seatrial.extras import install_command


def test_the_command_works_here_and_names_the_packages_of_the_extra() -> None:
    command = shlex.split(install_command("grpc"))  # the tests have these packages: nothing is downloaded
    assert [word.partition(">")[0] for word in command if ">" in word] == ["grpcio", "protobuf"]
    done = subprocess.run([*command, "--offline", "--dry-run"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "Would make no changes" in done.stderr


def test_storage_has_extras_and_any_other_name_is_a_package() -> None:
    begin = f"{sys.executable} -m uv pip install --python {sys.executable}"
    for extra, package in (("gcs", "'gcsfs>=2024.6'"), ("s3", "'s3fs>=2024.6'"), ("adlfs", "adlfs")):
        assert install_command(extra) == f"{begin} {package}"
