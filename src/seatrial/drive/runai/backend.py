"""When the control plane of Run:ai knew of each job: from its database, where that may be read."""

import re
from datetime import UTC, datetime

_ASKED = """
    SELECT name, min(time_created) FROM jobs
    WHERE project = %(project)s AND exists_in_cluster = 'true' AND (kind = 'RunaiJob') = %(runai_job)s
      AND (%(cluster)s::text IS NULL OR cluster_uuid::text = %(cluster)s) GROUP BY name
"""
_CONNECT_S = 10
_URL = re.compile(r"postgres(ql)?://([^:@/]*@)?[^@]*")  # of one with a password, a part may be taken for a host
_FORM = "the form of its URL is postgresql://USER@HOST:PORT/DATABASE"


class BackendError(Exception):
    """Why the database says nothing; no text of it has a password."""


def backend_times(url: str, project: str, workload_type: str, cluster: str | None) -> dict[str, str]:
    """By the name of the job, in milliseconds. `cluster` is the uuid of one of several. Raises BackendError."""
    try:
        import psycopg
        from psycopg.conninfo import conninfo_to_dict
    except ImportError:
        raise BackendError("the driver psycopg is not installed: pip install 'seatrial[postgres]'") from None
    try:
        parameters = conninfo_to_dict(url, connect_timeout=_CONNECT_S, application_name="seatrial")
    except psycopg.Error:  # its text quotes what it could not read, which may be a password
        parameters = {}
    if not parameters or not _URL.fullmatch(url):
        raise BackendError(f"{_FORM}, and the password that of PGPASSWORD or ~/.pgpass")
    asked = {"project": project, "runai_job": workload_type != "distributed", "cluster": cluster}
    try:
        with psycopg.connect(**parameters) as connection:  # type: ignore[arg-type]
            rows = connection.execute(_ASKED, asked).fetchall()
            return {str(name): _moment(float(made_ms)) for name, made_ms in rows}
    except (psycopg.Error, TypeError, ValueError, OverflowError) as error:
        raise BackendError(" ".join(str(error).split())) from None


def _moment(made_ms: float) -> str:
    return datetime.fromtimestamp(made_ms / 1000, UTC).isoformat(timespec="milliseconds")
