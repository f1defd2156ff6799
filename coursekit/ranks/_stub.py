"""What mpirun starts: it hands its place in the MPI job to the notebook, and waits.

Kept to the standard library, so that it starts in milliseconds.  The rank itself
is forked elsewhere, with the environment that this process was given.
"""

import json
import os
import socket
import sys


def main() -> None:
    """Send this process's environment to the socket and stay until it closes."""
    with socket.socket(socket.AF_UNIX) as sock:
        sock.connect(sys.argv[1])
        sock.sendall(json.dumps(dict(os.environ)).encode() + b"\n")
        while sock.recv(1):
            pass


if __name__ == "__main__":
    main()
