"""One engine for all tests of a process: it takes half a minute to start, and a process has one at a time."""

import os

import pytest

os.environ.setdefault("OMP_NUM_THREADS", "1")

vllm = pytest.importorskip("vllm", reason="needs vLLM: make test-vllm")

from rlvr.samplers.vllm import VLLMSampler  # noqa: E402  what they import is not in every environment
from rlvr.train.policy import Policy  # noqa: E402
from rlvr.train.tiny import tiny  # noqa: E402

CHARSET = "0123456789+-= abcxy"


def pytest_collection_modifyitems(items):
    for item in items:
        if "tests/vllm" in item.path.as_posix():
            item.add_marker("vllm")


def made(*, tied: bool, seed: int = 0, positions: int = 256, family: str = "qwen2") -> Policy:
    """Two layers with heads of 32, in float32.

    Where the tokenizer is loaded from a folder the family has to be llama: for a folder with a qwen2 transformers takes
    Qwen2's own tokenizer, whatever the folder says.
    """
    sizes = {"hidden": 64, "heads": 2, "layers": 2, "max_length_tokens": positions}
    return Policy(*tiny(CHARSET, seed=seed, tied=tied, family=family, **sizes))


class Engine:
    """A policy and the engine of this process, which holds its weights."""

    def __init__(self, folder, *, tied: bool, **options):
        self.policy = made(tied=tied)
        self.policy.save_description(folder)
        self.sampler = VLLMSampler(folder, self.policy.tokenization, **options)


class Engines:
    """Gives the engine that a test asks for; the one before it is closed."""

    def __init__(self, folders):
        self._folders, self._kind, self._engine = folders, None, None

    def of(self, *, tied: bool, **options) -> Engine:
        kind = tied, tuple(sorted(options.items(), key=str))
        if kind != self._kind:
            self.close()
            self._engine = Engine(self._folders.mktemp("model"), tied=tied, **options)
            self._kind = kind
        engine = self._engine
        fresh = made(tied=tied)
        engine.policy.model.load_state_dict(fresh.model.state_dict())
        engine.sampler.sync(engine.policy.weights(), 0)
        return engine

    def close(self):
        if self._engine is not None:
            self._engine.sampler.close()
        self._kind = self._engine = None


@pytest.fixture(scope="session")
def engines(tmp_path_factory):
    engines = Engines(tmp_path_factory)
    yield engines
    engines.close()


@pytest.fixture
def tied(engines):
    """An engine whose head shares the embedding's matrix, with weights of version 0."""
    return engines.of(tied=True)


@pytest.fixture
def untied(engines):
    return engines.of(tied=False)
