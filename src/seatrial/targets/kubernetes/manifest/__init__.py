"""Manifests for a job, from the job and the target's options. Pure functions that return plain data.

made = make(job, options, ...)     # root, config, secret, service
run_object(...), agent_configs(...), input_configs(...)   # once per run
"""

from seatrial.targets.kubernetes.manifest.make import (
    RELEASE,
    JobObjects,
    make,
    owned_by,
    owner,
    root_deadline_s,
    root_resource,
)
from seatrial.targets.kubernetes.manifest.placement import gpu_terms, marked, refuse_unmatched
from seatrial.targets.kubernetes.manifest.pod import secure
from seatrial.targets.kubernetes.manifest.run import agent_configs, input_configs, inputs_archive, run_object
