"""Log-probabilities without logits, held against softmax as everyone writes it."""

import math

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from rlvr.train import logprobs as head
from rlvr.train.logprobs import LogitsTransform, token_logprobs

N, H, V = 11, 6, 50
CASES = [
    pytest.param(LogitsTransform(), 1.0, False, id="plain"),
    pytest.param(LogitsTransform(), 0.7, True, id="temperature and bias"),
    pytest.param(LogitsTransform(scale=0.0625), 1.3, False, id="scaled as in Cohere"),
    pytest.param(LogitsTransform(softcap=3.0), 1.0, False, id="capped as in Gemma"),
    pytest.param(LogitsTransform(scale=2.0, softcap=1.5), 0.5, True, id="all of it"),
]


@pytest.fixture
def narrow(monkeypatch):
    """Blocks of 7 of the 50 tokens: seven whole ones and a last one of a single token."""
    monkeypatch.setattr(head, "_NARROWEST", 7)
    monkeypatch.setattr(head, "_BLOCK", 1)


def inputs(
    dtype: torch.dtype = torch.float64,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """Hidden states, weight, bias, targets; the first and last token of the vocabulary are among these."""
    draw = torch.Generator().manual_seed(0)
    sizes = ((N, H), (V, H), (V,))
    real = [
        torch.randn(*size, generator=draw, dtype=torch.float64).to(dtype).requires_grad_()
        for size in sizes
    ]
    targets = torch.randint(V, (N,), generator=draw)
    targets[:2] = torch.tensor([0, V - 1])
    return (*real, targets)


def naive(hidden, weight, bias, targets, logits, temperature):
    z = hidden @ weight.T + (0 if bias is None else bias)
    z = z * logits.scale
    z = z if logits.softcap is None else logits.softcap * torch.tanh(z / logits.softcap)
    all_logprobs = (z / temperature).log_softmax(-1)
    entropy = -(all_logprobs.exp() * all_logprobs).sum(-1)
    return all_logprobs.gather(1, targets[:, None]).squeeze(1), entropy


@pytest.mark.usefixtures("narrow")
@pytest.mark.parametrize(("logits", "temperature", "with_bias"), CASES)
@pytest.mark.parametrize("with_entropy", [False, True])
def test_values_and_gradients_are_those_of_the_whole_softmax(
    logits, temperature, with_bias, with_entropy
):
    """In float64 to 1e-12, whatever stands between the head and the logits."""
    hidden, weight, bias, targets = inputs()
    bias = bias if with_bias else None
    leaves = [x for x in (hidden, weight, bias) if x is not None]
    at = torch.linspace(-1, 2, N, dtype=torch.float64)

    wanted = naive(hidden, weight, bias, targets, logits, temperature)
    found = token_logprobs(
        hidden,
        weight,
        targets,
        bias=bias,
        logits=logits,
        temperature=temperature,
        with_entropy=with_entropy,
    )
    assert (found[1] is None) == (not with_entropy)
    pairs = list(zip(found, wanted, strict=True))[: 1 + with_entropy]
    for one, other in pairs:
        torch.testing.assert_close(one, other, rtol=1e-12, atol=1e-12)
    gradients = [
        torch.autograd.grad(
            sum(((k + 1) * at * pair[side]).sum() for k, pair in enumerate(pairs)), leaves
        )
        for side in (0, 1)
    ]
    for one, other in zip(*gradients, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-10, atol=1e-12)


@pytest.mark.usefixtures("narrow")
def test_a_frozen_head_gets_no_gradient():
    """Then only the hidden states are asked for, as with adapters."""
    hidden, weight, _, targets = inputs()
    frozen = weight.detach()
    found, _ = token_logprobs(hidden, frozen, targets)
    found.sum().backward()
    wanted, _ = naive(hidden, frozen, None, targets, LogitsTransform(), 1.0)
    torch.testing.assert_close(
        hidden.grad, torch.autograd.grad(wanted.sum(), hidden)[0], rtol=1e-10, atol=1e-12
    )
    assert frozen.grad is None


def test_two_tokens_by_hand():
    """Logits 0 and log 3: probabilities 1/4 and 3/4, entropy log 4 - 3/4 log 3; at temperature 1/2, 1/10 and 9/10."""
    hidden, weight = torch.ones(2, 1), torch.tensor([[0.0], [math.log(3)]])
    found, entropy = token_logprobs(hidden, weight, torch.tensor([0, 1]), with_entropy=True)
    torch.testing.assert_close(found, torch.tensor([0.25, 0.75]).log())
    torch.testing.assert_close(entropy, torch.full((2,), math.log(4) - 0.75 * math.log(3)))
    cold, _ = token_logprobs(hidden, weight, torch.tensor([0, 1]), temperature=0.5)
    torch.testing.assert_close(cold, torch.tensor([0.1, 0.9]).log())


@pytest.mark.usefixtures("narrow")
def test_logits_far_apart_neither_overflow_nor_vanish():
    """A logit of 1e4 in the last block moves the running maximum by as much."""
    weight = torch.zeros(V, 1, requires_grad=True)
    with torch.no_grad():
        weight[-1], weight[3] = 1e4, -1e4
    found, entropy = token_logprobs(
        torch.ones(3, 1), weight, torch.tensor([3, 4, V - 1]), with_entropy=True
    )
    assert found.tolist() == [-2e4, -1e4, 0.0]
    assert entropy.tolist() == [0.0, 0.0, 0.0]
    (found.sum() + entropy.sum()).backward()
    assert weight.grad.isfinite().all()


def test_no_tokens_give_no_logprobs_and_no_gradient():
    """A micro-batch may hold empty completions alone."""
    hidden, weight, _, targets = inputs()
    found, entropy = token_logprobs(hidden[:0], weight, targets[:0], with_entropy=True)
    assert found.shape == entropy.shape == (0,)
    (found.sum() + entropy.sum()).backward()
    assert not weight.grad.any()


def test_greedy_choice_has_no_logprobs():
    """Temperature 0 is for sampling; here it would divide by it."""
    hidden, weight, _, targets = inputs()
    with pytest.raises(ValueError, match="above 0, as greedy"):
        token_logprobs(hidden, weight, targets, temperature=0.0)


def test_under_autocast_products_run_in_bfloat16_and_sums_in_float32():
    """Values as from the model's own head in bfloat16, whose logits are made float32 afterwards."""
    hidden, weight, _, targets = inputs(torch.float32)
    with torch.autocast("cpu", torch.bfloat16):
        found, _ = token_logprobs(hidden, weight, targets)
        wanted = (hidden @ weight.T).float().log_softmax(-1).gather(1, targets[:, None]).squeeze(1)
    assert found.dtype == torch.float32
    torch.testing.assert_close(found, wanted, rtol=1e-6, atol=1e-6)
    found.sum().backward()
    assert hidden.grad.dtype == weight.grad.dtype == torch.float32
    exact = torch.autograd.grad(
        naive(hidden, weight, None, targets, LogitsTransform(), 1.0)[0].sum(), weight
    )[0]
    torch.testing.assert_close(weight.grad, exact, rtol=0.05, atol=0.05)


class Largest(TorchDispatchMode):
    """The most numbers that any one tensor held."""

    def __init__(self) -> None:
        super().__init__()
        self.numbers = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        for tensor in out if isinstance(out, tuple | list) else [out]:
            if isinstance(tensor, torch.Tensor):
                self.numbers = max(self.numbers, tensor.numel())
        return out


def test_the_logits_never_exist_as_a_whole():
    """4096 tokens, 5000 words: 20 million logits, of which 4 million are alive at a time, forward and backward."""
    hidden = torch.randn(4096, 8, requires_grad=True)
    weight = torch.randn(5000, 8, requires_grad=True)
    with Largest() as seen:
        found, entropy = token_logprobs(
            hidden, weight, torch.zeros(4096, dtype=torch.int64), with_entropy=True
        )
        (found.sum() + entropy.sum()).backward()
    assert seen.numbers == 4096 * 1024
