"""`rlvr serve`, and the foundation on which it, the endpoint for agents and `rlvr view` stand.

    socket ─▶ connections: deadlines, limits ─▶ application: host, key, route ─▶ handler
                                                      │                   ─▶ responses ─▶ socket
                                           body within its limits, memory, metrics, draining

connections       what one connection may take, and which go when there are too many
application       who may ask, which route answers, what is refused and counted
request, refused  a request whose caller may ask; one that is not answered
keys, limits      API keys: of a variable, or of a file with names, expiry and rights; limits
body, memory      bodies within limits of bytes, values, depth and time; the memory of all requests
responses         an answer in one write, in pieces, or an error as its callers read errors
metrics, audit    counters in Prometheus's format, over several processes; the log of requests
openapi           the interface out of the types of its requests
server            listening, signals, draining, several processes; or a server in a thread
serve             the service: environments whose scores are asked for; nothing else knows verdicts
openenv           an environment behind OpenEnv's protocol

Contract: `application.Application`, with routes whose bodies are typed; the event loop reads and
sends, work is done by threads and processes.
Sees `scoring`, `environment`, `interop` in `serve` and `openenv` alone; `agents`, `viewer`, `cli`
see it.  Needs the extra `serve`; `limits` and `keys` do not.
Goes wrong: memory that a caller holds without being counted, a slow parse in the event loop, and a
request that dies between its acceptance and its count (docs/benchmarks/service.md).
"""
