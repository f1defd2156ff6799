"""Launcher lines: what is wrong is found, what is right passes, what is written runs."""

from __future__ import annotations

import io
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from coursekit import _data, i18n, launch
from coursekit.__main__ import main
from coursekit.launch import LaunchError, check

MEET = "--rdzv-backend=c10d --rdzv-endpoint=node1:29500"
ASK = 'python -c "import torch; print(torch.cuda.nccl.version())"'

# What is wrong: the lines, the findings' ids, the first correction, and what check is told beside.
BROKEN = [
    # -- the four of the chapter
    ("# see the version\nnccl-info", ["shell.nccl_info"], ASK, {}),
    (
        "export NCCL_DEBUG=INFO\nexport NCCL_DEBUG_FILE=/tmp/nccl_debug.log",
        ["env.log_shared"],
        "export NCCL_DEBUG_FILE=/tmp/nccl_debug.%h.%p.log",
        {},
    ),
    (
        "export NCCL_ALGO=Tree",
        ["env.algo_alone"],
        'export NCCL_ALGO="ring,tree;allreduce:tree"',
        {"nccl": "2.24"},
    ),
    (
        "mpirun -np 8 --hostfile hosts.txt \\\n  --mca pml ucx --mca btl ^openib \\\n"
        "  ./train_script",
        ["mpirun.openib"],
        "mpirun -np 8 --hostfile hosts.txt ./train_script",
        {},
    ),
    # -- torchrun
    (
        "torchrun --nproc_per_node=8 --node_rank=1 train.py",
        ["torchrun.node_rank_alone"],
        "torchrun --master-addr=node1 --nnodes=2 --nproc_per_node=8 --node_rank=1 train.py",
        {},
    ),
    (
        "torchrun --nnodes 2 --node-rank 0 --master-addr a --nproc-per-node 8 t.py  # on a\n"
        "ssh b torchrun --nnodes 2 --node-rank 0 --master-addr a --nproc-per-node 8 t.py",
        ["torchrun.same_node_rank"],
        "ssh b torchrun --nnodes 2 --node-rank=1 --master-addr a --nproc-per-node 8 t.py",
        {},
    ),
    (
        "torchrun --nnodes=2 --nproc-per-node=8 train.py --lr 1e-4",
        ["torchrun.no_endpoint"],
        f"torchrun --nnodes=2 --nproc-per-node=8 {MEET} --rdzv-id=job1 train.py --lr 1e-4",
        {},
    ),
    (
        "torchrun --nnodes=2 --nproc-per-node=8 --rdzv-backend=c10d "
        "--rdzv-endpoint=localhost:29400 train.py",
        ["torchrun.endpoint_localhost"],
        f"torchrun --nnodes=2 --nproc-per-node=8 {MEET} --rdzv-id=job1 train.py",
        {},
    ),
    (
        "python -m torch.distributed.run --nnodes=2 --node-rank=1 --nproc-per-node=8 "
        "--master-addr=127.0.0.1 --master-port=29501 t.py",
        ["torchrun.endpoint_localhost"],
        "python -m torch.distributed.run --nnodes=2 --node-rank=1 --nproc-per-node=8 "
        "--master-addr=node1 --master-port=29501 t.py",
        {},
    ),
    (
        "torchrun --nnodes=2 --nproc-per-node=8 --rdzv-backend=c10d --master-addr=node1 t.py",
        ["torchrun.master_ignored"],
        f"torchrun --nnodes=2 --nproc-per-node=8 {MEET} --rdzv-id=job1 t.py",
        {},
    ),
    (
        "torchrun --nnodes=4 --nproc-per-node=8 --master-addr=$HEAD --master-port=29501 t.py",
        ["torchrun.no_node_rank"],
        "torchrun --nnodes=4 --nproc-per-node=8 --rdzv-backend=c10d "
        '--rdzv-endpoint="$HEAD:29501" t.py',
        {},
    ),
    (
        "torchrun --standalone --nnodes=2 --nproc-per-node=8 t.py",
        ["torchrun.standalone_nodes"],
        f"torchrun --nnodes=2 --nproc-per-node=8 {MEET} --rdzv-id=job1 t.py",
        {},
    ),
    (
        "torchrun --standalone --nproc_per_node 8 train.py",
        ["torchrun.more_than_gpus"],
        "torchrun --standalone --nproc-per-node=4 train.py",
        {"gpus": 4},
    ),
    (
        "CUDA_VISIBLE_DEVICES=0,1 torchrun --standalone --nproc-per-node=4 train.py",
        ["torchrun.visible_fewer"],
        "CUDA_VISIBLE_DEVICES=0,1 torchrun --standalone --nproc-per-node=2 train.py",
        {"gpus": 8},
    ),
    (
        "torchrun --standalone --nproc-per-node=4",
        ["torchrun.no_script"],
        "torchrun --standalone --nproc-per-node=4 train.py",
        {},
    ),
    (
        "torchrun --standalone --nproc-per-node=4 python3 train.py --lr 1",
        ["torchrun.python"],
        "torchrun --standalone --nproc-per-node=4 train.py --lr 1",
        {},
    ),
    (
        "torchrun train.py --lr 1 --nproc_per_node 8",
        ["torchrun.late_option"],
        "torchrun --nproc_per_node 8 train.py --lr 1",
        {},
    ),
    (
        "torchrun --standalone --nproc-pernode=4 train.py",
        ["torchrun.unknown_option"],
        "torchrun --standalone --nproc-per-node=4 train.py",
        {},
    ),
    # -- mpirun
    (
        "mpirun -np 16 --host a:4,b:4 ./train",
        ["mpirun.slots"],
        "mpirun -np 8 --host a:4,b:4 ./train",
        {},
    ),
    (
        "cat > hosts <<EOF\na slots=8  # first\nb slots=8\nEOF\n"
        "mpirun -np 17 --hostfile hosts ./train",
        ["mpirun.slots"],
        "mpirun -np 16 --hostfile hosts ./train",
        {},
    ),
    (
        "mpirun -np 16 -H a,b ./train",
        ["mpirun.slots"],
        "mpirun -np 16 -H a:8,b:8 ./train",
        {},
    ),
    (
        "mpirun --map-by ppr:8:node --host a:4,b:4 ./train",
        ["mpirun.slots"],
        "",
        {},
    ),
    (
        "[root@node1 work]# mpirun -np 2 ./train --name 'a  b'",
        ["mpirun.root"],
        "mpirun --allow-run-as-root -np 2 ./train --name 'a  b'",
        {},
    ),
    (
        "docker run --gpus all --rm img torchrun --standalone --nproc-per-node=8 t.py",
        ["torchrun.more_than_gpus"],
        "docker run --gpus all --rm img torchrun --standalone --nproc-per-node=4 t.py",
        {"gpus": 4},
    ),
    (
        "mkdir -p log && export NCCL_DEBUG_FILE=log/nccl.%p.log\n"
        f"torchrun --nnodes=2 --nproc-per-node=8 {MEET} t.py",
        ["env.log_shared"],
        "export NCCL_DEBUG_FILE=log/nccl.%h.%p.log",
        {},
    ),
    (
        "mpirun -np 16 --hostfile hosts ./train",
        ["mpirun.hostfile_mpich"],
        "a slots=8",
        {"files": {"hosts": "a:8\nb:8\n"}},
    ),
    (
        "mpirun -n 16 -f hosts ./train",
        ["mpirun.hostfile_open_mpi"],
        "a:8",
        {"files": {"hosts": "a slots=8\nb slots=8\n"}, "mpi": "mpich"},
    ),
    (
        "mpirun -n 16 -f hosts -ppn 8 -genv NCCL_DEBUG WARN ./train",
        ["mpirun.other_mpi"] * 3,
        "mpirun -n 16 --hostfile hosts -ppn 8 -genv NCCL_DEBUG WARN ./train",
        {},
    ),
    (
        "mpirun -n 16 -x NCCL_DEBUG=WARN ./train",
        ["mpirun.other_mpi"],
        "mpirun -n 16 -genv NCCL_DEBUG WARN ./train",
        {"mpi": "mpich"},
    ),
    (
        "export NCCL_IB_HCA==mlx5_0 LD_LIBRARY_PATH=/opt/nccl/lib\n"
        "mpirun -np 16 --host a:8,b:8 -x NCCL_DEBUG=WARN ./train",
        ["mpirun.not_forwarded"],
        "mpirun -np 16 --host a:8,b:8 -x NCCL_DEBUG=WARN -x NCCL_IB_HCA -x LD_LIBRARY_PATH "
        "./train",
        {},
    ),
    (
        "mpirun -np 2 ./train",
        ["mpirun.root"],
        "mpirun --allow-run-as-root -np 2 ./train",
        {"root": True},
    ),
    (
        "sudo mpirun -np 2 ./train",
        ["mpirun.root"],
        "sudo mpirun --allow-run-as-root -np 2 ./train",
        {},
    ),
    (
        "mpirun -np 8 --oversubscribe -x NCCL_DEBUG=WARN ./train",
        ["mpirun.oversubscribe"],
        "mpirun -np 8 -x NCCL_DEBUG=WARN ./train",
        {},
    ),
    (
        "mpirun -np 2 --mca pml=ob1 ./train",
        ["mpirun.mca_equals"],
        "mpirun -np 2 --mca pml ob1 ./train",
        {},
    ),
    (
        "mpirun -np 2 --mca btl_tcp_if_include eth0 --mca btl_tcp_if_exclude lo ./train",
        ["mpirun.both_interfaces"],
        "mpirun -np 2 --mca btl_tcp_if_include eth0 ./train",
        {},
    ),
    (
        "mpirun -np 4 --host a:2,b:2 --mca btl_tcp_if_include lo ./train",
        ["mpirun.interface_lo"],
        "mpirun -np 4 --host a:2,b:2 ./train",
        {},
    ),
    ("mpirun -np 2 --bogus ./a", ["mpirun.unknown_option"], "mpirun -np 2 ./a", {}),
    (
        "mpirun -np 32 --map-by ppr:16:node --host a:16,b:16 ./train",
        ["mpirun.more_than_gpus"],
        "",
        {"gpus": 8},
    ),
    (
        f"mpirun -np 16 --host a:8,b:8 torchrun --nnodes=2 --nproc-per-node=8 {MEET} t.py",
        ["mpirun.squared"],
        "mpirun -np 2 --map-by ppr:1:node --host a:8,b:8 torchrun --nnodes=2 "
        f"--nproc-per-node=8 {MEET} t.py",
        {},
    ),
    # -- srun
    (
        f"srun -N 2 --ntasks-per-node=8 torchrun --nnodes=2 --nproc-per-node 8 {MEET} t.py",
        ["srun.squared"],
        f"srun --ntasks-per-node=1 -N 2 torchrun --nnodes=2 --nproc-per-node 8 {MEET} t.py",
        {},
    ),
    (
        "#SBATCH --nodes=2\n#SBATCH --ntasks-per-node=8  # all\n#SBATCH --gres=gpu:8\n"
        f"srun torchrun --nnodes=2 --nproc-per-node=8 {MEET} t.py",
        ["srun.squared"],
        f"srun --ntasks-per-node=1 torchrun --nnodes=2 --nproc-per-node=8 {MEET} t.py",
        {},
    ),
    (
        "srun --nodes=2 --gpus-per-node=8 python train.py",
        ["srun.one_task"],
        "srun --ntasks-per-node=8 --nodes=2 --gpus-per-node=8 python train.py",
        {},
    ),
    (
        f"srun -n 2 torchrun --nnodes=2 --nproc-per-node=8 {MEET} t.py",
        ["srun.scattered"],
        f"srun --ntasks-per-node=1 -n 2 torchrun --nnodes=2 --nproc-per-node=8 {MEET} t.py",
        {},
    ),
    (
        "srun -N 2 --ntasks-per-node=1 torchrun --nnodes=2 --node-rank=$SLURM_NODEID "
        "--master-addr=$HEAD --nproc-per-node=8 t.py",
        ["srun.early"],
        "srun -N 2 --ntasks-per-node=1 bash -c 'torchrun --nnodes=2 --node-rank=$SLURM_NODEID "
        "--master-addr=$HEAD --nproc-per-node=8 t.py'",
        {},
    ),
    (
        f"srun -N 4 --ntasks-per-node=1 torchrun --nnodes=2 --nproc-per-node=8 {MEET} t.py",
        ["srun.nodes_differ"],
        f"srun -N 4 --ntasks-per-node=1 torchrun --nnodes=4 --nproc-per-node=8 {MEET} t.py",
        {},
    ),
    (
        "srun -N 2 --ntasks-per-node=8 --export=NCCL_DEBUG=WARN ./train",
        ["srun.export"],
        "srun -N 2 --ntasks-per-node=8 --export=ALL,NCCL_DEBUG=WARN ./train",
        {},
    ),
    (
        f"srun -N 2 --ntasks-per-node=1 --gpus-per-node=4 torchrun --nnodes=2 "
        f"--nproc-per-node=8 {MEET} t.py",
        ["torchrun.more_than_gpus"],
        f"srun -N 2 --ntasks-per-node=1 --gpus-per-node=4 torchrun --nnodes=2 "
        f"--nproc-per-node=4 {MEET} t.py",
        {},
    ),
    # -- variables
    ("export NCCL_SOCKET_IFNAME=lo", ["env.interface_lo"],
     "export NCCL_SOCKET_IFNAME=^lo,docker", {}),
    ("export NCCL_SOCKET_IFNAME=eth0,^docker0", ["env.interface_caret"],
     "export NCCL_SOCKET_IFNAME==eth0", {}),
    ("export NCCL_SOCKET_IFNAME=^docker0,^lo", ["env.interface_caret"],
     "export NCCL_SOCKET_IFNAME=^docker0,lo", {}),
    ("export NCCL_DEBUG_SUBSYS=^INIT,NETS", ["env.subsystem"],
     "export NCCL_DEBUG_SUBSYS=^INIT", {}),
    ("export GLOO_SOCKET_IFNAME=^lo", ["env.gloo_syntax"], "export GLOO_SOCKET_IFNAME=eth0", {}),
    ("export NCCL_IB_DISABLE=1", ["env.ib_disabled"], "unset NCCL_IB_DISABLE", {}),
    ("export NCCL_P2P_DISABLE=1", ["env.path_disabled"], "unset NCCL_P2P_DISABLE", {}),
    ("export NCCL_ASYNC_ERROR_HANDLING=1", ["env.renamed"],
     "export TORCH_NCCL_ASYNC_ERROR_HANDLING=1", {}),
    ("export NCCL_SOCKET_IFNAMES=eth0", ["env.typo"], "export NCCL_SOCKET_IFNAME=eth0", {}),
    ("export NCCL_LL_THRESHOLD=0", ["env.removed"], "unset NCCL_LL_THRESHOLD", {}),
    ("export NCCL_DEBUG=DEBUG", ["env.debug_level"], "export NCCL_DEBUG=INFO", {}),
    ("export NCCL_DEBUG_SUBSYS=INIT,TUNE", ["env.subsystem"],
     "export NCCL_DEBUG_SUBSYS=INIT", {}),
    ("export NCCL_ALGO=Rings", ["env.algo_refused"], "unset NCCL_ALGO", {}),
    ("export NCCL_ALGO=Rings,Tree", ["env.algo_ignored"], "unset NCCL_ALGO", {"nccl": "2.20"}),
    ("export NCCL_ALGO=^ring", ["env.algo_alone"], 'export NCCL_ALGO="ring;allreduce:^ring"', {}),
    ("NCCL_DEBUG=INFO\ntorchrun --standalone --nproc-per-node=2 t.py", ["env.not_exported"],
     "export NCCL_DEBUG=INFO", {}),
    # -- the shell
    ('torchrun --standalone --nproc-per-node=2 t.py --name "a\necho', ["shell.quote"], "", {}),
    ("mpirun -np 2 \\ \n  ./train", ["shell.blank"], "mpirun -np 2 \\", {}),
    ("export NCCL_DEBUG = INFO", ["shell.spaces"], "export NCCL_DEBUG=INFO", {}),
    ("torchrun \u2013standalone \u2014nproc-per-node=2 t.py", ["shell.typeset"],
     "torchrun --standalone --nproc-per-node=2 t.py", {}),
]  # fmt: skip

RIGHT = [
    ("torchrun --standalone --nproc-per-node=8 train.py --lr 1e-4", {"gpus": 8}),
    ("torchrun --nproc-per-node=gpu train.py", {"gpus": 8}),
    (f"torchrun --nnodes=2 --nproc-per-node=8 {MEET} --rdzv-id=7 -m train.main --fp8", {"gpus": 8}),
    (
        "# on node a\n"
        "torchrun --nnodes 2 --node-rank 0 --master-addr a --nproc-per-node 8 t.py\n"
        "# on node b\n"
        "torchrun --nnodes 2 --node-rank 1 --master-addr a --nproc-per-node 8 t.py",
        {},
    ),
    ("torchrun --nnodes=1:4 --max-restarts=3 --nproc-per-node=8 --rdzv-id=1 "
     "--rdzv-backend=c10d --rdzv-endpoint=node1 t.py", {}),
    ("CUDA_VISIBLE_DEVICES=4,5,6,7 torchrun --nproc_per_node=4 t.py", {"gpus": 8}),
    ("export NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=INIT,GRAPH,TUNING\n"
     "export NCCL_DEBUG_FILE=/tmp/nccl.%h.%p.log\ntorchrun --standalone --nproc-per-node=2 t.py",
     {}),
    ('export NCCL_ALGO="ring,tree;allreduce:tree"', {"nccl": "2.28"}),
    ("export NCCL_ALGO=Tree", {"nccl": "2.21"}),
    ("export NCCL_ALGO=Ring NCCL_PROTO=^LL128", {}),
    ("export NCCL_SOCKET_IFNAME=^lo,docker GLOO_SOCKET_IFNAME=eth0,eth1", {}),
    ("export NCCL_SOCKET_IFNAME==eth0\nexport TORCH_NCCL_ASYNC_ERROR_HANDLING=1", {}),
    ("NCCL_SOCKET_IFNAME=lo NCCL_IB_DISABLE=1 torchrun --standalone --nproc-per-node=2 t.py", {}),
    ("mpirun -np 2 ./hello", {}),
    ("mpirun -np 16 --hostfile hosts --map-by ppr:8:node --bind-to numa -x NCCL_DEBUG=WARN "
     "-x LD_LIBRARY_PATH ./train", {"files": {"hosts": "a slots=8\nb slots=8\n"}, "gpus": 8}),
    ("export NCCL_IB_HCA==mlx5_0 NCCL_DEBUG=WARN\n"
     "mpirun --allow-run-as-root -np 16 --host a:8,b:8 -x 'NCCL_*' ./train", {"root": True}),
    ("mpirun -np 8 --hostfile hosts.txt --mca pml ucx --mca btl ^openib ./train", {"mpi": "4"}),
    ("mpiexec -n 16 -f hosts -ppn 8 -genv NCCL_DEBUG WARN ./train",
     {"mpi": "mpich", "files": {"hosts": "a:8\nb:8\n"}}),
    ("mpirun -np 4 --oversubscribe python ring.py", {}),
    (f"srun -N 2 --ntasks-per-node=1 --gpus-per-node=8 torchrun --nnodes=2 --nproc-per-node=8 "
     f"{MEET} t.py", {}),
    ("srun --mpi=pmix -N 2 --ntasks-per-node=8 --gpus-per-node=8 --export=ALL,A=1 ./train", {}),
    ("#SBATCH --nodes=2\n#SBATCH --ntasks-per-node=1\n#SBATCH --gres=gpu:8\n"
     "export NCCL_DEBUG=WARN\n"
     'head=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)\n'
     "srun bash -c 'torchrun --nnodes=2 --node-rank=$SLURM_NODEID --master-addr='\"$head\"' "
     "--nproc-per-node=8 t.py' 2>&1 | tee log.txt", {}),
    ("srun --jobid $SLURM_JOBID bash -c 'torchrun --nproc_per_node 8 --nnodes 2 "
     "--rdzv_endpoint $MASTER:29500 --rdzv_backend c10d train.py'", {}),
    ("for n in 1 2; do\n  torchrun --standalone --nproc-per-node=2 t.py --n $n  # again\ndone", {}),
    ("echo 'it # is' \"a; b\" && ls > out.txt", {}),
    ("", {}),
]  # fmt: skip


@pytest.fixture(autouse=True)
def in_english():
    i18n.language("en")
    yield
    i18n.language("en")


@pytest.mark.parametrize(("text", "ids", "fixed", "known"), BROKEN, ids=range(len(BROKEN)))
def test_what_is_wrong_is_found_and_corrected(text, ids, fixed, known) -> None:
    found = check(text, **known)
    assert [f.id for f in found] == ids
    assert found[0].fixed == fixed
    for lang in i18n.LANGUAGES:
        i18n.language(lang)
        told = str(found[0])
        i18n.language("en")
        assert found[0].id in told
        assert "{" not in told.replace("${", "")


@pytest.mark.parametrize(("text", "known"), RIGHT, ids=range(len(RIGHT)))
def test_what_is_right_passes(text, known) -> None:
    assert [str(f) for f in check(text, **known)] == []


ONE_LINE = [b for b in BROKEN if b[2] and "\n" not in b[0] and len(b[1]) == 1
            and not b[1][0].startswith("mpirun.hostfile")]  # fmt: skip


@pytest.mark.parametrize(("text", "ids", "fixed", "known"), ONE_LINE, ids=range(len(ONE_LINE)))
def test_a_corrected_line_is_right(text, ids, fixed, known) -> None:
    assert [f.id for f in check(fixed, **known)] == []


def test_every_id_has_its_words_in_both_languages_and_is_tried() -> None:
    words = _data.load("text/launch.yaml")
    others = ("opt_", "right")
    keys = {k for k in words if not k.startswith(others) and not k.endswith("_does")}
    assert {k + "_does" for k in keys} <= set(words)
    tried = {i.replace(".", "_", 1) for _, ids, _, _ in BROKEN for i in ids}
    assert keys - tried == {"srun_no_nodes"}
    assert check(f"srun torchrun --nnodes=2 --nproc-per-node=8 {MEET} t.py")[0].fixed == (
        f"srun --nodes=2 --ntasks-per-node=1 torchrun --nnodes=2 --nproc-per-node=8 {MEET} t.py"
    )
    assert all(set(w) == set(i18n.LANGUAGES) for w in words.values())


def test_the_chapters_blocks_together_also_lack_what_hands_the_variables_on() -> None:
    text = "\n".join(b[0] for b in BROKEN[:4])
    found = check(text, mpi="5", nccl="2.29.7")
    assert [f.id for f in found] == [
        "shell.nccl_info", "env.log_shared", "env.algo_alone", "mpirun.openib",
        "mpirun.not_forwarded",
    ]  # fmt: skip
    assert found[-1].values["lost"] == "NCCL_DEBUG, NCCL_DEBUG_FILE, NCCL_ALGO"
    assert [f.line for f in found] == [2, 4, 5, 6, 6]


def test_a_finding_says_where_and_what_it_does_in_both_languages() -> None:
    (found,) = check("\n\ntorchrun --standalone --nproc-per-node=8 t.py", gpus=2)
    assert (found.line, found.written) == (3, "torchrun --standalone --nproc-per-node=8 t.py")
    assert found.what == "8 processes on a node that has 2 GPUs"
    assert "invalid device ordinal" in found.effect
    i18n.language("zh")
    assert (
        found.what
        == "\u6bcf\u4e2a\u8282\u70b9 8 \u4e2a\u8fdb\u7a0b\uff0c\u5374\u53ea\u6709 2 \u5f20 GPU"
    )
    i18n.language("en")


WRITTEN = [
    launch.torchrun(1, 8, "train.py", arguments=["--lr", "1e-4"]),
    launch.torchrun(2, 8, "my train.py", endpoint="node1", interface="eth0", log="n.%h.%p.log"),
    launch.torchrun(16, 4, "t.py", endpoint="10.0.0.1", restarts=3, environment={"A": "x y"}),
    launch.mpirun(1, 2, "./hello", root=False),
    launch.mpirun(2, 8, "./train", interface="ib0", log="/tmp/n.%h.%p.log", root=True),
    launch.mpirun(["a", "b", "c"], 4, "python", arguments=["t.py"], version="4", ucx=True,
                  forward=["LD_LIBRARY_PATH"], root=False),
    launch.mpirun(4, 8, "./t", hostfile="my hosts", root=False),
    launch.srun(1, 8, "train.py"),
    launch.srun(8, 8, "train.py", cpus_per_gpu=12, interface="eth0", log="n.%h.%p.log"),
    launch.srun(2, 4, "./train", starts="mpi"),
]  # fmt: skip


@pytest.mark.parametrize("command", WRITTEN, ids=str)
def test_what_is_written_passes_its_own_check(command) -> None:
    version = "4" if "ucx" in str(command) else "5"
    found = check(command.block, gpus=8, mpi=version, root="--allow" in str(command))
    assert [str(f) for f in found] == []
    told = {}
    for lang in i18n.LANGUAGES:
        i18n.language(lang)
        told[lang] = command.explain()
        i18n.language("en")
    assert told["en"] != told["zh"]
    for part in (*command.before, *command.parts):
        assert part.shown in told["en"]


def test_lines_as_they_are_written() -> None:
    assert str(WRITTEN[0]) == "torchrun --standalone --nproc-per-node=8 train.py --lr 1e-4"
    assert str(WRITTEN[1]) == (
        "export NCCL_SOCKET_IFNAME==eth0\n"
        "export GLOO_SOCKET_IFNAME=eth0\n"
        "export NCCL_DEBUG=INFO\n"
        "export NCCL_DEBUG_FILE=n.%h.%p.log\n"
        f"torchrun --nnodes=2 --nproc-per-node=8 {MEET} \\\n"
        "  --rdzv-id=job1 'my train.py'"
    )
    assert str(WRITTEN[4]) == (
        "mpirun -np 16 --host node1:8,node2:8 --map-by ppr:8:node --bind-to numa \\\n"
        "  --allow-run-as-root --mca btl_tcp_if_include ib0 -x NCCL_SOCKET_IFNAME==ib0 \\\n"
        "  -x NCCL_DEBUG=INFO -x NCCL_DEBUG_FILE=/tmp/n.%h.%p.log ./train"
    )
    assert WRITTEN[5].files == {"hosts.txt": "a slots=4\nb slots=4\nc slots=4\n"}
    assert str(WRITTEN[9]) == (
        "srun --mpi=pmix --nodes=2 --ntasks-per-node=4 --gpus-per-node=4 --kill-on-bad-exit=1 \\\n"
        "  ./train"
    )


@pytest.mark.parametrize(
    ("write", "told"),
    [
        (lambda: launch.torchrun(2, 8, "t.py"), "must have an endpoint"),
        (lambda: launch.torchrun(2, 8, "t.py", endpoint="localhost"), "reachable from every node"),
        (lambda: launch.torchrun(2, 8, "t.py", endpoint="a b"), "endpoint must be a name"),
        (lambda: launch.torchrun(0, 8, "t.py"), "nodes must be 1 or more, got 0"),
        (lambda: launch.torchrun(1, 8, "--x"), "script must be a file"),
        (lambda: launch.torchrun(1, 1, "t.py", log="nccl.log"), "log must hold %h and %p"),
        (lambda: launch.torchrun(1, 1, "t.py", interface="^lo"), "interface must be one name"),
        (lambda: launch.torchrun(1, 1, "t.py", environment={"A-B": "1"}), "a variable's name"),
        (lambda: launch.mpirun(["a", "a"], 8, "./t"), "hosts must be different names"),
        (lambda: launch.mpirun(2, 8, "./t", version="3"), "version must be one of 5, 4"),
        (lambda: launch.srun(2, 8, "t.py", starts="x"), "starts must be 'torchrun' or 'mpi'"),
        (lambda: check("", mpi="intel"), "mpi must be one of 5, 4, mpich"),
        (lambda: check("", nccl="new"), "nccl must be a version"),
    ],
)
def test_what_cannot_be_written_says_what_to_try(write, told) -> None:
    with pytest.raises(LaunchError, match=re.escape(told)):
        write()


HOSTILE = ["'", '"', "$(", "`", "\\", "\0", "<<EOF", "cat > x <<EOF", "mpirun", "mpirun -x",
           "torchrun --nnodes", "srun bash -c \"'\"", "ssh", "sudo", "env", "ssh -p", "export",
           "export =", "mpirun --mca", "mpirun --mca btl", "mpirun --host ,", "#SBATCH '",
           "torchrun --nnodes=9999999999999999999 x", "a" * 5000, "((((", "unset", ";;;&&||",
           "mpirun -np 2 -np", "NCCL_ALGO=;;: torchrun x", "export NCCL_DEBUG_FILE=", "\0000\0",
           "export CUDA_VISIBLE_DEVICES=\ntorchrun --nproc-per-node=2 x", "timeout"]  # fmt: skip


@pytest.mark.parametrize("mpi", ["5", "mpich"])
@pytest.mark.parametrize("text", HOSTILE, ids=range(len(HOSTILE)))
def test_no_text_is_a_traceback(text, mpi) -> None:
    for found in check(text, mpi=mpi, gpus=2, root=True):
        assert str(found)


def test_nothing_in_the_text_is_run(tmp_path) -> None:
    check(f"touch {tmp_path}/a\nexport A=$(touch {tmp_path}/b)\nmpirun `touch {tmp_path}/c`")
    assert list(tmp_path.iterdir()) == []


# -- the command line


def test_the_command_line_writes_and_explains(capsys) -> None:
    assert main(["launch", "mpirun", "./t", "--nodes", "3", "--ranks", "2"]) == 0
    told = capsys.readouterr().out
    assert "node3 slots=2\nEOF\nmpirun -np 6 --hostfile hosts.txt" in told
    assert main(["launch", "srun", "t.py", "--nodes", "2", "--lang", "zh"]) == 0
    assert "\u6bcf\u4e2a\u8282\u70b9\u53ea\u8d77\u4e00\u4e2a torchrun" in capsys.readouterr().out
    i18n.language("en")
    assert main(["launch", "torchrun", "t.py", "--nodes", "2"]) == 2
    assert capsys.readouterr().err.startswith("coursekit: several nodes must have an endpoint")


def test_the_command_line_checks(tmp_path, capsys, monkeypatch) -> None:
    good, bad, hosts = tmp_path / "good.sh", tmp_path / "bad.sh", tmp_path / "hosts"
    good.write_text("torchrun --standalone --nproc-per-node=2 t.py\n")
    bad.write_text("mpirun -np 9 --hostfile hosts ./t\n")
    hosts.write_text("a slots=8\n")
    assert main(["launch", "check", str(good)]) == 0
    assert capsys.readouterr().out == "Nothing is wrong.\n"
    assert main(["launch", "check", str(bad), "--hostfile", str(hosts)]) == 1
    assert "-> mpirun -np 8 --hostfile hosts ./t" in capsys.readouterr().out
    assert main(["launch", "check", str(tmp_path / "none.sh")]) == 2
    assert main(["launch", "check", str(good), "--mpi", "6"]) == 2
    assert main(["launch", "check", str(good), "--lang", "fr"]) == 2
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"nccl-info\n")))
    assert main(["launch", "check", "-", "--lang", "zh"]) == 1
    assert "\u6ca1\u6709 nccl-info \u8fd9\u4e2a\u547d\u4ee4" in capsys.readouterr().out
    i18n.language("en")


# -- really run, where the tools are

SAYS = """
import os, sys
rank = os.environ.get("RANK") or os.environ.get("OMPI_COMM_WORLD_RANK")
size = os.environ.get("WORLD_SIZE") or os.environ.get("OMPI_COMM_WORLD_SIZE")
sys.stdout.write(f"rank {rank} of {size} {os.environ.get('NCCL_DEBUG_FILE')} {sys.argv[1:]}\\n")
"""


def run_it(command, folder: Path) -> str:
    for name, content in command.files.items():
        (folder / name).write_text(content)
    (folder / "says.py").write_text(SAYS)
    env = {k: v for k, v in os.environ.items() if not k.startswith(("OMPI_", "PMIX_", "NCCL_"))}
    env["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{env['PATH']}"
    done = subprocess.run(
        ["bash", "-c", str(command)], cwd=folder, env=env, capture_output=True, text=True,
        timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return "\n".join(sorted(x for x in done.stdout.splitlines() if x.startswith("rank")))


def test_a_written_torchrun_line_runs(tmp_path) -> None:
    line = launch.torchrun(1, 2, "says.py", arguments=["a b"], log="nccl.%h.%p.log")
    assert run_it(line, tmp_path) == (
        "rank 0 of 2 nccl.%h.%p.log ['a b']\nrank 1 of 2 nccl.%h.%p.log ['a b']"
    )


@pytest.mark.needs("mpirun")
@pytest.mark.parametrize("hostfile", ["", "my hosts"])
def test_a_written_mpirun_line_runs(tmp_path, hostfile) -> None:
    line = launch.mpirun(
        1, 2, "python", arguments=["says.py", "x"], hostfile=hostfile, log="n.%h.%p.log"
    )
    assert run_it(line, tmp_path) == "rank 0 of 2 n.%h.%p.log ['x']\nrank 1 of 2 n.%h.%p.log ['x']"


@pytest.mark.needs("mpirun")
def test_more_ranks_than_cores_run_when_asked_for(tmp_path) -> None:
    ranks = (os.cpu_count() or 1) + 1
    line = launch.mpirun(1, ranks, "python", arguments=["says.py"], oversubscribe=True)
    assert [str(f) for f in check(str(line), root=os.geteuid() == 0)] == []
    assert run_it(line, tmp_path).count(f"of {ranks} ") == ranks
