"""`rlvr serve`, and the foundation on which it, the endpoint for agents and `rlvr view` stand.

    socket ──▶ connections: deadlines, limits ──▶ application: host, key, route ──▶ handler ──▶ responses ──▶ socket
                                                        │
                                             body within its limits, memory, metrics, draining

connections   what one connection may take, and which go when there are too many
application   who may ask, which route answers, what is refused and counted
keys          API keys: of a variable, or of a file with names, expiry and rights
body, memory  bodies within limits of bytes, values, depth and time; the memory of all requests
responses     an answer in one write, in pieces, or an error as the callers of an application read errors
metrics       counters in Prometheus's format, over several processes
openapi       the interface out of the types of its requests
server        listening, signals, draining, several processes; or a server in a thread
serve         the service: environments whose scores are asked for; nothing else here knows of verdicts

Needs the extra `serve`; `limits` and `keys` do not.
"""
