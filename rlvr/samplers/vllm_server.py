"""Starts a vLLM server from which rlvr samples: `python -m
rlvr.samplers.vllm_server MODEL --port 8000`.

Runs in the environment that has vLLM.  Every flag that rlvr needs is given, and what stands behind
`--` goes to vLLM as it is.  The server can be given weights by anyone who reaches its port, with or
without a key: it listens on this machine alone unless --host says otherwise, and then belongs on a
private network.

The server ends with the process that started it, also after a SIGKILL, if that process holds the
other end of a pipe (--alive-fd): vLLM's engine is a process of its own, which would go on.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from rlvr.samplers.vllm_shared import EXTENSION, TESTED, is_tested
from rlvr.workers.program import StartedProgram
from rlvr.workers.thread import DaemonThread

__all__ = ["main", "server_variables"]


def _vllm_arguments(options: argparse.Namespace, *, on_cpu: bool) -> list[str]:
    """The arguments of vLLM's API server for our flags."""
    arguments = ["--model", options.model, "--host", options.host, "--port", str(options.port)]
    arguments += ["--dtype", options.dtype, "--max-num-seqs", str(options.max_rows)]
    arguments += ["--enable-scale-out"]  # the endpoint that takes and gives tokens
    arguments += ["--generation-config", "vllm", "--logprobs-mode", "processed_logprobs"]
    arguments += ["--worker-extension-cls", EXTENSION, "--enable-prefix-caching"]
    arguments += ["--disable-uvicorn-access-log"]
    if options.positions is not None:
        arguments += ["--max-model-len", str(options.positions)]
    if options.lora_rank is not None:
        arguments += ["--enable-lora", "--max-lora-rank", str(options.lora_rank)]
        arguments += ["--max-loras", "2", "--max-cpu-loras", "2"]
    if options.dummy:
        arguments += ["--load-format", "dummy"]
    if on_cpu:  # see rlvr.samplers.vllm
        arguments += ["--enforce-eager", "--block-size", "32", "--no-enable-chunked-prefill"]
    return arguments


def server_variables(*, on_cpu: bool, lora: bool = False) -> dict[str, str]:
    """The environment variables of the server; what is set already stays.

    Args:
        on_cpu: vLLM was built for CPUs.
        lora: LoRA adapters are swapped.
    """
    defaults = {
        "VLLM_NO_USAGE_STATS": "1",
        "VLLM_LOGGING_LEVEL": "WARNING",
    }
    if lora:
        defaults["VLLM_ALLOW_RUNTIME_LORA_UPDATING"] = "1"
    if on_cpu:
        defaults |= {
            "VLLM_CPU_KVCACHE_SPACE": "1",
            "VLLM_CPU_OMP_THREADS_BIND": "nobind",
            "VLLM_CPU_CI_ENV": "1",
        }
        defaults |= {"TORCH_COMPILE_DISABLE": "1"}  # takes minutes, and a C++ compiler
    # Whatever is set: without the first vLLM has no address for weights, and `rlvr.samplers.vllm`
    # sets the other to 0 for an engine in this process.
    fixed = {"VLLM_SERVER_DEV_MODE": "1", "VLLM_ENABLE_V1_MULTIPROCESSING": "1"}
    return {**defaults, **os.environ, **fixed}


def main(argv: Sequence[str] | None = None) -> int:
    """Run a server until it ends, or until the process that started it does; returns its exit code.

    Args:
        argv: flags; None for those of the command.
    """
    words = list(sys.argv[1:] if argv is None else argv)
    end = words.index("--") if "--" in words else len(words)
    options = _parser().parse_args(words[:end])
    version, on_cpu = _find_installed()
    if version is None or not is_tested(version):
        have = "no vLLM" if version is None else f"vLLM {version}"
        sys.stderr.write(
            f"this Python has {have}, and weights are sent to {TESTED}; see docs/using/vllm.md\n"
        )
        return 1
    os.environ.update(server_variables(on_cpu=on_cpu, lora=options.lora_rank is not None))
    if options.key_env:
        # Under the name that vLLM reads, so that the key is in no argument.
        os.environ["VLLM_API_KEY"] = os.environ[options.key_env]
    arguments = [sys.executable, "-m", "vllm.entrypoints.openai.api_server"]
    arguments += [*_vllm_arguments(options, on_cpu=on_cpu), *words[end + 1 :]]
    if options.alive_fd is None:
        # No pipe: nothing to watch, and one process less.
        os.execv(sys.executable, arguments)  # takes this process's place, with its signals
    return _guard(arguments, options.alive_fd)


def _guard(arguments: Sequence[str], alive_fd: int) -> int:
    """Run the server in this process's group, and kill the group when the pipe ends or a signal
    says so."""
    # A group of its own, which can be killed without the caller.
    if os.getpgrp() != os.getpid():
        os.setpgrp()

    # `read` returns nothing when the other end is closed, in whatever way its process ends.
    def wait_for_end() -> None:
        while os.read(alive_fd, 1):
            pass
        _end_group()

    DaemonThread(wait_for_end, name="lifeline", owner="vLLM server")
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: _end_group())
    # The server itself must not hold the pipe open.
    os.set_inheritable(alive_fd, False)
    StartedProgram(arguments, name="vLLM", owner="vLLM server", group="caller").wait()
    _end_group()
    return 1  # not reached


def _end_group() -> None:
    """Kill all processes of the group, this one among them: the engine does not end with its
    server.

    Python's trackers of shared memory are left alone.  They end by themselves once the others are
    gone, and delete the hundreds of megabytes that these have left.
    """
    # Again and again: a process may start another one meanwhile.
    while alive := [pid for pid in _members(os.getpgrp()) if pid != os.getpid()]:
        for pid in alive:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.01)
    # Without exit handlers: everything that they would end is gone.
    os._exit(1)


def _members(group: int) -> list[int]:
    """The living processes of a group, without trackers of shared memory."""
    pids = []
    for path in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            state, _, its_group = (
                # Behind the last bracket: a program's name may contain brackets and spaces.
                (path / "stat").read_text(encoding="utf-8").rpartition(")")[2].split()[:3]
            )
            is_tracker = b"multiprocessing.resource_tracker" in (path / "cmdline").read_bytes()
            if int(its_group) == group and state != "Z" and not is_tracker:
                pids.append(int(path.name))
    return pids


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m rlvr.samplers.vllm_server", description=__doc__
    )
    parser.add_argument("model", help="folder or hub id, as for `rlvr train --model`")
    parser.add_argument("--port", type=int, default=8000)
    parser.add_argument(
        "--host", default="127.0.0.1", help="address to listen on (default: this machine alone)"
    )
    parser.add_argument(
        "--dtype", default="float32", help="float32, or bfloat16 for --precision bf16"
    )
    parser.add_argument(
        "--positions", type=int, help="most tokens of prompt and completion together"
    )
    parser.add_argument("--max-rows", type=int, default=256, help="completions sampled in parallel")
    parser.add_argument(
        "--lora-rank", type=int, help="take LoRA adapters up to this rank (sampler_lora=swapped)"
    )
    parser.add_argument(
        "--key-env", help="environment variable with the key that requests have to have"
    )
    parser.add_argument(
        "--dummy", action="store_true", help="load no weights: the trainer sends them"
    )
    parser.add_argument("--alive-fd", type=int, help=argparse.SUPPRESS)
    return parser


def _find_installed() -> tuple[str | None, bool]:
    """The version of vLLM, and whether it was built for CPUs."""
    for name in ("vllm-cpu", "vllm"):
        with suppress(PackageNotFoundError):
            return version(name), name == "vllm-cpu"
    return None, False


if __name__ == "__main__":
    sys.exit(main())
