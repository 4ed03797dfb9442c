"""Runtimes on this machine are built once, whole or not at all, and refused with uv's own words."""

import asyncio
import contextlib
import ensurepip
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from seatrial.job import Environment, Outcome
from seatrial.target import TargetError
from seatrial.target.local.environments import COMPLETE, Environments, PreparedEnvironment, lay_over

VERSION = "{}.{}".format(*sys.version_info)


DEBIANS_WHEELS = Path("/usr/share/python-wheels")  # Debian keeps them apart from its Python


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An index of our own: a folder with two tiny packages and pip, so that no test needs the network."""
    import zipfile

    folder = tmp_path_factory.mktemp("wheels")
    bundled = [*Path(ensurepip.__file__).parent.glob("_bundled/pip-*.whl"), *DEBIANS_WHEELS.glob("pip-*.whl")]
    if not bundled:
        pytest.skip("this Python brings no wheel of pip")
    pip = bundled[0]
    shutil.copy(pip, folder)
    for name, version in (("tiny", "1.0"), ("tiny", "2.0"), ("other", "1.0")):
        info = f"{name}-{version}.dist-info"
        files = {
            f"{name}.py": f"version = {version!r}\n",
            f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n",
            f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        }
        files[f"{info}/RECORD"] = "".join(f"{path},,\n" for path in [*files, f"{info}/RECORD"])
        with zipfile.ZipFile(folder / f"{name}-{version}-py3-none-any.whl", "w") as wheel:
            for path, text in files.items():
                wheel.writestr(path, text)
    return folder


@pytest.fixture(autouse=True)
def only_these_wheels(wheels: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UV_FIND_LINKS", str(wheels))
    monkeypatch.setenv("UV_NO_INDEX", "1")


async def ready(cache: Path, *packages: str, python: str | None = VERSION) -> PreparedEnvironment:
    environments = Environments(cache)
    try:
        return await environments.ready(Environment(python=python, packages=packages))
    finally:
        await environments.close()


def says(place: PreparedEnvironment, code: str) -> str:
    return subprocess.check_output([str(place.python), "-c", code], text=True).strip()


async def test_an_environment_has_the_packages_that_were_asked_for(tmp_path: Path) -> None:
    place = await ready(tmp_path, "tiny==1.*")
    assert says(place, "import tiny; print(tiny.version)") == "1.0"
    assert says(place, "import sys; print('%d.%d' % sys.version_info[:2])") == VERSION
    assert place.virtual_env is not None
    assert (place.virtual_env / COMPLETE).exists()


async def test_the_same_pins_are_the_same_environment_and_others_another(tmp_path: Path) -> None:
    first, again = await ready(tmp_path, "tiny<2"), await ready(tmp_path, "tiny==1.0")
    assert first == again
    assert await ready(tmp_path, "tiny") != first


async def test_many_cells_and_processes_at_once_build_it_once(tmp_path: Path) -> None:
    several = [Environments(tmp_path) for _ in range(3)]  # each locks as a process of its own would
    wanted = Environment(python=VERSION, packages=("tiny", "other"))
    places = await asyncio.gather(*(environments.ready(wanted) for environments in several for _ in range(4)))
    assert len(set(map(str, (place.python for place in places)))) == 1
    built = [path for path in (tmp_path / "environments").iterdir() if path.is_dir()]
    assert len(built) == 1
    for environments in several:
        await environments.close()


async def test_a_build_that_was_killed_is_done_anew(tmp_path: Path) -> None:
    script = (
        "import asyncio, sys; from pathlib import Path; from seatrial.job import Environment;"
        "from seatrial.target.local.environments import Environments;"
        f"asyncio.run(Environments(Path({str(tmp_path)!r})).ready(Environment(python={VERSION!r}, packages=('tiny',))))"
    )
    for delay_s in (0.1, 0.3, 0.5, 0.7):
        builder = await asyncio.create_subprocess_exec(sys.executable, "-c", script)
        await asyncio.sleep(delay_s)
        with contextlib.suppress(ProcessLookupError):  # it was quicker
            builder.kill()
        await builder.wait()
    assert says(await ready(tmp_path, "tiny"), "import tiny; print(tiny.version)") == "2.0"


async def test_an_environment_whose_interpreter_is_gone_is_built_anew(tmp_path: Path) -> None:
    place = await ready(tmp_path, "tiny")
    assert place.python is not None
    place.python.unlink()
    assert says(await ready(tmp_path, "tiny"), "import tiny; print(tiny.version)") == "2.0"


@pytest.mark.parametrize(
    ("package", "words"),
    [
        ("no-such-package-here", "No solution found"),
        ("tiny==9", "no version of tiny==9"),
        ("tiny=!1", "parse"),
        ("--index-url=x", "not a package requirement"),
        ("tiny\n--index-url x", "not a package requirement"),
    ],
)
async def test_what_cannot_be_had_is_refused_with_the_reason(tmp_path: Path, package: str, words: str) -> None:
    with pytest.raises(TargetError, match=words) as caught:
        await ready(tmp_path, package)
    assert caught.value.outcome is Outcome.REFUSED


async def test_an_index_that_cannot_be_reached_is_infrastructure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("UV_NO_INDEX")
    for name, value in {
        "UV_DEFAULT_INDEX": "http://user:password@127.0.0.1:9/simple", "UV_HTTP_RETRIES": "0",
        "UV_CACHE_DIR": str(tmp_path / "cache"),
    }.items():  # fmt: skip
        monkeypatch.setenv(name, value)
    with pytest.raises(TargetError) as caught:
        await ready(tmp_path, "no-such-package-here")
    assert caught.value.outcome is Outcome.INFRA
    assert "password" not in str(caught.value)


async def test_a_failed_build_is_tried_again_when_asked_again(
    tmp_path: Path, wheels: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    environments = Environments(tmp_path)
    monkeypatch.setenv("UV_FIND_LINKS", str(tmp_path / "nothing"))
    with pytest.raises(TargetError):
        await environments.ready(Environment(python=VERSION, packages=("tiny",)))
    monkeypatch.setenv("UV_FIND_LINKS", str(wheels))
    place = await environments.ready(Environment(python=VERSION, packages=("tiny",)))
    assert says(place, "import tiny; print(tiny.version)") == "2.0"


async def test_an_existing_interpreter_is_taken_as_it_is(tmp_path: Path) -> None:
    place = await Environments(tmp_path).ready(Environment(interpreter=sys.executable))
    assert str(place.python) == sys.executable
    assert not (tmp_path / "environments").exists()


@pytest.mark.parametrize("interpreter", ["/no/such/python", "/bin/true", "/etc/passwd"])
async def test_what_is_no_interpreter_is_refused(tmp_path: Path, interpreter: str) -> None:
    with pytest.raises(TargetError, match=os.path.basename(interpreter)) as caught:
        await Environments(tmp_path).ready(Environment(interpreter=interpreter))
    assert caught.value.outcome is Outcome.REFUSED


async def test_what_a_job_installs_is_its_own_and_the_shared_environment_stays_as_it_is(
    tmp_path: Path, wheels: Path
) -> None:
    place = await ready(tmp_path, "tiny")
    assert place.virtual_env is not None
    layer = tmp_path / "layer"
    lay_over(place.virtual_env, layer)
    lay_over(place.virtual_env, layer)  # over one that a kill left half made
    install = [layer / "bin" / "pip", "install", "--no-index", "--find-links", wheels, "other", "tiny==1.0"]
    env = {"PATH": os.environ["PATH"], "HOME": str(tmp_path)}
    await asyncio.to_thread(subprocess.run, install, check=True, capture_output=True, env=env)
    own = PreparedEnvironment(python=layer / "bin" / "python")
    assert says(own, "import other, tiny; print(other.version, tiny.version)") == "1.0 1.0"
    assert says(own, "import sys; print(sys.prefix)") == str(layer)
    assert says(place, "import tiny; print(tiny.version)") == "2.0"
    with pytest.raises(subprocess.CalledProcessError):
        says(place, "import other")


async def test_a_runtime_means_the_same_versions_for_an_hour(tmp_path: Path) -> None:
    await ready(tmp_path, "tiny")
    (kept,) = tmp_path.glob("environments/*.pins")
    kept.write_text(kept.read_text().replace("tiny==2.0", "tiny==1.0"))  # as if 2.0 had come out since
    assert says(await ready(tmp_path, "tiny"), "import tiny; print(tiny.version)") == "1.0"
    os.utime(kept, (0, 0))
    assert says(await ready(tmp_path, "tiny"), "import tiny; print(tiny.version)") == "2.0"
