"""From the neutral job and the target's options to the objects of Kubernetes: plain data, made without asking anybody.

made = make(job, options, ...)     # root, config, secret, service
run_object(...), agent_configs(...), input_configs(...)   # what a run has once
"""

from seatrial.target.kubernetes.manifest.inputs import INPUT_BYTES, inputs_archive
from seatrial.target.kubernetes.manifest.make import NO_UID, JobObjects, make, owned_by, owner
from seatrial.target.kubernetes.manifest.marks import marked
from seatrial.target.kubernetes.manifest.pod import pod_deadline_s
from seatrial.target.kubernetes.manifest.run import agent_configs, input_configs, run_object
from seatrial.target.kubernetes.manifest.workload import (
    RELEASE,
    root_deadline_s,
    root_resource,
)
