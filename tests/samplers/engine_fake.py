"""A scripted `vllm.LLM` for tests of the sampler over an engine in this process.  It has no model."""

import sys
from types import ModuleType, SimpleNamespace


class FakeLLM:
    """An engine that answers as the scripted server of `vllm_fake` does, a token a step.

    Its completion of a request with seed s is the token 4 + s % 8 and the end token; each token's logprob is -0.5.

    Attributes:
        weights: name → first number, of the weights that it was given last.
        calls: of methods that change it, in order.
        tokens: of a completion, the end token among them.
    """

    tokens = 2

    def __init__(self, end, about, **options):
        self.end, self.about, self.options, self.llm_engine = end, about, options, self
        self.weights, self.calls, self.label, self.open = {}, [], "default", {}

    def collective_rpc(self, method, args=()):
        if method == "rlvr_describe":
            return [self.about]
        self.calls.append("load")
        self.weights = {name: tensor.flatten()[0].item() for name, tensor in args[0].items()}
        return [list(self.weights)]

    def add_request(self, name, prompt, parameters, lora_request):
        assert type(prompt["prompt_token_ids"]) is list  # vLLM copies it
        self.open[name] = parameters, [], prompt["prompt_token_ids"]

    def abort_request(self, names):
        for name in names:
            self.open.pop(name, None)

    def step(self):
        outputs = []
        for name, (parameters, ids, prompt) in list(self.open.items()):
            is_last = len(ids) == self.tokens - 1
            ids.append(self.end if is_last else 4 + parameters.get("seed", 0) % 8)
            finished = len(ids) == min(self.tokens, parameters["max_tokens"])
            outputs.append(self._output(name, list(ids), finished))
            if "prompt_logprobs" in parameters:
                outputs[-1].prompt_logprobs = [
                    {token: SimpleNamespace(logprob=-0.5)} for token in prompt
                ]
            if finished:
                del self.open[name]
        return outputs

    def _output(self, name, ids, finished):
        completion = SimpleNamespace(
            token_ids=ids,
            logprobs=[{token: SimpleNamespace(logprob=-0.5)} for token in ids],
            finish_reason=("stop" if ids[-1] == self.end else "length") if finished else None,
            weight_versions=[SimpleNamespace(version=self.label, start=0, end=len(ids))]
            if finished
            else None,
        )
        return SimpleNamespace(request_id=name, finished=finished, outputs=[completion])

    def reset_prefix_cache(self, *, reset_running_requests):
        self.calls.append("reset")
        return reset_running_requests

    def update_weight_version(self, label):
        self.calls.append("label")
        self.label = label

    def get_weight_version(self):
        return self.label

    def add_lora(self, request):
        self.calls.append(f"add {request.lora_int_id}")

    def remove_lora(self, number):
        self.calls.append(f"remove {number}")

    def sleep(self, level):
        self.calls.append("sleep")

    def wake_up(self, tags=()):
        self.calls.append(f"wake {' '.join(tags)}".strip())


def install(monkeypatch, end, about):
    """Let `import vllm` give this engine."""
    parts = {
        "vllm": {
            "LLM": lambda **options: FakeLLM(end, about, **options),
            "SamplingParams": lambda **fields: fields,
            "__version__": "0.32.0",
        },
        "vllm.platforms": {"current_platform": SimpleNamespace(is_cpu=lambda: False)},
        "vllm.lora": {},
        "vllm.lora.request": {
            "LoRARequest": lambda name, number, path: SimpleNamespace(lora_int_id=number)
        },
    }
    for name, attributes in parts.items():
        module = ModuleType(name)
        vars(module).update(attributes)
        monkeypatch.setitem(sys.modules, name, module)
