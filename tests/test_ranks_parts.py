"""The parts of ranks that need no process: verdicts, frames, transcripts, the magic's line."""

import pickle
import socket
import threading

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from coursekit.ranks import RankDied, RankFailed, RanksError, RanksHung, RanksUsageError
from coursekit.ranks import _wire as wire
from coursekit.ranks._magic import parse
from coursekit.ranks._mpi import mpirun_command
from coursekit.ranks._output import Transcript
from coursekit.ranks._place import ServeError, address, place
from coursekit.ranks._stand import Stand, judge, table
from coursekit.ranks._tracebacks import Frame, cell_name, crash_frames, pack

ALL = (0, 1, 2, 3)


def inside(rank, op="all_reduce", seq=5, what="float32[4]", members=ALL):
    return Stand(rank, "collective", op=op, seq=seq, what=what, members=members)


# -- who waits for whom ---------------------------------------------------------


def test_the_rank_that_finished_without_the_collective_is_named():
    verdict = judge([inside(0), Stand(1, "finished"), inside(2), inside(3)])
    assert verdict.culprits == (1,)
    assert "rank 1 finished the call and never entered all_reduce #5" in verdict.reason
    assert verdict.waits[0] == (1,)


def test_the_rank_that_runs_other_code_is_named_with_its_line():
    late = Stand(2, "running", frames=(Frame("In[3]", 7, "<module>", "sleep(9)"),))
    verdict = judge([inside(0), inside(1), late, inside(3)])
    assert verdict.culprits == (2,)
    assert "rank 2 is at Cell In[3], line 7" in verdict.reason


def test_the_minority_in_another_collective_is_named():
    verdict = judge([inside(0), inside(1, op="broadcast"), inside(2), inside(3)])
    assert verdict.culprits == (1,)
    assert "rank 1 in broadcast #5" in verdict.reason


def test_a_rank_behind_by_one_is_named():
    verdict = judge([inside(0), inside(1), inside(2, seq=4), inside(3)])
    assert verdict.culprits == (2,)


def test_without_a_majority_nobody_is_named():
    verdict = judge([inside(0), inside(1, op="broadcast")])
    assert verdict.culprits == ()
    assert "different collectives" in verdict.reason


def test_a_stopped_rank_comes_before_all_else():
    verdict = judge([inside(0), Stand(1, "stopped"), Stand(2, "finished"), inside(3)])
    assert verdict.culprits == (1,)


def test_a_cycle_of_receives_is_a_deadlock_and_its_tail_is_not_part_of_it():
    def recv(rank, peer):
        return Stand(rank, "p2p", op="recv", peer=peer)

    verdict = judge([recv(0, 1), recv(1, 2), recv(2, 1), Stand(3, "finished")])
    assert verdict.culprits == (1, 2)
    assert "1 -> 2 -> 1" in verdict.reason


def test_a_chain_of_receives_ends_at_who_never_sent():
    stands = [Stand(0, "p2p", op="recv", peer=1), Stand(1, "finished")]
    assert judge(stands).culprits == (1,)


def test_everyone_in_the_same_collective_points_at_the_links():
    verdict = judge([inside(r) for r in ALL])
    assert verdict.culprits == ()
    assert "look at the links" in verdict.reason


def test_different_buffers_are_told():
    verdict = judge([inside(0), inside(1, what="float32[9]"), inside(2), inside(3)])
    assert "rank 1: float32[9]" in verdict.reason


def test_a_subgroup_does_not_wait_for_outsiders():
    verdict = judge([inside(0, members=(0, 1)), Stand(1, "finished"), Stand(2, "finished")])
    assert verdict.waits == {0: (1,)}
    assert verdict.culprits == (1,)


def test_ranks_that_only_compute_are_not_called_a_deadlock():
    verdict = judge([Stand(0, "running"), Stand(1, "finished")])
    assert verdict.culprits == (0,)
    assert "nobody waits for anybody" in verdict.reason


@given(
    st.lists(
        st.builds(
            Stand,
            rank=st.just(0),
            state=st.sampled_from(
                ["finished", "running", "collective", "p2p", "stopped", "silent", "dead"]
            ),
            op=st.sampled_from(["all_reduce", "recv"]),
            seq=st.none() | st.integers(0, 3),
            peer=st.none() | st.integers(0, 5),
        ),
        min_size=1,
        max_size=6,
    )
)
def test_any_set_of_stands_gets_a_verdict_and_a_table(stands):
    numbered = [Stand(i, s.state, op=s.op, seq=s.seq, peer=s.peer) for i, s in enumerate(stands)]
    verdict = judge(numbered)
    assert set(verdict.culprits) <= set(range(len(stands)))
    assert verdict.reason
    assert len(table(numbered, verdict).splitlines()) >= len(stands)


# -- frames -----------------------------------------------------------------------


def through_a_socket(message, blocking=True):
    left, right = socket.socketpair()
    with left, right:
        lock = threading.Lock()
        job = threading.Thread(
            target=wire.send, args=(left, wire.MESSAGE, wire.dumps(message), lock)
        )
        job.start()
        kind, body = wire.Reader(right).read()
        job.join()
        assert kind == wire.MESSAGE
        return wire.loads(body)


@settings(deadline=None, max_examples=30)
@given(
    st.lists(st.integers(0, 5), max_size=3),
    st.sampled_from(["float32", "bfloat16", "float16", "int8", "bool", "complex64", "float64"]),
)
def test_a_tensor_of_any_kind_survives_the_way(shape, kind):
    sent = torch.arange(int(np.prod(shape)), dtype=torch.float32).reshape(shape)
    sent = sent.to(getattr(torch, kind))
    got = through_a_socket({"t": sent, "n": 1})["t"]
    assert got.dtype == sent.dtype
    assert torch.equal(got, sent)


def test_a_writer_never_waits_and_loses_nothing():
    left, right = socket.socketpair()
    with left, right:
        left.setblocking(False)
        woken = []
        writer = wire.Writer(left, lambda: woken.append(1))
        big = np.arange(2_000_000)
        writer.put(wire.MESSAGE, wire.dumps(big))
        writer.put(wire.MESSAGE, wire.dumps("second"))
        assert woken
        assert writer.waiting
        reader, got = wire.Reader(right), []
        right.setblocking(False)
        while len(got) < 2:
            writer.flush()
            if (frame := reader.read()) is not None:
                got.append(wire.loads(frame[1]))
        assert np.array_equal(got[0], big)
        assert got[1] == "second"


def test_the_end_of_a_connection_is_an_eof():
    left, right = socket.socketpair()
    left.sendall(b"M123")
    left.close()
    with right, pytest.raises(EOFError):
        wire.Reader(right).read()


# -- output ------------------------------------------------------------------------


def test_lines_are_labelled_and_in_rank_order():
    t = Transcript([0, 1])
    t.feed(1, "stdout", b"b1\nb")
    t.feed(0, "stdout", b"a1\n")
    t.feed(1, "stdout", b"2\n")
    t.feed(0, "stderr", b"no newline")
    t.end()
    said = ["[rank 0] a1", "[rank 0] no newline", "[rank 1] b1", "[rank 1] b2"]
    assert [line for _, line in t.ordered()] == said
    assert t.since(1) == ["[rank 0] a1", "[rank 1] b2", "[rank 0] no newline"]


def test_a_progress_bar_keeps_its_last_state_and_bad_bytes_do_not_stop_anything():
    t = Transcript([0])
    t.feed(0, "stdout", b"10%\r50%\r100%\n\xff\xfe\n")
    lines = [line for _, line in t.ordered()]
    assert lines[0] == "[rank 0] 100%"
    assert len(lines) == 2


def test_a_flood_is_cut_and_counted():
    t = Transcript([0])
    t.feed(0, "stdout", b"x\n" * 25_000)
    assert t.ordered()[-1][1] == "[rank 0] ... 5000 more lines"


# -- the magic's line ----------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("", (None, "default", None)),
        ("0,2", ([0, 2], "default", None)),
        ("0, 2", ([0, 2], "default", None)),
        ("1-3", ([1, 2, 3], "default", None)),
        ("--timeout 600", (None, 600.0, None)),
        ("2 --timeout none --of mine", ([2], None, "mine")),
    ],
)
def test_the_magics_line(line, expected):
    assert parse(line) == expected


@pytest.mark.parametrize("line", ["all", "0,", "1 2", "--timeout", "--timeout x", "--of", "-1"])
def test_a_wrong_line_shows_the_usage(line):
    with pytest.raises(RanksUsageError, match="use %%ranks"):
        parse(line)


# -- places and names ------------------------------------------------------------------


@pytest.mark.parametrize(
    ("env", "expected"),
    [
        ({"RANK": "3", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "2"}, (3, 1, 2, False)),
        ({"SLURM_PROCID": "5", "SLURM_LOCALID": "1"}, (5, 1, 1, False)),
        (
            {
                "OMPI_COMM_WORLD_RANK": "2",
                "OMPI_COMM_WORLD_LOCAL_RANK": "0",
                "OMPI_COMM_WORLD_LOCAL_SIZE": "4",
            },
            (2, 0, 4, True),
        ),
        # torchrun inside a Slurm job: torchrun's numbers count.
        (
            {"TORCHELASTIC_RUN_ID": "x", "RANK": "1", "LOCAL_RANK": "1", "SLURM_PROCID": "0"},
            (1, 1, 1, False),
        ),
    ],
)
def test_a_ranks_place_is_read_from_its_launcher(env, expected):
    here = place(env)
    assert (here.rank, here.local_rank, here.local_size, here.mpi) == expected


def test_without_a_launcher_there_is_no_place():
    with pytest.raises(ServeError, match="torchrun, srun or mpirun"):
        place({})


@pytest.mark.parametrize("text", ["host", "host:", ":1", "host:0", "host:99999", "host:x"])
def test_a_wrong_address_is_refused(text):
    with pytest.raises(ServeError, match="HOST:PORT"):
        address(text)


def test_an_address_may_be_ipv6():
    assert address("[::1]:80") == ("::1", 80)


def test_cells_have_the_notebooks_names():
    assert cell_name("In[4]") == "Cell In[4]"
    assert cell_name("/tmp/ipykernel_12/345.py") == "Cell In[?]"
    assert cell_name("/home/x/ring.py") == 'File "/home/x/ring.py"'


def test_a_packed_failure_travels_and_reads_like_a_traceback():
    try:
        try:
            {}["k"]
        except KeyError as inner:
            raise ValueError("outer") from inner
    except ValueError as error:
        text = pickle.loads(pickle.dumps(pack(error))).render()
    assert (
        text.index("KeyError: 'k'") < text.index("direct cause") < text.index("ValueError: outer")
    )
    assert '{}["k"]' in text


def test_the_fault_handlers_text_gives_the_learners_frames():
    crash = (
        "Fatal Python error: Aborted\n\nCurrent thread 0x1 (most recent call first):\n"
        '  File "/x/lib/python3.11/site-packages/torch/d.py", line 5 in all_reduce\n'
        '  File "In[7]", line 3 in inner\n  File "In[7]", line 9 in <module>\n'
        '  File "/x/coursekit/ranks/_worker.py", line 1 in serve\n'
    )
    frames = crash_frames(crash)
    assert [(f.file, f.line, f.function) for f in frames] == [
        ("In[7]", 9, "<module>"),
        ("In[7]", 3, "inner"),
    ]


def test_open_mpi_gets_its_flags_and_others_none(tmp_path):
    for said, flag in (("mpirun (Open MPI) 5.0.11", True), ("HYDRA build details:", False)):
        fake = tmp_path / said[:5]
        fake.write_text(f"#!/bin/sh\necho '{said}'\n")
        fake.chmod(0o755)
        assert ("--oversubscribe" in mpirun_command(str(fake), 2, ["x"])) is flag


def test_errors_form_one_tree():
    for kind in (RankFailed, RankDied, RanksHung, RanksUsageError):
        assert issubclass(kind, RanksError)
    assert issubclass(RanksHung, TimeoutError)
    assert issubclass(RanksUsageError, ValueError)
