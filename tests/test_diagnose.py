"""Verdicts: each form of log gives its cause first; healthy ones give none; nothing crashes."""

from __future__ import annotations

import contextlib
import json
import pickle
import random
import time
from pathlib import Path

import pytest

import coursekit
from coursekit.__main__ import main
from coursekit.diagnose import DiagnoseError, diagnose, rules
from coursekit.diagnose.forge import VERSIONS, Cluster, faults, forge
from tests.diagnose_help import CASES


@pytest.fixture(autouse=True)
def english():
    yield
    coursekit.language("en")


def first(text: str) -> str:
    return diagnose(text + "\n").verdicts[0].id


@pytest.mark.parametrize(
    ("verdict", "text"), CASES, ids=[f"{k}-{v}" for k, (v, _) in enumerate(CASES)]
)
def test_each_form_gives_its_cause_first(verdict: str, text: str) -> None:
    assert first(text) == verdict


def test_a_verdict_has_its_lines_its_words_and_a_next_step() -> None:
    for verdict, text in CASES:
        found = diagnose(text + "\n").verdicts[0]
        assert found.id == verdict
        for lang in ("en", "zh"):
            coursekit.language(lang)
            report = diagnose(text + "\n")
            assert len(str(report)) > 20
            assert "<script" not in report._repr_html_()


@pytest.mark.parametrize("fault", faults())
@pytest.mark.parametrize("seed", range(20))
def test_forged_faults_are_found_whatever_the_names_and_versions(fault, seed, tmp_path) -> None:
    made = forge(fault, seed=seed)
    assert diagnose(made.write(tmp_path)).verdicts[0].id == fault


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("ranks", [1, 8, 64, 1024])
def test_healthy_logs_give_no_alarm(version: str, ranks: int) -> None:
    assert first(healthy(version, ranks).text) == "ok.healthy"


def healthy(version: str, ranks: int):
    gpus = min(8, ranks)
    cluster = Cluster(hosts=ranks // gpus, gpus=gpus, version=version, seed=ranks)
    return forge("ok.healthy", cluster, seed=ranks, few=ranks > 64)


def mutate(rng: random.Random, text: str) -> str:
    for _ in range(rng.randint(1, 3)):
        lines = text.splitlines() or [""]
        k, kind = rng.randrange(len(lines)), rng.randrange(6)
        if kind == 0:
            return text[: rng.randrange(len(text) + 1)]
        if kind == 1:
            rng.shuffle(lines)
        elif kind == 2:
            lines[k] = lines[k][: rng.randrange(len(lines[k]) + 1)]
        elif kind == 3:
            at = rng.randrange(len(lines[k]) + 1)
            lines[k] = (
                lines[k][:at] + chr(rng.randrange(1, 400)) * rng.randint(1, 9) + lines[k][at:]
            )
        elif kind == 4:
            lines.insert(k, lines[rng.randrange(len(lines))])
        else:
            del lines[k]
        text = "\n".join(lines)
    return text


def test_twenty_thousand_mutated_logs_crash_nothing_and_hang_nowhere() -> None:
    rng = random.Random(7)
    longest = 0.0
    told = 0
    for _ in range(20_000):
        text = mutate(rng, rng.choice(CASES)[1]) + "\n"
        begin = time.process_time()
        try:
            report = diagnose(text)
        except DiagnoseError:
            continue
        longest = max(longest, time.process_time() - begin)
        assert report.verdicts
        told += 1
    assert told > 15_000
    # Processor time, so that a busy machine is no hang.
    assert longest < 5


class Evil:
    """What a malicious dump would hold."""

    def __reduce__(self):
        return (Path.touch, (Path("executed"),))


def test_a_malicious_pickle_executes_nothing(tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    file = tmp_path / "nccl_trace_rank_0"
    file.write_bytes(pickle.dumps({"version": "2.4", "entries": [Evil()]}))
    with contextlib.suppress(DiagnoseError):
        diagnose(file)
    assert not (tmp_path / "executed").exists()


def test_rules_are_complete_in_both_languages() -> None:
    told = rules()
    assert len(told) > 40
    for rule in told.values() if isinstance(told, dict) else told:
        assert set(rule.words) == {"en", "zh"}
        assert all(len(words) > 5 for words in rule.words.values())
        assert rule.kind in ("cause", "consequence", "information")


def test_the_command_has_text_json_and_exit_codes(tmp_path, capsys) -> None:
    file = tmp_path / "job.log"
    verdict, text = next((v, t) for v, t in CASES if v.startswith("shm.too_small"))
    file.write_text(text)
    assert main(["diagnose", str(file)]) == 1
    assert verdict in capsys.readouterr().out
    assert main(["diagnose", str(file), "--json"]) == 1
    assert verdict in json.dumps(json.loads(capsys.readouterr().out))
    file.write_text(healthy(max(VERSIONS), 8).text)
    assert main(["diagnose", str(file)]) == 0
    capsys.readouterr()
    assert main(["diagnose", str(tmp_path / "nothing")]) == 2
    assert len(capsys.readouterr().err.splitlines()) == 1
