"""From the neutral job and the target's options to the objects of Kubernetes: plain data, made without asking anybody.

made = make(job, options, ...)     # root, config, secret, service
run_object(...), agent_configs(...), input_configs(...)   # what a run has once
"""

from seatrial.targets.kubernetes.manifest.make import (
    NO_UID,
    RELEASE,
    JobObjects,
    make,
    owned_by,
    owner,
    root_deadline_s,
    root_resource,
)
from seatrial.targets.kubernetes.manifest.placement import marked
from seatrial.targets.kubernetes.manifest.run import (
    INPUT_BYTES,
    agent_configs,
    input_configs,
    inputs_archive,
    run_object,
)
