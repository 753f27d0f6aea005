"""A scripted server that answers as vLLM's does, for tests of what talks to it.  It has no model."""

import json
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from safetensors import safe_open


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def do_GET(self):
        self._answer({})

    def do_POST(self):
        length = int(self.headers.get("content-length") or 0)
        self._answer(json.loads(self.rfile.read(length) or b"{}"))

    def _answer(self, body):
        fake: Fake = self.server.fake
        path = self.path.partition("?")[0]
        code, said = fake.answer(self.path, body, self.headers.get("authorization"))
        if code is None:  # dies without an answer
            self.close_connection = True
            self.connection.close()
            return
        fake.calls.append(path)
        data = json.dumps(said).encode()
        self.send_response(code)
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *args):
        pass


class Fake:
    """A server on this machine.

    Its completion of a request with seed s is the token 4 + s % 8 and the end token; each token's logprob is -0.5.

    Attributes:
        calls: paths that were answered, in order.
        asked: bodies of requests for completions.
        broken: path → (status, body) instead of the usual answer.
        weights: name → first number, of the weights that it was given last.
        slow_s: seconds that a completion takes.
    """

    def __init__(self, policy, names, **about):
        self.calls, self.asked, self.broken, self.weights = [], [], {}, {}
        self.tokenizer, self.end = policy.tokenizer, min(policy.tokenization.end_ids)
        self.label, self.slow_s, self.key, self.version, self.adapters = (
            "default",
            0.0,
            None,
            "0.32.0",
            [],
        )
        self.about = {
            "names": sorted(names), "tied": True, "positions": 64, "logprobs": "processed_logprobs",
            "dtype": "float32", "max_lora_rank": None,
        } | about  # fmt: skip
        self.dead, self.port, self.ended = False, 0, 0
        self.start()

    def start(self):
        """Begin to listen, on the port that it had before."""
        self.label, self.dead = "default", False
        self._server = ThreadingHTTPServer(("127.0.0.1", self.port), Handler)
        self._server.daemon_threads = True
        self._server.fake, self.port = self, self._server.server_address[1]
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(0.02,), daemon=True
        )
        self._thread.start()

    def kill(self):
        """Drop all connections and listen no more."""
        self.dead = True
        self._server.shutdown()
        self._server.server_close()

    @property
    def url(self):
        return f"http://127.0.0.1:{self.port}"

    def answer(self, whole, body, key):
        if self.dead:
            return None, None
        path = whole.partition("?")[0]
        if path in self.broken:
            return self.broken[path]
        if (
            self.key is not None
            and path.startswith(("/v1", "/inference"))
            and key != f"Bearer {self.key}"
        ):
            return 401, {"error": "Unauthorized"}
        if path == "/version":
            return 200, {"version": self.version}
        if path == "/tokenize":
            return 200, {
                "tokens": self.tokenizer(body["prompt"], add_special_tokens=False)["input_ids"]
            }
        if path == "/weight_info":
            return 200, {"weight_version": self.label}
        if path == "/update_weight_version":
            self.label = body["new_version"]
            return 200, {}
        if path == "/reset_prefix_cache":
            return 200, {"success": "reset_running_requests=true" in whole}
        if path == "/collective_rpc":
            return 200, {"results": [self._rpc(**body)]}
        if path == "/abort_requests":
            self.ended += 1
        if path == "/v1/load_lora_adapter":
            self.adapters.append(body["lora_name"])
        if path == "/inference/v1/generate":
            return self._generate(body)
        return 200, {}

    def _rpc(self, method, args):
        if method == "rlvr_describe":
            return {**self.about, "note": Path(args[0]).read_text()}
        self.weights = {}
        for path in Path(args[0]).iterdir():
            with safe_open(path, framework="pt") as file:
                self.weights |= {
                    name: file.get_tensor(name).flatten()[0].item()
                    for name in file.keys()  # noqa: SIM118
                }
        return list(self.weights)

    def _generate(self, body):
        self.asked.append(body)
        label, until, ended = self.label, time.monotonic() + self.slow_s, self.ended
        while time.monotonic() < until and self.ended == ended:
            time.sleep(0.005)
        if self.dead:
            return None, None
        parameters = body["sampling_params"]
        if "prompt_logprobs" in parameters:
            entries = [{str(token): {"logprob": -0.5}} for token in body["token_ids"]]
            return 200, {
                "choices": [{"token_ids": [self.end], "finish_reason": "stop"}],
                "prompt_logprobs": entries,
            }
        ids = [4 + parameters.get("seed", 0) % 8, self.end][: parameters["max_tokens"]]
        aborted = self.ended > ended
        ids = ids[:1] if aborted else ids
        choice = {
            "token_ids": ids,
            "finish_reason": "abort" if aborted else "stop" if len(ids) == 2 else "length",
            "logprobs": {"content": [{"logprob": -0.5} for _ in ids]},
            "weight_versions": [{"version": label, "start": 0, "end": len(ids)}],
        }
        return 200, {"choices": [choice]}
