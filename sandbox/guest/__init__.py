"""The part of the sandbox that runs inside it: standard library only, any Python from 3.10 on."""
