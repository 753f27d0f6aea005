"""Attack family: the network, inside and out, and sockets of the host."""

import pytest


def test_no_listener_of_the_host_is_reached(host):
    """TCP, UDP, abstract and file-system sockets that this very machine offers to everybody."""
    run = host.run(
        "import socket\n"
        "def tcp(): socket.create_connection(('127.0.0.1', CANARY['tcp']), 0.2)\n"
        "def six(): socket.create_connection(('::1', CANARY['tcp']), 0.2)\n"
        "def udp(): socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b'x', ('127.0.0.1', CANARY['udp']))\n"
        "def abstract(): socket.socket(socket.AF_UNIX).connect('\\0' + CANARY['variable'])\n"
        "def file(): socket.socket(socket.AF_UNIX).connect(CANARY['socket'])\n"
        "for attempt in (tcp, six, udp, abstract, file):\n"
        "    try: attempt(); print(attempt.__name__)\n"
        "    except OSError: pass"
    )
    assert run.text == ""


@pytest.mark.parametrize(
    "address", ["1.1.1.1", "8.8.8.8", "169.254.169.254", "10.0.0.1", "192.168.0.1", "0.0.0.0"]
)
def test_nothing_outside_is_reached(host, address):
    """No route, no interface, no socket: it fails at once, so that no run waits for a timeout."""
    run = host.run(
        "import socket, time\n"
        "for port in (53, 80, 443):\n"
        f"    try: socket.create_connection(('{address}', port), 1); print('connected')\n"
        "    except OSError: pass\n"
        "print(time.process_time() < 1)"
    )
    assert run.text == "True\n"
    assert run.wall_s < 1.0


def test_names_are_not_resolved(host):
    """Neither by DNS, nor by a daemon's socket, nor by multicast."""
    run = host.run(
        "import socket\ntry: print(socket.getaddrinfo('example.com', 80))\nexcept OSError: print('no')"
    )
    assert run.text == "no\n"


def test_only_unix_sockets_can_be_made(host):
    """Every other family is refused: raw, packet, netlink, vsock, bluetooth, AF_ALG, …"""
    run = host.run(
        "import socket\n"
        "made = []\n"
        "for family in range(50):\n"
        "    for kind in (1, 2, 3, 5):\n"
        "        try: socket.socket(family, kind, 0); made.append(family)\n"
        "        except OSError: pass\n"
        "print(sorted(set(made)))"
    )
    assert run.text == "[1]\n"


def test_the_shell_s_own_network_is_closed(host):
    """/dev/tcp, curl, wget, ping: whatever is installed."""
    run = host.run(
        f"exec 3<>/dev/tcp/127.0.0.1/{host.canaries.facts['tcp']} && echo open\n"
        f"for tool in curl wget; do timeout 1 $tool -s http://127.0.0.1:{host.canaries.facts['tcp']}/ && echo "
        f"open; done\n"
        "true",
        language="bash",
    )
    assert "open" not in run.text.split()


def test_node_reaches_nobody(host):
    """The same from JavaScript."""
    import dataclasses

    run = host.run(
        "const net = require('net');\n"
        f"const s = net.connect({host.canaries.facts['tcp']}, '127.0.0.1', () => console.log('open'));\n"
        "s.on('error', () => console.log('no'));",
        language="javascript",
        limits=dataclasses.replace(
            host.sandbox.limits, memory_mib=256, cpu_s=3.0, wall_s=6.0, processes=32
        ),
    )
    assert run.text == "no\n"
