"""Ranks in a real Jupyter kernel: the magic, its output, interrupts, death and restart."""

import os
import time

import pytest
from jupyter_client.manager import KernelManager

from .ranks_help import ROOT, gone


class Notebook:
    """A kernel, driven as JupyterLab drives it."""

    def __init__(self, **env):
        self.manager = KernelManager(kernel_name="python3")
        self.manager.start_kernel(cwd=str(ROOT), env={**os.environ, **env})
        self.client = self.manager.client()
        self.client.start_channels()
        self.client.wait_for_ready(timeout=60)

    def run(self, code, timeout=60, interrupt_after=None):
        """Return the cell's stdout, its other outputs, and its error if any."""
        out = Outputs()
        request = self.client.execute(code)
        began = time.monotonic()
        while True:
            if interrupt_after is not None and time.monotonic() - began > interrupt_after:
                self.manager.interrupt_kernel()
                interrupt_after = None
            try:
                message = self.client.get_iopub_msg(timeout=0.1)
            except Exception:
                assert time.monotonic() - began < timeout, f"the cell did not end: {code}"
                continue
            if message["parent_header"].get("msg_id") != request:
                continue
            if out.take(message):
                return out

    def close(self):
        self.client.stop_channels()
        self.manager.shutdown_kernel(now=True)


class Outputs:
    def __init__(self):
        self.stdout, self.stderr, self.data, self.error, self.live = "", "", [], None, []
        self.number = None

    def take(self, message):
        kind, content = message["msg_type"], message["content"]
        if kind == "stream":
            setattr(self, content["name"], getattr(self, content["name"]) + content["text"])
        elif kind in ("execute_result", "display_data"):
            self.data.append(content["data"])
        elif kind == "update_display_data":
            self.live.append(content["data"]["text/plain"])
        elif kind == "execute_input":
            self.number = content["execution_count"]
        elif kind == "error":
            self.error = content
        return kind == "status" and content["execution_state"] == "idle"


@pytest.fixture(scope="module")
def notebook():
    book = Notebook()
    book.run("from coursekit import Ranks\nranks = Ranks(3)")
    pids = eval(book.run("ranks.pids").data[0]["text/plain"])
    yield book
    book.close()
    assert gone(pids) == []


def test_the_table_is_html_in_a_notebook(notebook):
    data = notebook.run("ranks").data[0]
    assert "<table>" in data["text/html"]
    assert "3 ranks on gloo" in data["text/plain"]


def test_a_cell_runs_on_every_rank_and_shows_its_value(notebook):
    out = notebook.run("%%ranks\nx = torch.ones(2) * rank\ndist.all_reduce(x)\nx")
    assert out.stdout.splitlines() == [f"[rank {r}] Out: tensor([3., 3.])" for r in range(3)]


def test_a_cell_on_some_ranks(notebook):
    assert notebook.run("%%ranks 0,2\nrank").stdout.splitlines() == [
        "[rank 0] Out: 0",
        "[rank 2] Out: 2",
    ]


def test_a_function_of_a_cell_keeps_its_source_in_the_traceback(notebook):
    out = notebook.run("def work():\n    return 1 // dist.get_rank()\nranks.run(work)")
    error = "\n".join(out.error["traceback"])
    assert "return 1 // dist.get_rank()" in error
    assert f"Cell In[{out.number}], line 2, in work" in error
    assert "coursekit/ranks" not in error


def test_the_cells_number_stands_in_a_traceback(notebook):
    out = notebook.run("%%ranks\ny = 1\nif rank == 1:\n    y.nothing")
    error = "\n".join(out.error["traceback"])
    assert f"Cell In[{out.number}], line 3" in error
    assert "y.nothing" in error


def test_a_wrong_magic_line_is_one_clear_error(notebook):
    for line in ("zero", "0,9", "--timeout soon", "--of nobody"):
        out = notebook.run(f"%%ranks {line}\nrank")
        assert out.error["ename"] == "RanksUsageError"
        assert len(out.error["traceback"]) <= 2


def test_long_output_is_live_and_then_in_rank_order(notebook):
    live = Notebook(COURSEKIT_LIVE="1")
    try:
        live.run("from coursekit import Ranks\nranks = Ranks(2)")
        cell = (
            "%%ranks\nimport time\nfor i in range(4):\n"
            "    time.sleep(0.3)\n    print('step', i, flush=True)"
        )
        out = live.run(cell)
        shown = [d["text/plain"] for d in out.data] + out.live
        assert len(shown) >= 3
        assert "[rank 0] step 0" in shown[0]
        expected = [f"[rank {r}] step {i}" for r in range(2) for i in range(4)]
        assert shown[-1].splitlines() == expected
    finally:
        live.close()


def test_an_interrupt_leaves_kernel_ranks_and_variables(notebook):
    notebook.run("ranks.push(kept=4)")
    out = notebook.run("%%ranks\nif rank: dist.barrier()", interrupt_after=1.0)
    assert out.error["ename"] == "RanksInterrupted"
    assert "variables were kept" in "".join(out.error["traceback"])
    assert notebook.run("ranks.pull('kept')").data[0]["text/plain"] == "[4, 4, 4]"


def test_a_hang_ends_with_the_table_of_stands(notebook):
    out = notebook.run("%%ranks --timeout 1\nif rank != 1:\n    dist.all_reduce(torch.ones(2))")
    text = "\n".join(out.error["traceback"])
    assert out.error["ename"] == "RanksHung"
    assert "rank 1 finished the call and never entered all_reduce" in text
    assert notebook.run("%%ranks\nrank;").error is None


def test_rebinding_the_name_ends_the_old_ranks(notebook):
    old = eval(notebook.run("more = Ranks(2)\nmore.pids").data[0]["text/plain"])
    notebook.run("more = Ranks(2)")
    assert gone(old) == []
    notebook.run("more.close()\nranks = ranks")


def test_killing_or_restarting_the_kernel_leaves_nothing():
    book = Notebook()
    code = (
        "from coursekit import Ranks\nranks = Ranks(2)\n"
        "from coursekit.ranks._server_client import fork_server\n"
        "[*ranks.pids, fork_server().pid], ranks._launcher.folder"
    )
    try:
        pids, folder = eval(book.run(code).data[0]["text/plain"])
        book.manager.restart_kernel(now=True)
        assert gone(pids) == []
        assert not os.path.exists(folder)
        book.client.wait_for_ready(timeout=60)
        pids, folder = eval(book.run(code).data[0]["text/plain"])
        os.kill(book.manager.provisioner.pid, 9)
        assert gone(pids) == []
        assert not os.path.exists(folder)
    finally:
        book.close()


def test_the_fork_server_starts_when_the_package_is_imported():
    book = Notebook()
    try:
        book.run("import coursekit")
        out = book.run("from coursekit.ranks import _server_client as c\nc._server is not None")
        assert out.data[0]["text/plain"] == "True"
    finally:
        book.close()
