"""Which verdict stands first."""

from __future__ import annotations

from coursekit.diagnose import (  # noqa: F401  (checks register themselves)
    _check_calls,
    _check_init,
    _check_net,
    _check_recorder,
    _check_rest,
    _check_watchdog,
    _tables,
)
from coursekit.diagnose._event import Line
from coursekit.diagnose._facts import PROOFS, Facts
from coursekit.diagnose._found import CHECKS, CONFIDENCES, Found
from coursekit.diagnose._report import Verdict
from coursekit.diagnose._rules import WEIGHTS, Rule, rules
from coursekit.topology import Finding
from coursekit.topology.findings import COSTLY

# Said only where nothing else is.
LAST = ("ok.healthy", "evidence.insufficient")


def verdicts(facts: Facts) -> list[Verdict]:
    """All that the facts show, the root cause first."""
    found = [v for rule in rules().values() if rule.id not in LAST for v in _verdict(rule, facts)]
    found = _shown(found) + _topology(facts)
    found.sort(key=_order)
    return _with_rest(found, facts)


def _verdict(rule: Rule, facts: Facts) -> list[Verdict]:
    """One verdict of a rule, from lines and its check together."""
    told = list(CHECKS[rule.check](facts)) if rule.check else []
    hit = facts.hits.get(rule.id)
    if hit is not None:
        named = hit.fields.get("ranks")
        ranks = {int(r) for r in named.split(",") if r.strip().isdigit()} if named else hit.ranks
        ranks |= {r for p in hit.processes if (r := facts.rank_of_process(p)) is not None}
        told.append(Found(hit.lines, sorted(ranks), _words(rule, hit.fields)))
    if not told:
        return []
    best = min(told, key=lambda f: CONFIDENCES.index(f.confidence))
    lines = list(dict.fromkeys(line for found in [best, *told] for line in found.lines))
    return [Verdict(rule.id, best.confidence, rule.layer, rule.kind, rule.weight,
                    tuple(best.ranks), tuple(lines[:PROOFS]), rule.words, best.fields,
                    rule.next)]  # fmt: skip


def _words(rule: Rule, fields: dict[str, str]) -> dict[str, object]:
    """What a line names, and for a mismatch the two sizes."""
    told: dict[str, object] = dict(fields)
    if "local" in fields:
        told["difference"] = f"{fields['local']} / {fields.get('remote', '?')}"
    if rule.id == "coll.missing_rank" and "ranks" in fields:
        told["missing"] = f"rank {fields['ranks']}"
    return told


def _shown(found: list[Verdict]) -> list[Verdict]:
    """Without those that another one explains."""
    hidden = {name for v in found for name in rules()[v.id].hides}
    # A low guess hides nothing that lines prove.
    keep = {v.id for v in found if v.confidence == "high"}
    weak = {name for v in found if v.confidence == "low" for name in rules()[v.id].hides}
    strong = {name for v in found if v.confidence != "low" for name in rules()[v.id].hides}
    return [v for v in found if v.id not in hidden or (v.id in keep and v.id in weak - strong)]


def _order(verdict: Verdict) -> tuple[int, int]:
    return WEIGHTS.index(verdict.weight), CONFIDENCES.index(verdict.confidence)


def _topology(facts: Facts) -> list[Verdict]:
    found: dict[str, Verdict] = {}
    for finding, source, line in _tables.told(facts):
        found.setdefault(finding.id, _of_topology(finding, Line(source, 1, line)))
    return list(found.values())


def _of_topology(finding: Finding, line: Line) -> Verdict:
    costly = finding.id in COSTLY
    return Verdict(finding.id, "high", "topology", "cause" if costly else "information",
                   "slow" if costly else "note", (), (line,), finding, {},
                   ("nvidia-smi topo -m",))  # fmt: skip


def _with_rest(found: list[Verdict], facts: Facts) -> list[Verdict]:
    """Healthy where nothing is wrong; what is missing where nothing explains."""
    causes = [v for v in found if v.kind == "cause"]
    if causes:
        return found
    consequences = any(v.kind == "consequence" for v in found)
    notes = [v for v in found if not isinstance(v.words, Finding)]
    topology = [v for v in found if isinstance(v.words, Finding)]
    if not consequences and (well := _verdict(rules()["ok.healthy"], facts)):
        return [*notes, *well, *topology]
    if found and not consequences and not _bad(facts):
        return found
    return [*found, *_verdict(rules()["evidence.insufficient"], facts)]


def _bad(facts: Facts) -> bool:
    return bool(facts.of("nccl.warn", "torch.nccl_error", "torchrun.root") or facts.refused)
