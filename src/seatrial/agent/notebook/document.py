"""Notebook files: reads them, injects parameters, saves the executed copy."""

import contextlib
import itertools
import json
import math
import os
import re
from typing import Any, Dict, List, Mapping, Optional, Tuple

from ..masking.mask import Mask

Data = Dict[str, Any]
PARAMETERS_TAG = "parameters"
INJECTED_TAG = "injected-parameters"
SKIP_TAGS = ("skip", "skip-execution")
RAISES_TAG = "raises-exception"
_ANSI = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]")


class Broken(Exception):
    """Not a notebook, or one that cannot run here."""


def read_notebook(path: str) -> Data:
    """Reads a notebook, converted to format 4, with each source as one text."""
    try:
        with open(path, encoding="utf-8") as file:
            data = json.load(file)
    except FileNotFoundError:
        raise Broken("notebook not found: %s" % path) from None
    except OSError as error:
        raise Broken("cannot read notebook %s: %s" % (path, error.strerror)) from None
    except (ValueError, RecursionError) as error:
        raise Broken("invalid notebook %s: not JSON (%s)" % (path, error)) from None
    if not isinstance(data, dict) or not isinstance(data.get("nbformat"), int):
        raise Broken("invalid notebook %s: no `nbformat`" % path)
    if data["nbformat"] > 4 or data["nbformat"] < 1:
        raise Broken("%s has notebook format %d (supported: 1 to 4)" % (path, data["nbformat"]))
    if data["nbformat"] < 4:
        import nbformat

        formats: Any = nbformat
        try:
            data = formats.convert(formats.reader.reads(json.dumps(data)), 4)
        except Exception as error:
            text = "cannot convert %s from notebook format %d: %s"
            raise Broken(text % (path, data["nbformat"], error)) from error
    data.setdefault("metadata", {})
    if not isinstance(data.get("nbformat_minor"), int):
        data["nbformat_minor"] = 0
    _check(data, path)
    return dict(data)


def _check(data: Data, path: str) -> None:
    """Checks only what running it needs; full validation takes longer than a small notebook."""
    if not isinstance(data["metadata"], dict) or not isinstance(data.get("cells"), list):
        raise Broken("invalid notebook %s: no list of `cells`" % path)
    for number, cell in enumerate(data["cells"], 1):
        if not isinstance(cell, dict) or cell.get("cell_type") not in ("code", "markdown", "raw"):
            raise Broken("invalid notebook %s: cell %d is not a code, markdown or raw cell" % (path, number))
        source = cell.get("source", "")
        if not isinstance(source, (str, list)) or not all(isinstance(line, str) for line in source):
            raise Broken("invalid notebook %s: the source of cell %d is not text" % (path, number))
        cell["source"] = "".join(source)
        if not isinstance(cell.setdefault("metadata", {}), dict):
            raise Broken("invalid notebook %s: the metadata of cell %d is not an object" % (path, number))
        if cell["cell_type"] == "code":
            cell["outputs"], cell["execution_count"] = [], None


def tags(cell: Data) -> List[str]:
    found = cell["metadata"].get("tags", [])
    return [tag for tag in found if isinstance(tag, str)] if isinstance(found, list) else []


def execution(notebook: Data) -> Tuple[Optional[float], bool]:
    """Returns the notebook's own execution settings (`metadata.execution`): seconds per notebook cell, and whether
    cells may raise. A limit of null, 0 or less is none."""
    said = notebook["metadata"].get("execution")
    said = said if isinstance(said, dict) else {}
    timeout_s = said.get("timeout")
    if timeout_s is not None and (isinstance(timeout_s, bool) or not isinstance(timeout_s, (int, float))):
        raise Broken("invalid `metadata.execution.timeout` in the notebook: %r (expected seconds)" % (timeout_s,))
    return timeout_s if timeout_s and timeout_s > 0 else None, said.get("allow_errors") is True


def inject(notebook: Data, parameters: Mapping[str, Any]) -> None:
    """Inserts the values after the notebook cell tagged `parameters`, else first. Replaces an earlier injected one."""
    if not parameters:
        return
    cells = [cell for cell in notebook["cells"] if INJECTED_TAG not in tags(cell)]
    after = next((index for index, cell in enumerate(cells, 1) if PARAMETERS_TAG in tags(cell)), 0)
    lines = ["# Parameters"] + ["%s = %s" % (name, _literal(value)) for name, value in parameters.items()]
    cell: Data = {"cell_type": "code", "metadata": {"tags": [INJECTED_TAG]}, "outputs": [], "execution_count": None}
    cell["source"] = "\n".join(lines)
    if notebook["nbformat_minor"] >= 5:
        cell["id"] = "seatrial-parameters"
    notebook["cells"] = [*cells[:after], cell, *cells[after:]]


def _literal(value: Any) -> str:
    """Returns a JSON value as a Python literal, also for numbers without one."""
    if isinstance(value, float) and not math.isfinite(value):
        return 'float("%s")' % value
    if isinstance(value, dict):
        return "{%s}" % ", ".join("%s: %s" % (_literal(key), _literal(item)) for key, item in value.items())
    if isinstance(value, (list, tuple)):
        return "[%s]" % ", ".join(map(_literal, value))
    return repr(value)


def without_colors(text: str) -> str:
    """Removes ANSI escapes."""
    return _ANSI.sub("", text)


def kept_path(files: str, path: str, name: str) -> str:
    """Returns the path of a pass's executed copy, which is always inside `files`."""
    parts = [part for part in os.path.normpath(path).split(os.sep) if part not in ("", ".", "..")]
    stem = os.path.join(*parts) if parts else "notebook"
    return os.path.join(files, "notebooks", "%s.%s.ipynb" % (stem[:-6] if stem.endswith(".ipynb") else stem, name))


def keep_notebook(notebook: Data, path: str, mask: Mask) -> Optional[str]:
    """Saves the executed notebook atomically. Returns the error instead of raising it, so that the verdict is not
    lost."""
    for cell in notebook["cells"]:
        if cell["cell_type"] == "code":
            cell["outputs"] = _joined(cell["outputs"])
    partial = "%s.%d" % (path, os.getpid())
    try:
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(partial, "w", encoding="utf-8", errors="backslashreplace") as file:
            json.dump(mask.data(notebook), file, indent=1, ensure_ascii=False, sort_keys=True)
            file.write("\n")
        os.replace(partial, path)
    except (OSError, ValueError) as error:
        with contextlib.suppress(OSError):
            os.unlink(partial)
        return "cannot save the executed notebook to %s: %s" % (path, error)
    return None


def _joined(outputs: List[Data]) -> List[Data]:
    """Joins adjacent pieces of a stream, so that a secret that the kernel split is masked too."""
    joined: List[Data] = []
    for stream, group in itertools.groupby(outputs, lambda one: (one.get("output_type") == "stream", one.get("name"))):
        pieces = list(group)
        joined += [dict(pieces[0], text="".join(piece["text"] for piece in pieces))] if stream[0] else pieces
    return joined
