#!/usr/bin/env bash
# Two hosts as network namespaces: this one (10.77.0.1) and "other" (10.77.0.2).
set -euo pipefail
ip link set lo up
mount -t tmpfs none /run
mkdir -p /run/netns
ip netns add other
ip link add left type veth peer name right
ip link set right netns other
ip addr add 10.77.0.1/24 dev left
ip link set left up
ip netns exec other ip addr add 10.77.0.2/24 dev right
ip netns exec other ip link set right up
ip netns exec other ip link set lo up
exec "$PYTHON" tests/two_hosts.py
