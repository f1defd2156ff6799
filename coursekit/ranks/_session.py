"""The ranks that belong to one `Ranks` object: their processes, connections and state."""

from __future__ import annotations

import contextlib
import itertools
import os
import secrets
import sys
import threading
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor, wait
from typing import TYPE_CHECKING, Any

from . import _wire
from ._errors import RanksError, RanksStartError
from ._io import Channel, Hub
from ._member import Launcher, Member, describe_end
from ._stand import Stand

if TYPE_CHECKING:
    from ._call import Call

START_TIMEOUT = 90.0
_RESET_TIMEOUT = 15.0


class Session:
    """Ranks as the notebook's threads see them; `Ranks` is its face."""

    def __init__(self, size: int, backend: str, launcher: Launcher, config: dict[str, Any]) -> None:
        self.id = f"s{os.getpid()}-{secrets.token_hex(4)}-"
        self.size, self.backend, self.launcher, self.config = size, backend, launcher, config
        self.owner = os.getpid()
        self.hub = Hub()
        self.changed = threading.Condition()
        self.members = [Member(r) for r in range(size)]
        self.recovering = threading.RLock()
        self.closed = False
        self._ids = itertools.count(1)
        self._stores = itertools.count()
        self._stands: dict[int, dict[int, Stand]] = {}
        self._waiting_for_store: list[tuple[int, dict[str, Any]]] = []

    # -- start ------------------------------------------------------------

    def start(self) -> None:
        """Start all ranks; RanksStartError says which one failed and why."""
        self._launch(list(range(self.size)), self._next_store())
        self._wait_ready(range(self.size), START_TIMEOUT)

    def _next_store(self) -> dict[str, Any]:
        return self.launcher.store(self, next(self._stores))

    def _launch(self, ranks: list[int], store: dict[str, Any]) -> None:
        for r in ranks:
            old = self.members[r]
            if old.channel is not None:
                old.channel.close()
            self.members[r] = Member(r)
        self.launcher.launch(self, ranks, store)

    def introduce(self, rank: int, config: dict[str, Any]) -> None:
        """Send a rank its first message; where rank 0 serves the store, it goes first."""
        message = {"kind": "start", "config": config}
        self._send_after_store(rank, message, config["store"])

    def _send_after_store(self, rank: int, message: dict[str, Any], store: dict[str, Any]) -> None:
        if "serve" in store and rank != 0:
            self._waiting_for_store.append((rank, message))
            return
        channel = self.members[rank].channel
        if channel is not None:
            channel.send(message)

    def _wait_ready(self, ranks: Iterable[int], timeout: float) -> None:
        wanted = [self.members[r] for r in ranks]
        until = time.monotonic() + timeout
        with self.changed:
            while not all(m.ready for m in wanted):
                for m in wanted:
                    self._refuse_failed_start(m)
                left = until - time.monotonic()
                if left <= 0:
                    missing = ", ".join(str(m.rank) for m in wanted if not m.ready)
                    raise RanksStartError(
                        f"every rank must answer within {timeout:.0f} s, got no answer of rank "
                        f"{missing}; look at the machine's load and run `coursekit doctor`"
                    )
                self.changed.wait(left)
        self.launcher.joined()

    def _refuse_failed_start(self, member: Member) -> None:
        if member.error is not None:
            text = member.error.render()
            raise RanksStartError(f"rank {member.rank} could not start:\n\n{text}")
        if member.ended:
            said = member.early.decode("utf-8", "replace").strip()[-2000:]
            raise RanksStartError(
                f"rank {member.rank} ended while it started"
                + (f"; it said:\n\n{said}" if said else "; run `coursekit doctor`")
            )

    # -- what the io thread brings ------------------------------------------

    def on_message(self, channel: Channel, message: dict[str, Any]) -> None:
        """Sort a rank's message to whoever waits for it."""
        member = self.members[channel.rank]
        if member.channel is not channel:
            return
        with self.changed:
            getattr(self, "_got_" + message["kind"])(member, message)
            self.changed.notify_all()

    def _got_ready(self, member: Member, message: dict[str, Any]) -> None:
        member.error = message.get("error")
        if member.error is None:
            member.facts, member.ready = message["facts"], True

    def _got_store(self, _: Member, message: dict[str, Any]) -> None:
        waiting, self._waiting_for_store = self._waiting_for_store, []
        for rank, later in waiting:
            if later["kind"] == "start":
                later["config"]["store"] = message["store"]
            else:
                later["store"] = message["store"]
            channel = self.members[rank].channel
            if channel is not None:
                channel.send(later)

    def _got_done(self, member: Member, message: dict[str, Any]) -> None:
        member.names = message["names"]
        for call in list(member.calls):
            if call.id == message["id"]:
                member.calls.remove(call)
                call.answered(member.rank, message)

    def _got_stand(self, member: Member, message: dict[str, Any]) -> None:
        self._stands.setdefault(message["id"], {})[member.rank] = message["stand"]

    def on_output(self, channel: Channel, stream: str, data: bytes) -> None:
        """Give output to the call that the rank is in."""
        member = self.members[channel.rank]
        if member.channel is not channel:
            return
        if not member.ready:
            member.early += data
        elif member.calls:
            member.calls[0].transcript.feed(member.rank, stream, data)
        else:
            for line in data.decode("utf-8", "replace").splitlines():
                print(f"[rank {member.rank}] {line}", file=sys.stdout)

    def on_ended(self, channel: Channel, status: int | None, crash: str) -> None:
        """Note that a rank's process is gone."""
        member = self.members[channel.rank]
        if member.channel is not channel or member.ended:
            return
        with self.changed:
            member.ended, member.status, member.crash = True, status, crash
            for call in member.calls:
                call.died(member.rank, status, crash)
            member.calls.clear()
            self.changed.notify_all()

    # -- calls ------------------------------------------------------------

    def next_id(self) -> int:
        """A number for a call or a question."""
        return next(self._ids)

    def dispatch(self, call: Call, message: dict[str, Any]) -> None:
        """Send a call to its ranks."""
        parts = _wire.dumps({**message, "id": call.id})
        with self.changed:
            for r in call.ranks:
                member = self.members[r]
                member.calls.append(call)
                if member.channel is not None:
                    member.channel.send_parts(parts)

    def dead(self) -> list[Member]:
        """Members whose process has ended."""
        return [m for m in self.members if m.ended]

    def busy(self) -> list[Member]:
        """Members that a call waits for."""
        return [m for m in self.members if m.calls and not m.ended]

    def tell(self, members: Iterable[Member], kind: str, **more: Any) -> None:
        """Send an order to the side threads of some ranks."""
        for m in members:
            if m.channel is not None and not m.ended:
                m.channel.send({"kind": kind, **more})

    def wait_until(self, condition: Callable[[], bool], seconds: float) -> bool:
        """Wait until what the io thread brings makes `condition` true."""
        with self.changed:
            return self.changed.wait_for(condition, seconds)

    def stands(self, ranks: Iterable[int] | None = None, seconds: float = 1.0) -> list[Stand]:
        """Ask ranks where they stand; the operating system answers for the silent."""
        members = [self.members[r] for r in (range(self.size) if ranks is None else ranks)]
        asked = [m for m in members if not m.ended]
        number = self.next_id()
        self.tell(asked, "where", id=number)
        got = self._stands.setdefault(number, {})
        self.wait_until(lambda: all(m.rank in got or m.ended for m in asked), seconds)
        self._stands.pop(number, None)
        return [got.get(m.rank) or self._outside_view(m) for m in members]

    def _outside_view(self, member: Member) -> Stand:
        if member.ended:
            return Stand(member.rank, "dead", note=describe_end(member.status))
        return self.launcher.peek(member) or Stand(member.rank, "silent")

    # -- recovery ---------------------------------------------------------

    def recover(self, renew: bool = True) -> str:
        """Get every rank back to an idle, connected state; returns what it cost, in words.

        Further interrupts wait: half a recovery would lose the ranks.
        """
        with ThreadPoolExecutor(1, "coursekit-recovery") as aside:
            job = aside.submit(self._recover, renew)
            while not job.done():
                with contextlib.suppress(KeyboardInterrupt):
                    wait([job])
        return job.result()

    def _recover(self, renew: bool) -> str:
        with self.recovering:
            for m in self.busy():
                self.launcher.resume(m)
            if self.busy():
                self.tell(self.busy(), "unblock")
                self.wait_until(lambda: not self.busy(), 0.8)
            for m in self.busy():
                self.launcher.kill(self, m.rank)
            self.wait_until(lambda: not self.busy(), 2.0)
            return self._revive() if renew or self.dead() else ""

    def _revive(self) -> str:
        dead = [m.rank for m in self.dead()]
        if dead and not self.launcher.replaces_one:
            return self._restart(list(range(self.size)))
        try:
            return self._restart(dead) if dead else self._renew([])
        except RanksStartError:
            return self._restart(list(range(self.size)))

    def restart_all(self) -> None:
        """Start every rank again."""
        with self.recovering:
            self._restart(list(range(self.size)))

    def _restart(self, ranks: list[int]) -> str:
        lost = sorted({n for r in ranks for n in self.members[r].names})
        everyone = len(ranks) == self.size
        if everyone:
            for r in ranks:
                self.launcher.kill(self, r)
            self.launcher.before_restart_all(self)
        self._renew(ranks)
        who = "all ranks were" if everyone else _ranks_were(ranks)
        what = f"the variables {', '.join(lost)} are lost there" if lost else "no variable was lost"
        return f"{who} started again; {what}"

    def _renew(self, restarted: list[int]) -> str:
        """Make the process group anew among ranks that stay and ranks that start."""
        store = self._next_store()
        stay = [m for m in self.members if m.rank not in restarted]
        for m in stay:
            m.ready = False
        self._waiting_for_store.clear()
        if restarted:
            self._launch(restarted, store)
        for m in stay:
            self._send_after_store(m.rank, {"kind": "reset", "store": store}, store)
        self._wait_ready(range(self.size), START_TIMEOUT if restarted else _RESET_TIMEOUT)
        return "every rank's variables were kept; the process group was made anew"

    # -- end --------------------------------------------------------------

    def close(self) -> None:
        """End the ranks and leave nothing behind."""
        if self.closed or self.owner != os.getpid():
            return
        self.closed = True
        with self.changed:
            for m in self.members:
                for call in m.calls:
                    call.closed()
                m.calls.clear()
            self.changed.notify_all()
        # When the server is gone, the ranks are gone with it.
        with contextlib.suppress(RanksError):
            self.launcher.close(self)
        for m in self.members:
            if m.channel is not None:
                m.channel.close()
        self.hub.close()


def _ranks_were(ranks: list[int]) -> str:
    words = ", ".join(map(str, ranks))
    return f"rank {words} was" if len(ranks) == 1 else f"ranks {words} were"
