"""Files that start a plan's commands on a cluster: a launcher is a function from a job to its file.

Every node runs the same script.  The first nodes train; the others sample until the first one ends,
which they see in the folder that all nodes share: run, weights on their way and that mark are in
it.  Not tried on clusters.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from rich.console import Console

from rlvr.console import Plainly
from rlvr.errors import UsageError
from rlvr.recipes.plan import NODE, nodes_of, require_fit, server_command, training_command
from rlvr.recipes.recipe import Machine
from rlvr.train.config import Config

__all__ = ["ClusterJob", "LAUNCHERS", "job_file", "show_job"]


@dataclass(frozen=True)
class ClusterJob:
    """A run on a cluster.

    Attributes:
        name: of letters, digits and hyphens.
        nodes: number of nodes.
        devices: of each node.
        script: in bash, for each node; it reads `$job`, an id that no other start has, `$rank`,
            this node's number, and the array `nodes`, the address of each.
    """

    name: str
    nodes: int
    devices: int
    script: str


def _slurm(job: ClusterJob) -> str:
    return f"""\
#!/bin/bash
# sbatch FILE, in a folder that all nodes see.  Not tried on a cluster.
#SBATCH --job-name={job.name}
#SBATCH --nodes={job.nodes}
#SBATCH --ntasks-per-node=1
#SBATCH --gpus-per-node={job.devices}
read -r -d '' script <<'NODE' || true
set -eu
job=$SLURM_JOB_ID rank=$SLURM_NODEID
mapfile -t nodes < <(scontrol show hostnames "$SLURM_JOB_NODELIST")
{job.script}NODE
srun bash -c "$script"
"""


def _kubernetes(job: ClusterJob) -> str:
    names = " ".join(f"{job.name}-{rank}.{job.name}" for rank in range(job.nodes))
    script = textwrap.indent(job.script, " " * 14)
    return f"""\
# kubectl apply -f FILE, with your IMAGE and the CLAIM of a volume that all nodes can write.
# Not tried on a cluster.
apiVersion: v1
kind: Service
metadata: {{name: {job.name}}}
spec:
  clusterIP: None
  publishNotReadyAddresses: true
  selector: {{job-name: {job.name}}}
---
apiVersion: batch/v1
kind: Job
metadata: {{name: {job.name}}}
spec:
  completionMode: Indexed
  completions: {job.nodes}
  parallelism: {job.nodes}
  backoffLimit: 0
  template:
    spec:
      subdomain: {job.name}
      restartPolicy: Never
      containers:
        - name: rlvr
          image: IMAGE
          workingDir: /shared
          env:
            - name: job
              valueFrom:
                fieldRef:
                  fieldPath: metadata.labels['batch.kubernetes.io/controller-uid']
          command: [bash, -c]
          args:
            - |
              set -eu
              rank=$JOB_COMPLETION_INDEX
              nodes=({names})
{script}          resources: {{limits: {{nvidia.com/gpu: {job.devices}}}}}
          volumeMounts:
            - {{name: shared, mountPath: /shared}}
            - {{name: memory, mountPath: /dev/shm}}
      volumes:
        - {{name: shared, persistentVolumeClaim: {{claimName: CLAIM}}}}
        - {{name: memory, emptyDir: {{medium: Memory}}}}
"""


def _skypilot(job: ClusterJob) -> str:
    return f"""\
# sky launch FILE, in a checkout of rlvr, with the BUCKET that all nodes share.
# Not tried on a cluster.
name: {job.name}
num_nodes: {job.nodes}
workdir: .
resources:
  accelerators: {{A100-80GB: {job.devices}, H100: {job.devices}}}
file_mounts:
  /shared: {{name: BUCKET, mode: MOUNT}}
setup: pip install -c constraints.txt '.[train,vllm]'
run: |
  set -eu
  job=$SKYPILOT_TASK_ID rank=$SKYPILOT_NODE_RANK
  mapfile -t nodes <<< "$SKYPILOT_NODE_IPS"
  cd /shared
{textwrap.indent(job.script, "  ")}"""


LAUNCHERS: Final[Mapping[str, Callable[[ClusterJob], str]]] = {
    "slurm": _slurm,
    "kubernetes": _kubernetes,
    "skypilot": _skypilot,
}
"""By name."""


def show_job(
    launcher: str,
    name: str,
    size: str,
    machine: Machine,
    given: Sequence[str],
    config: Config,
    places: Mapping[str, str],
    out: Console,
) -> None:
    """Print the file that starts a plan on a cluster.

    Args:
        launcher: a name of `LAUNCHERS`.
        name, size, machine, given, config, places, out: see `rlvr.recipes.plan.show_plan`.

    Raises:
        UsageError: it does not fit, or cannot be started so; the message says what would.
    """
    require_fit(config, machine)
    out.print(Plainly(job_file(launcher, name, size, machine, given)), soft_wrap=True, end="")


def job_file(launcher: str, name: str, size: str, machine: Machine, given: Sequence[str]) -> str:
    """The file that starts a plan on a cluster.

    Args:
        launcher: a name of `LAUNCHERS`.
        name, size: of the recipe.
        machine: of that size.
        given: further flags of the run.

    Raises:
        UsageError: the flags name servers, which the job starts itself.
    """
    training = nodes_of(machine.trainers)
    train = training_command(
        name,
        size,
        machine,
        given,
        first='"${nodes[0]}"',
        samplers='"$(IFS=,; echo "${samplers[*]}")"',
        folder='"$PWD/.weights-$job"',
    )
    if machine.samplers and "${samplers" not in train:
        raise UsageError(
            "a job starts its samplers itself; leave --sampler or --serve-samplers out"
        )
    script = f"{train}\n"
    if machine.samplers:
        script = _beside_servers(train, training, machine)
    # Devices asked of each node, the same for all: the greater of what training and sampling take,
    # and no more than a node has.
    devices = min(NODE, max(machine.trainers, machine.samplers))
    job_name = re.sub(r"[^a-z0-9]+", "-", f"{name}-{size}".lower()).strip("-")
    return LAUNCHERS[launcher](
        ClusterJob(job_name, training + nodes_of(machine.samplers), devices, script)
    )


def _beside_servers(train: str, training: int, machine: Machine) -> str:
    """The script of a node that trains, or has a server on each of its devices."""
    server = server_command(machine, "$((8000 + i % 8))")
    return f"""\
over=.over-$job
if (( rank >= {training} )); then
    first=$(( (rank - {training}) * {NODE} ))
    for (( i = first; i < first + {NODE} && i < {machine.samplers}; i++ )); do
        CUDA_VISIBLE_DEVICES=$((i % {NODE})) {server} &
    done
    until [ -e "$over" ]; do sleep 10; done
    kill $(jobs -p) || true
    exit
fi
if (( rank == 0 )); then trap 'touch "$over"' EXIT; fi
samplers=()
for (( i = 0; i < {machine.samplers}; i++ )); do
    samplers+=("http://${{nodes[{training} + i / {NODE}]}}:$((8000 + i % {NODE}))")
    curl -fs --retry 120 --retry-delay 5 --retry-all-errors "${{samplers[i]}}/health"
done
{train}
"""
