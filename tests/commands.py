"""What commands say, for tests that run them by `say`, or by a fixture that gives what it gives."""


def refusal_of(code: int, said: str, *_: object) -> str:
    """What a command said that was refused: its code is 2, and it said one line."""
    assert (code, said.count("\n")) == (2, 1), said
    return said
