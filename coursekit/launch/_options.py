"""The launchers' options, and how a line is taken apart by them.

Sources: torch/distributed/run.py; Open MPI's mpirun(1), 4.1 and 5.0; MPICH's Hydra; srun(1).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from ._shell import Word

__all__ = ["HYDRA", "OPEN_MPI", "SRUN", "TORCHRUN", "Line", "Option", "taken_apart"]


def _table(**names: str) -> Mapping[str, int]:
    """Options by how many words follow them."""
    counts = {"none": 0, "one": 1, "two": 2}
    return MappingProxyType({n: counts[k] for k, text in names.items() for n in text.split()})


TORCHRUN = _table(
    one="--nnodes --nproc-per-node --rdzv-backend --rdzv-endpoint --rdzv-id --rdzv-conf "
    "--max-restarts --monitor-interval --start-method --event-log-handler --role --log-dir -r "
    "--redirects -t --tee --local-ranks-filter --duplicate-stdout-filters "
    "--duplicate-stderr-filters --node-rank --master-addr --master-port --local-addr --logs-specs "
    "--numa-binding --signals-to-handle --shutdown-timeout",
    none="-h --help --standalone -m --module --no-python --run-path --virtual-local-rank --use-env",
)
OPEN_MPI = _table(
    one="-n -np --n --np -c -H --host -host --hostfile -hostfile --machinefile -machinefile "
    "--default-hostfile -x -N -npernode --npernode -npersocket --npersocket --map-by -map-by "
    "--bind-to -bind-to --rank-by -rank-by --rankfile -rf --cpu-set --cpu-list --cpus-per-proc "
    "--cpus-per-rank --ppr --output-filename --output --stdin --path --prefix --wdir -wdir --wd "
    "--tune --am --timeout --app --max-restarts --personality --launch-agent --report-uri "
    "--report-pid --display --runtime-options --preload-files --xterm --add-host --add-hostfile",
    two="--mca -mca --gmca --pmixmca --prtemca",
    none="--allow-run-as-root --oversubscribe -oversubscribe --nooversubscribe --nolocal --pernode "
    "-pernode --bynode --byslot --bycore --report-bindings --display-map --display-allocation "
    "--tag-output --timestamp-output --merge-stderr-to-stdout -q --quiet -v --verbose -V --version "
    "-h --help --use-hwthread-cpus --noprefix --preload-binary --get-stack-traces --do-not-launch "
    "--enable-recovery --disable-recovery --leave-session-attached --bind-to-core "
    "--bind-to-socket --show-progress --with-ft --continuous --xml",
)
HYDRA = _table(
    one="-n -np -ppn -perhost -f -hostfile -machinefile -hosts -host -genvlist -envlist -wdir "
    "-bind-to -map-by -iface -launcher -rmk -configfile -prepend-pattern -env-list",
    two="-genv -env",
    none="-genvall -genvnone -envall -envnone -l -prepend-rank -verbose -v -info -version -h -help "
    "-usize",
)
SRUN = _table(
    one="-N --nodes -n --ntasks --ntasks-per-node --tasks-per-node --ntasks-per-gpu -G --gpus "
    "--gpus-per-node --gpus-per-task --gpus-per-socket --gres -c --cpus-per-task --cpus-per-gpu "
    "--mem --mem-per-gpu -p --partition -t --time -A --account -J --job-name --jobid -o --output "
    "-e --error -i --input --export -w --nodelist -x --exclude -D --chdir --mpi --cpu-bind "
    "--gpu-bind --mem-bind -m --distribution --network --qos --reservation -C --constraint "
    "--container-image --container-mounts --container-workdir --container-name -K "
    "--kill-on-bad-exit -W --wait --open-mode --tres-per-task -r --relative --threads-per-core "
    "--hint -d --dependency -a --array --mail-type --mail-user --comment",
    none="-l --label --exclusive --overlap --exact --pty -u --unbuffered -v --verbose -Q --quiet "
    "-O --overcommit -s --oversubscribe -k --no-kill --no-container-mount-home -E --preserve-env "
    "--spread-job --use-min-nodes --requeue --no-requeue -h --help -V --version "
    "--container-writable --container-remap-root --disable-status --multi-prog --contiguous",
)
# `--exclusive=user`, `--kill-on-bad-exit`: what follows only counts after `=`.
_ONLY_GLUED = frozenset(
    {"--kill-on-bad-exit", "-K", "--exclusive", "--label", "--use-hwthread-cpus"}
)


@dataclass(frozen=True)
class Option:
    """One option as it stands in the line's words `start` to `stop`."""

    name: str
    values: tuple[str, ...]
    start: int
    stop: int

    @property
    def value(self) -> str:
        """Its first value, "" without one."""
        return self.values[0] if self.values else ""


@dataclass(frozen=True)
class Line:
    """A launcher's line taken apart: its words, options, and where the program begins."""

    words: tuple[Word, ...]
    options: tuple[Option, ...]
    program_at: int
    unknown: tuple[Option, ...] = field(default=())

    @property
    def program(self) -> tuple[Word, ...]:
        """What it starts."""
        return self.words[self.program_at :]

    def all(self, *names: str) -> list[Option]:
        """The options of these names, in order."""
        return [o for o in self.options if o.name in names]

    def get(self, *names: str) -> str | None:
        """The last one's value; None if it is not there."""
        found = self.all(*names)
        return found[-1].value if found else None

    def number(self, *names: str) -> int | None:
        """The same as a number; None for anything else, such as `$N`."""
        value = self.get(*names)
        return int(value) if value and re.fullmatch(r"\d{1,7}", value) else None

    def without(self, *gone: Option) -> str:
        """The line without some options."""
        places = {i for o in gone for i in range(o.start, o.stop)}
        return " ".join(w.raw for i, w in enumerate(self.words) if i not in places)

    def put(self, name: str, text: str) -> str:
        """The line with an option's words replaced by `text`, or that put in behind the tool."""
        found = self.all(name)
        raws = [w.raw for w in self.words]
        if found:
            raws[found[-1].start : found[-1].stop] = [text] if text else []
        elif text:
            raws[1:1] = [text]
        return " ".join(raws)


def taken_apart(words: tuple[Word, ...], table: Mapping[str, int], folded: bool = False) -> Line:
    """Read `words`, the tool first, by a table of options; `folded`: `_` in names is `-`."""
    options: list[Option] = []
    unknown: list[Option] = []
    at = 1
    while at < len(words) and words[at].value.startswith("-") and len(words[at].value) > 1:
        value = words[at].value
        if value == "--":
            at += 1
            break
        option = _option(words, at, table, folded)
        (options if option.name in table else unknown).append(option)
        at = option.stop
    return Line(words, tuple(options), at, tuple(unknown))


def _option(words: tuple[Word, ...], at: int, table: Mapping[str, int], folded: bool) -> Option:
    name, equals, glued = words[at].value.partition("=")
    if folded and name.startswith("--"):
        name = name.replace("_", "-")
    short = re.fullmatch(r"(-[A-Za-z])(\d+)", words[at].value)
    if name not in table and short and table.get(short[1]) == 1:
        return Option(short[1], (short[2],), at, at + 1)
    if folded and name not in table:
        near = [known for known in table if known.startswith(name) and name.startswith("--")]
        name = near[0] if len(near) == 1 else name
    if equals and table.get(name, 1) < 2:
        return Option(name, (glued,), at, at + 1)
    wanted = 0 if name in _ONLY_GLUED else table.get(name, 0)
    values = tuple(w.value for w in words[at + 1 : at + 1 + wanted])
    return Option(name, values, at, at + 1 + len(values))
