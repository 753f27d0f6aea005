"""A sampler: an engine that says the same to every prompt.  A character is a token, 0 the end."""

from rlvr.collect import Sample
from rlvr.samplers.protocol import cut_at_stop


class Constant:
    """Says one text.

    Args:
        text: which.
    """

    def __init__(self, text):
        self.text, self.version, self._waiting = text, 0, []

    def submit(self, request):
        self._waiting.append(request)

    def poll(self):
        waiting, self._waiting = self._waiting, []
        return [(request.id, self._sample(request)) for request in waiting]

    def _sample(self, request):
        said = cut_at_stop(self.text, request.sampling.stop)
        ids = [*self.encode(said), 0][: request.limit]
        text, logprobs = self.decode(ids), [0.0] * len(ids)
        return Sample(text, request.context, ids, logprobs, ids[-1] != 0, self.version)

    def abort(self, ids):
        dropped = set(ids)
        self._waiting = [one for one in self._waiting if one.id not in dropped]

    def sync(self, weights, version):
        self.version = version

    def logprobs(self, rows):
        return [[0.0] * len(row.completion_ids) for row in rows]

    def encode(self, prompt, after=(), *, tools=()):
        return [ord(char) for char in str(prompt)]

    def decode(self, ids):
        return "".join(chr(token) for token in ids if token)
