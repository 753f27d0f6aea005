"""One sandbox per user for all attacks, so that each also shows what the one before it left behind."""

import pytest

from tests.sandbox.sandboxes import USERS, Canaries, Host, SessionHost, sandbox_as


@pytest.fixture(scope="session")
def canaries():
    canaries = Canaries()
    yield canaries
    canaries.close()


@pytest.fixture(scope="session", params=[*USERS, *(f"{user}-session" for user in USERS)])
def attacked(request, canaries):
    """Fails with the doctor's words where this machine cannot isolate."""
    user, _, how = request.param.partition("-")
    with sandbox_as(user) as sandbox:
        counted = any(g.name == "memory" and "cgroup" in str(g.mechanism) for g in sandbox.check())
        assert counted == (user == "root"), "root needs a cgroup; an ordinary user is tested without one"
        yield (SessionHost if how else Host)(sandbox, canaries, counted)


@pytest.fixture
def host(attacked):
    """What attacks run on; afterwards it has to be as it was."""
    yield attacked
    attacked.settled()
