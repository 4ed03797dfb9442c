"""Runtimes on this machine are built once, whole or not at all, and refused with uv's own words."""

import asyncio
import base64
import contextlib
import ensurepip
import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from seatrial.job import Environment, Outcome
from seatrial.targets import TargetError
from seatrial.targets.agent_file import agent_file
from seatrial.targets.local.environments import (
    COMPLETE,
    Environments,
    PreparedEnvironment,
    lay_over,
    read_pins,
    write_pins,
)

VERSION = "{}.{}".format(*sys.version_info)


def digest(text: str) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).decode().rstrip("=")


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
        lines = [f"{path},sha256={digest(text)},{len(text)}\n" for path, text in files.items()]
        files[f"{info}/RECORD"] = "".join([*lines, f"{info}/RECORD,,\n"])
        with zipfile.ZipFile(folder / f"{name}-{version}-py3-none-any.whl", "w") as wheel:
            for path, text in files.items():
                wheel.writestr(path, text)
    return folder


@pytest.fixture(autouse=True)
def only_these_wheels(wheels: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """From a cache of their own: uv waits while another process on this machine cleans the user's."""
    monkeypatch.setenv("UV_CACHE_DIR", str(wheels.with_name(f"{wheels.name}-uv-cache")))
    monkeypatch.setenv("UV_FIND_LINKS", str(wheels))
    alone = wheels / "uv.toml"  # there is no variable for it
    alone.write_text("no-index = true\n")
    monkeypatch.setenv("UV_CONFIG_FILE", str(alone))


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


async def test_while_it_is_built_it_is_known_what_is_being_done(tmp_path: Path) -> None:
    environments = Environments(tmp_path)
    wanted = Environment(python=VERSION, packages=("tiny",))
    assert environments.doing(wanted) == ""
    building = asyncio.create_task(environments.ready(wanted))
    seen: dict[str, None] = {}
    while not building.done():
        seen[environments.doing(wanted)] = None
        await asyncio.sleep(0)
    await building
    words = [text for text in seen if text]
    # On a busy machine uv may have written its first line before we look: a stage counts with and without details.
    assert list(dict.fromkeys(text.partition(":")[0] for text in words))[-3:] == [
        "resolving packages",
        "creating the environment",
        "installing packages",
    ]
    assert any(text.startswith("installing packages: ") for text in words)
    assert environments.doing(wanted) == ""


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
        "from seatrial.targets.local.environments import Environments;"
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
        ("--index-url=x", "invalid package requirement"),
        ("tiny\n--index-url x", "invalid package requirement"),
    ],
)
async def test_what_cannot_be_had_is_refused_with_the_reason(tmp_path: Path, package: str, words: str) -> None:
    with pytest.raises(TargetError, match=words) as caught:
        await ready(tmp_path, package)
    assert caught.value.outcome is Outcome.REFUSED


async def test_an_index_that_cannot_be_reached_is_infrastructure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("UV_CONFIG_FILE")
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
    write_pins(kept, read_pins(kept).replace("tiny==2.0", "tiny==1.0"))  # as if 2.0 had come out since
    assert says(await ready(tmp_path, "tiny"), "import tiny; print(tiny.version)") == "1.0"
    os.utime(kept, (0, 0))
    assert says(await ready(tmp_path, "tiny"), "import tiny; print(tiny.version)") == "2.0"


# ---- what a job does to its runtime stays there, and is undone


def damage(place: PreparedEnvironment) -> Path:
    """A job writes into a module that it has: the same size, and the same time as before."""
    module = Path(says(place, "import tiny; print(tiny.__file__)"))
    before = module.stat()
    with module.open("r+") as file:
        file.write("version = '666'\n"[: before.st_size])
    os.utime(module, ns=(before.st_atime_ns, before.st_mtime_ns))
    return module


async def test_what_a_job_writes_into_its_runtime_reaches_no_other_one(tmp_path: Path) -> None:
    place, neighbour = await ready(tmp_path, "tiny"), await ready(tmp_path, "tiny", "other")
    assert place.virtual_env
    links = {path.stat().st_nlink for path in place.virtual_env.rglob("*") if path.is_file() and not path.is_symlink()}
    assert links == {1}
    damage(place)
    assert says(neighbour, "import tiny; print(tiny.version)") == "2.0"
    later = await ready(tmp_path, "tiny", "other<2")
    assert says(later, "import tiny; print(tiny.version)") == "2.0"


async def test_a_damaged_runtime_is_healed_when_it_is_taken_again(tmp_path: Path) -> None:
    place = await ready(tmp_path, "tiny", "other")
    assert place.virtual_env
    module = damage(place)
    (module.parent / "stray.py").write_text("")
    (module.parent / "other.py").unlink()
    untouched = (module.parent / "pip" / "__init__.py").stat()
    assert await ready(tmp_path, "tiny", "other") == place
    assert says(place, "import tiny, other; print(tiny.version, other.version)") == "2.0 1.0"
    assert not (module.parent / "stray.py").exists()
    assert (module.parent / "pip" / "__init__.py").stat().st_ino == untouched.st_ino  # others may be using it
    stock = (place.virtual_env / COMPLETE).stat().st_mtime_ns
    assert await ready(tmp_path, "tiny", "other") == place
    assert (place.virtual_env / COMPLETE).stat().st_mtime_ns == stock  # there was nothing left to heal


@pytest.mark.parametrize("name", ["pyvenv.cfg", COMPLETE, "lib/python{}/site-packages/tiny-2.0.dist-info/RECORD"])
async def test_a_runtime_that_lost_what_it_is_made_of_is_built_anew(tmp_path: Path, name: str) -> None:
    place = await ready(tmp_path, "tiny")
    assert place.virtual_env
    damage(place)
    (place.virtual_env / name.format(VERSION)).write_bytes(b"\xff\0")
    assert says(await ready(tmp_path, "tiny"), "import sys, tiny; print(tiny.version, sys.prefix)") == (
        f"2.0 {place.virtual_env}"
    )


async def test_a_cache_of_uv_that_was_written_to_before_is_not_trusted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("UV_CACHE_DIR", str(tmp_path / "uv"))
    await ready(tmp_path / "first", "tiny")
    (cached,) = (tmp_path / "uv").rglob("tiny.py")
    cached.write_text("version = 666\n")
    assert says(await ready(tmp_path / "second", "tiny"), "import tiny; print(tiny.version)") == "2.0"
    (cached,) = (tmp_path / "uv").rglob("tiny.py")
    assert cached.read_text() == "version = '2.0'\n"


async def test_a_package_whose_own_record_is_wrong_is_taken_as_it_is(
    tmp_path: Path, wheels: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import zipfile

    published = tmp_path / "published"
    shutil.copytree(wheels, published)
    with zipfile.ZipFile(published / "odd-1.0-py3-none-any.whl", "w") as wheel:
        wheel.writestr("odd.py", "version = 1\n")
        wheel.writestr("odd-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: odd\nVersion: 1.0\n")
        wheel.writestr("odd-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr("odd-1.0.dist-info/RECORD", f"odd.py,sha256={digest('another')},12\n")
    monkeypatch.setenv("UV_FIND_LINKS", str(published))
    assert says(await ready(tmp_path, "odd"), "import odd; print(odd.version)") == "1"


@pytest.mark.parametrize("text", ["", "# sha256 0\n", "tiny==1.0\n"])
async def test_a_list_of_pins_that_is_not_whole_is_made_anew(tmp_path: Path, text: str) -> None:
    await ready(tmp_path, "tiny")
    (kept,) = tmp_path.glob("environments/*.pins")
    kept.write_text(text)
    assert says(await ready(tmp_path, "tiny"), "import tiny; print(tiny.version)") == "2.0"
    assert "tiny==2.0" in read_pins(kept)


@pytest.mark.parametrize("left", [0, 1000])
def test_an_agent_file_that_is_not_whole_is_made_anew(tmp_path: Path, left: int) -> None:
    agent = agent_file(tmp_path)
    whole = agent.read_bytes()
    os.truncate(agent, left)
    assert agent_file(tmp_path).read_bytes() == whole
    assert list(tmp_path.iterdir()) == [agent]
