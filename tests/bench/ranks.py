"""How fast ranks start and answer, side by side with other launchers in one run.

Every contender runs 4 ranks on this machine, Gloo or MPI, from a process that has
imported torch, and is timed until a first all-reduce's result is back (cold) and
for the same call again (warm). Prints medians and ratios; asserts nothing, since
machines are noisy.

    python tests/bench/ranks.py [--rounds 5] [--only coursekit,ipyparallel]
"""

import argparse
import json
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

SIZE = 4
ROOT = Path(__file__).parents[2]
BIN = Path(sys.executable).parent


def all_reduce() -> float:
    """A tiny all-reduce on the default process group; what every contender runs."""
    import torch
    import torch.distributed as dist

    if not dist.is_initialized():
        dist.init_process_group("gloo")
    x = torch.ones(4)
    dist.all_reduce(x)
    return float(x[0])


def check(results: object) -> None:
    """A time counts only for right results."""
    if results != [float(SIZE)] * SIZE:
        raise SystemExit(f"wrong results: {results}")


def timed(call: Callable[[], object]) -> float:
    began = time.perf_counter()
    check(call())
    return time.perf_counter() - began


# -- contenders: each yields the cold time, then warm times -------------------


def coursekit_prestarted() -> Iterator[float]:
    from coursekit import Ranks
    from coursekit.ranks._server_client import fork_server

    fork_server().gpus()
    yield from _coursekit(Ranks)


def coursekit_nothing_started() -> Iterator[float]:
    began = time.perf_counter()
    from coursekit import Ranks

    yield from _coursekit(Ranks, began)


def coursekit_mpi() -> Iterator[float]:
    from coursekit import Ranks
    from coursekit.ranks._server_client import fork_server

    fork_server().gpus()
    yield from _coursekit(lambda n: Ranks(n, launcher="mpi"))


def _coursekit(make: Callable[[int], object], began: float | None = None) -> Iterator[float]:
    began = time.perf_counter() if began is None else began
    with make(SIZE) as ranks:
        check(ranks.run(all_reduce))
        yield time.perf_counter() - began
        for _ in range(5):
            yield timed(lambda: ranks.run(all_reduce))


def ipyparallel_cluster() -> Iterator[float]:
    import ipyparallel as ipp

    began = time.perf_counter()
    cluster = ipp.Cluster(n=SIZE, log_level=40)
    client = cluster.start_and_connect_sync(activate=False)
    view = client[:]
    store = tempfile.mktemp()

    def join(rank: int, size: int, path: str) -> None:
        import torch.distributed as dist

        dist.init_process_group("gloo", init_method=f"file://{path}", rank=rank, world_size=size)

    for r, engine in enumerate(client.ids):
        joined = client[engine].apply_async(join, r, SIZE, store)
    joined.get()
    check(view.apply_sync(all_reduce))
    yield time.perf_counter() - began
    for _ in range(5):
        yield timed(lambda: view.apply_sync(all_reduce))
    cluster.stop_cluster_sync()


def accelerate_notebook_launcher() -> Iterator[float]:
    from accelerate import notebook_launcher

    # It returns nothing: the result is checked on the ranks.
    def work() -> None:
        if all_reduce() != SIZE:
            raise RuntimeError("wrong result")

    def call() -> list[float]:
        with socket.create_server(("127.0.0.1", 0)) as door:
            port = door.getsockname()[1]
        notebook_launcher(work, num_processes=SIZE, use_port=str(port))
        return [float(SIZE)] * SIZE

    for _ in range(4):
        yield timed(call)


def torchrun_script() -> Iterator[float]:
    with tempfile.TemporaryDirectory() as folder:
        script = Path(folder, "work.py")
        script.write_text(
            "import os, sys\nsys.path.insert(0, sys.argv[1])\n"
            "import torch.distributed as dist\nfrom ranks import all_reduce\n"
            "open(f\"{sys.argv[2]}/{os.environ['RANK']}\", 'w').write(str(all_reduce()))\n"
            "dist.destroy_process_group()\n"
        )
        here = str(Path(__file__).parent)
        command = [BIN / "torchrun", "--standalone", f"--nproc-per-node={SIZE}"]

        def call() -> list[float]:
            job = [*command, script, here, folder]
            subprocess.run(job, check=True, capture_output=True)
            return [float(Path(folder, str(r)).read_text()) for r in range(SIZE)]

        for _ in range(2):
            yield timed(call)


def mpi4py_futures() -> Iterator[float]:
    from coursekit.ranks._mpi import find_mpirun, mpirun_command

    program = [sys.executable, "-m", "mpi4py.futures", __file__, "--futures"]
    began = time.perf_counter()
    command = mpirun_command(find_mpirun(), SIZE + 1, program)
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as job:
        for line in job.stdout:
            if line.startswith("warm"):
                yield float(line.split()[1])
            elif line.startswith("cold"):
                yield time.perf_counter() - began


def futures_pool() -> None:
    """What mpirun starts for mpi4py.futures: one master, SIZE workers."""
    from mpi4py.futures import MPIPoolExecutor

    with MPIPoolExecutor(max_workers=SIZE) as pool:
        check(list(pool.map(_mpi_all_reduce, range(SIZE))))
        print("cold", flush=True)
        for _ in range(5):
            print("warm", timed(lambda: list(pool.map(_mpi_all_reduce, range(SIZE)))), flush=True)


def _mpi_all_reduce(_: int) -> float:
    import numpy as np
    from mpi4py import MPI
    from mpi4py.futures import get_comm_workers

    x = np.ones(4, dtype="f")
    get_comm_workers().Allreduce(MPI.IN_PLACE, x)
    return float(x[0])


CONTENDERS = {
    "coursekit, fork server there": coursekit_prestarted,
    "coursekit, nothing started": coursekit_nothing_started,
    "coursekit under mpirun": coursekit_mpi,
    "ipyparallel": ipyparallel_cluster,
    "accelerate notebook_launcher": accelerate_notebook_launcher,
    "torchrun (a script)": torchrun_script,
    "mpi4py.futures": mpi4py_futures,
}


# -- the run -------------------------------------------------------------------


def one(name: str) -> None:
    """Measure one contender in this process and print its times."""
    import torch  # noqa: F401 - every contender starts from a process that has it

    sys.modules.setdefault("ranks", sys.modules["__main__"])
    print("\n" + json.dumps(list(CONTENDERS[name]())))


def measure(name: str) -> tuple[float, float] | None:
    """Run one contender in a fresh process: its cold time and its median warm time."""
    env = {**os.environ, "OMP_NUM_THREADS": "1", "PATH": f"{BIN}:{os.environ['PATH']}"}
    env["GLOO_SOCKET_IFNAME"] = "lo"
    env["PYTHONPATH"] = os.pathsep.join([str(ROOT), str(Path(__file__).parent)])
    command = [sys.executable, __file__, "--one", name]
    try:
        done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=60)
    except subprocess.TimeoutExpired:
        print(f"{name}: no end after 60 s", file=sys.stderr)
        return None
    if done.returncode:
        print(f"{name}: failed\n{done.stderr[-1500:]}", file=sys.stderr)
        return None
    cold, *warm = json.loads(done.stdout.strip().splitlines()[-1])
    return cold, statistics.median(warm)


def fresh_kernel() -> float:
    """Seconds from `import coursekit` to a result, in a new kernel that has imported torch."""
    from jupyter_client.manager import start_new_kernel

    manager, client = start_new_kernel(cwd=str(ROOT))
    cell = (
        "import time; began = time.perf_counter()\nfrom coursekit import Ranks\n"
        "ranks = Ranks(4)\ndef work():\n    x = torch.ones(4); dist.all_reduce(x); return x\n"
        "out = ranks.run(work)\nprint(time.perf_counter() - began)"
    )
    said: list[str] = []
    try:
        client.execute_interactive("import torch", output_hook=lambda _: None)
        client.execute_interactive(
            cell, output_hook=lambda m: said.append(m["content"].get("text", ""))
        )
    finally:
        client.stop_channels()
        manager.shutdown_kernel(now=True)
    return float("".join(said).strip().splitlines()[-1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", default="", help="parts of names, separated by commas")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    parser.add_argument("--futures", action="store_true", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.futures:
        futures_pool()
        return
    if asked.one:
        one(asked.one)
        return
    parts = [p for p in asked.only.split(",") if p]
    names = [n for n in CONTENDERS if not parts or any(p in n for p in parts)]
    # Rounds are interleaved, so that a noisy minute hits every contender alike.
    rounds = [(n, measure(n)) for _ in range(asked.rounds) for n in names]
    report(names, rounds)
    kernels = [fresh_kernel() for _ in range(asked.rounds)]
    print(f"\nfirst start in a fresh kernel: {statistics.median(kernels):.2f} s (torch imported)")


def report(names: list[str], rounds: list[tuple[str, tuple[float, float] | None]]) -> None:
    table = {n: [t for name, t in rounds if name == n and t is not None] for n in names}
    medians = {
        n: tuple(statistics.median(column) for column in zip(*times, strict=True))
        for n, times in table.items()
        if times
    }
    base = medians.get(names[0])
    print(f"{SIZE} ranks, medians of {len(rounds) // len(names)} rounds, one machine, one run\n")
    print(f"{'launcher':32}{'cold s':>9}{'warm ms':>9}{'cold ratio':>12}{'warm ratio':>12}")
    for name, (cold, warm) in medians.items():
        ratios = (cold / base[0], warm / base[1]) if base else (1, 1)
        print(f"{name:32}{cold:9.3f}{warm * 1e3:9.1f}{ratios[0]:12.1f}{ratios[1]:12.1f}")


if __name__ == "__main__":
    main()
