"""The words of our own records, and of notebooks: keys, and what stands for a state. A secret may be one of them (a
password `value`), and what is told by these words must stay readable. They give nothing away: everybody knows them."""

from __future__ import annotations

from typing import Any, FrozenSet, Iterator

# Where the value is a word of ours, or a name that the job was given: `event` of a record, `name` of a figure.
_PLACES = """
    event outcome note state class what pass name pattern entry thing kind format step_source cell_type output_type
    gpu_source gpu_memory_source
"""
PLACES: FrozenSet[str] = frozenset(_PLACES.split())
_RECORDS = """
    at_s begin begun data done end event finished hardware host note ready sample step version wall_s
    code cpu_s left log_bytes log_omitted_bytes message notes_omitted oom_kills outcome output output_omitted_bytes
    peak_memory_bytes result signal cores gpu index memory_bytes utilization cpu
    exited signal memory timeout stall stopped evicted queue unready released cancelled lost refused infra
"""
_NOTES = """
    absent cell cells class command commit crashed dead driver error errors executable facts file imported import
    implied kept kernel language limit machine model name packages pass passed passed-over path prefix progress python
    restarted seconds shell skipped failed source state terminal text thing traceback unknown_ref unseen broken
    fresh rerun restart gpu_error gpu_memory_source gpu_peak_memory_bytes gpu_source nvidia-smi
"""
_TRAINING = """
    ambiguous bytes count counts cut devices dropped entries entry events files first format hostnames json kineto last
    last_line last_step line lines long_lines missing modified_s must never number pattern planes profile seconds_after
    start_s step_source steps unread unresolved value values warnings what xplane loss step_time label labels
"""
_NOTEBOOK = """
    cell_type execution_count metadata nbformat nbformat_minor output_type outputs tags ename evalue display_data
    execute_result stream stdout stderr markdown kernelspec display_name language_info file_extension mimetype
    nbconvert_exporter pygments_lexer codemirror_mode text/plain text/html image/png application/json
    injected-parameters seatrial-parameters
"""
WORDS: FrozenSet[str] = frozenset((_RECORDS + _NOTES + _TRAINING + _NOTEBOOK).split())


def texts(value: Any) -> Iterator[str]:
    """Every text in plain data, keys too."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for key, item in value.items():
            yield str(key)
            yield from texts(item)
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from texts(item)
