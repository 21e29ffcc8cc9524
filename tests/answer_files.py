"""One and the same set of saved answers in every form that trainers and people write, as files below a directory."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

STEPS = (3, 4, 5)
PROMPTS, SIZE = 4, 3


@dataclass(frozen=True)
class Sample:
    """One answer with all that any form can say of it."""

    step: int
    group: int
    row: int
    prompt: str
    text: str
    accuracy: float
    format: float
    advantage: float
    tokens: int
    cut: bool
    truth: str

    @property
    def reward(self) -> float:
        return self.accuracy + 0.5 * self.format


def samples() -> list[Sample]:
    """Answers to 4 prompts, 3 each, at 3 steps; one prompt is the same at every step, and ids restart with the step."""
    made = []
    for step in STEPS:
        for group in range(PROMPTS):
            for row in range(SIZE):
                right = float((step + group + row) % 3 == 0)
                prompt = f"{group}+1?" if group else "always?"
                text = f"{step}.{group}.{row} so it is {group + 1 if right else -1}"
                made.append(
                    Sample(step, group, row, prompt, text, right, float(row != 1), right - 0.5, 10 + row, row == 2,
                           str(group + 1))
                )  # fmt: skip
    return made


Writer = Callable[[Path], list[Path]]
FORMS: dict[str, Writer] = {}
"""What writes the set below a directory, by form; the files in the order of their names."""


def _form(name: str) -> Callable[[Writer], Writer]:
    def keep(writer: Writer) -> Writer:
        FORMS[name] = writer
        return writer

    return keep


def _lines(path: Path, records: Iterable[dict[str, Any]]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    return path


def _at(step: int) -> list[Sample]:
    return [one for one in samples() if one.step == step]


def _user(text: str) -> list[dict[str, str]]:
    return [{"role": "user", "content": text}]


def _assistant(text: str) -> list[dict[str, str]]:
    return [{"role": "assistant", "content": text}]


def _finish(one: Sample) -> str:
    return "length" if one.cut else "stop"


@_form("verl")
def verl(top: Path) -> list[Path]:
    def row(one: Sample) -> dict[str, Any]:
        return {"input": one.prompt, "output": one.text, "gts": one.truth, "score": one.reward, "step": one.step,
                "acc": bool(one.accuracy), "format": one.format, "pred": "?", "request_id": "a-1"}  # fmt: skip

    return [_lines(top / "rollout_data" / f"{step}.jsonl", [row(one) for one in reversed(_at(step))]) for step in STEPS]


@_form("verl-table")
def verl_table(top: Path) -> list[Path]:
    columns = ["step", *(f"{kind}_{at + 1}" for at in range(2) for kind in ("input", "output", "score"))]
    data: list[list[Any]] = []
    found = []
    for step in STEPS:
        two = _at(step)[:2]
        data.append([step, *(cell for one in two for cell in (one.prompt, one.text, one.reward))])
        path = top / "wandb/run-1/files/media/table/val" / f"generations_{step}_0123456789abcdef.table.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps({"columns": columns, "data": data}))
        found.append(path)  # the newest holds all rows
    return found


def _trl(one: Sample) -> dict[str, Any]:
    return {"step": one.step, "prompt": one.prompt, "completion": one.text, "accuracy": one.accuracy,
            "format": one.format, "advantage": one.advantage}  # fmt: skip


@_form("trl-table")
def trl_table(top: Path) -> list[Path]:
    found = []
    for step in STEPS:
        rows = [_trl(one) for one in _at(step)]
        path = top / "wandb/run-1/files/media/table" / f"completions_{7 * step}_0123456789abcdef.table.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps({"columns": list(rows[0]), "data": [list(row.values()) for row in rows]}))
        found.append(path)
    return found


@_form("trl")
def trl(top: Path) -> list[Path]:
    """TRL writes Parquet; the same rows as lines, so that the form is tested where nothing writes Parquet."""
    return [_lines(top / "completions" / f"completions_{step:05d}.jsonl", map(_trl, _at(step))) for step in STEPS]


@_form("swift")
def swift(top: Path) -> list[Path]:
    def event(step: int) -> dict[str, Any]:
        rows = _at(step)
        return {"step": [str(one.step) for one in rows], "prompt": [one.prompt for one in rows],
                "completion": [one.text for one in rows], "accuracy": [one.accuracy for one in rows],
                "format": [one.format for one in rows], "advantages": [one.advantage for one in rows],
                "entropy": [0.1 for _ in rows], "solution": [one.truth for one in rows]}  # fmt: skip

    return [_lines(top / "completions.jsonl", map(event, STEPS))]


@_form("roll")
def roll(top: Path) -> list[Path]:
    found = []
    for step in STEPS:
        rows = _at(step)
        record = {"global_step": [one.step for one in rows], "id": [f"g{one.group}" for one in rows],
                  "prompt": [one.prompt for one in rows], "responses": [one.text for one in rows],
                  "scores": [one.reward for one in rows], "ground_truth": [one.truth for one in rows],
                  "sampling_params": ["{}" for _ in rows]}  # fmt: skip
        found.append(_lines(top / "rollout_dump" / f"rollout_dump_data.step_{step}.jsonl", [record]))
    return found


@_form("nemo-rl")
def nemo_rl(top: Path) -> list[Path]:
    def row(place: int, one: Sample) -> dict[str, Any]:
        asked, pad = 4, 15 - one.tokens
        mask = [0] * asked + [1] * one.tokens + [0] * pad
        drawn = [0.0] * asked + [-0.5] * one.tokens + [0.0] * pad
        again = [0.0] * asked + [-0.4] * (one.tokens - 1) + [-1.5] + [7.0] * pad
        gained = [0.0] * asked + [one.advantage] * one.tokens + [0.0] * pad
        return {"content": [[one.prompt, one.text]], "rewards": [one.reward], "input_lengths": [asked + one.tokens],
                "token_ids": [[1] * len(mask)], "token_loss_mask": [mask], "sample_loss_mask": [1.0],
                "advantages": [gained], "generation_logprobs": [drawn], "prev_logprobs": [again], "idx": place}  # fmt: skip

    return [
        _lines(top / "logs/exp_001" / f"train_data_step{step}.jsonl", [row(i, one) for i, one in enumerate(_at(step))])
        for step in STEPS
    ]


@_form("prime-rl")
def prime_rl(top: Path) -> list[Path]:
    def episode(one: Sample) -> dict[str, Any]:
        nodes = [
            {"message": _user(one.prompt)[0], "token_ids": [1, 2], "mask": [False, False]},
            {"parent": 0, "message": _assistant(one.text)[0], "sampled": True, "token_ids": [0] + [5] * one.tokens,
             "mask": [False] + [True] * one.tokens, "logprobs": [-0.5] * one.tokens},
        ]  # fmt: skip
        trace = {"id": "t", "agent": {"name": "agent", "trainable": True}, "nodes": nodes,
                 "calls": [{"node": 1, "finish_reason": _finish(one),
                            "usage": {"prompt_tokens": 2, "completion_tokens": one.tokens}}],
                 "rewards": {"accuracy": {"score": one.accuracy, "weight": 1.0},
                             "format": {"score": one.format, "weight": 0.5}, "unscored": None},
                 "metrics": {"num_turns": 1.0}, "is_completed": True, "ok": True,
                 "stop_condition": "agent_completed"}  # fmt: skip
        judge = {"agent": {"name": "judge", "trainable": False}, "nodes": nodes, "rewards": {}}
        work = {"type": "train", "step": one.step, "policy": {"start": one.step - 1, "end": one.step}}
        return {"id": "e", "env": {"id": "sums"}, "task": {"type": "T", "data": {"answer": one.truth}, "key": "k"},
                "group": {"id": f"g{one.group}"}, "ok": True, "traces": [trace, judge],
                "run": {"type": "train", "id": "r", "work": work}}  # fmt: skip

    return [_lines(top / f"rollouts/step_{step}/train/all/traces.jsonl", map(episode, _at(step))) for step in STEPS]


@_form("verifiers")
def verifiers(top: Path) -> list[Path]:
    def row(one: Sample) -> dict[str, Any]:
        return {"example_id": one.group, "task": "sums", "prompt": _user(one.prompt), "completion": _assistant(one.text),
                "answer": one.truth, "reward": one.reward, "is_truncated": one.cut,
                "metrics": {"accuracy": one.accuracy, "format": one.format, "num_turns": 1.0}}  # fmt: skip

    return [_lines(top / f"rollouts/step_{step}/train_rollouts.jsonl", map(row, _at(step))) for step in STEPS]


@_form("skyrl")
def skyrl(top: Path) -> list[Path]:
    def row(one: Sample) -> dict[str, Any]:
        return {"input_prompt": one.prompt, "output_response": one.text, "score": [0.0, one.reward],
                "stop_reason": _finish(one), "env_class": "sums", "data_source": "sums",
                "env_extras": {"reward_spec": {"method": "rule", "ground_truth": one.truth}}}  # fmt: skip

    return [
        _lines(top / f"exports/dumped_evals/global_step_{step}_evals/sums.jsonl", map(row, _at(step))) for step in STEPS
    ]


@_form("slime")
def slime(top: Path) -> list[Path]:
    """slime writes .pt; its samples as lines, so that the form is tested apart from the container."""

    def row(one: Sample) -> dict[str, Any]:
        return {"group_index": one.group, "index": one.row, "prompt": one.prompt, "response": one.text,
                "response_length": one.tokens, "label": one.truth, "reward": one.reward,
                "loss_mask": [1] * one.tokens, "weight_versions": [str(one.step - 1), str(one.step)],
                "rollout_log_probs": [-0.5] * one.tokens, "status": "truncated" if one.cut else "completed"}  # fmt: skip

    return [_lines(top / "rollout_data" / f"{step}.jsonl", map(row, _at(step))) for step in STEPS]


@_form("areal")
def areal(top: Path) -> list[Path]:
    found = []
    for step in STEPS:
        for group in range(PROMPTS):
            rows = [
                {"task_id": str(group), "sample_idx": one.row, "seqlen": 4 + one.tokens, "prompt_len": 4,
                 "head_version": step - 1, "tail_version": step, "reward": one.reward, "prompt": one.prompt,
                 "completion": one.text} for one in _at(step) if one.group == group
            ]  # fmt: skip
            found.append(_lines(top / f"logs/rollout/{step}/{group}.jsonl", rows))
    return found


@_form("open-instruct")
def open_instruct(top: Path) -> list[Path]:
    def row(one: Sample) -> dict[str, Any]:
        return {"step": one.step, "sample_idx": one.row, "prompt_idx": one.group, "prompt_tokens": [1, 2],
                "response_tokens": list(map(ord, one.text.ljust(one.tokens)))[: one.tokens], "reward": one.reward,
                "advantage": one.advantage, "finish_reason": _finish(one), "dataset": "sums", "ground_truth": [7],
                "request_info": {"num_calls": 0}, "logprobs": [-0.5] * one.tokens}  # fmt: skip

    return [_lines(top / "sums_rollouts_000000.jsonl", map(row, samples()))]


@_form("tinker")
def tinker(top: Path) -> list[Path]:
    def row(one: Sample) -> dict[str, Any]:
        step = {"step_idx": 0, "ob_len": 4, "ac_len": one.tokens, "reward": one.reward, "episode_done": True,
                "stop_reason": _finish(one), "metrics": {"accuracy": one.accuracy, "format": one.format}, "logs": {},
                "trace": {"prompt": {"type": "conversation", "messages": _user(one.prompt)},
                          "policy_response": {"type": "conversation", "messages": _assistant(one.text)},
                          "reward": {"reference_answer": one.truth}}}  # fmt: skip
        return {"schema_version": 1, "split": "train", "iteration": one.step, "group_idx": one.group, "traj_idx": one.row,
                "tags": [], "sampling_client_step": one.step - 1, "total_reward": one.reward, "final_reward": 0.0,
                "trajectory_metrics": {}, "steps": [step], "final_ob_len": 20}  # fmt: skip

    return [_lines(top / f"iteration_{step:06d}/train_rollout_summaries.jsonl", map(row, _at(step))) for step in STEPS]


@_form("art")
def art(top: Path) -> list[Path]:
    found = []
    for step in STEPS:
        groups = []
        for group in range(PROMPTS):
            said = [
                {"reward": one.reward, "metrics": {}, "metadata": {}, "logs": [],
                 "messages_and_choices": [*_user(one.prompt), {"finish_reason": _finish(one), "index": 0,
                                                               "message": _assistant(one.text)[0]}]}
                for one in _at(step) if one.group == group
            ]  # fmt: skip
            groups.append({"trajectories": said})
        found.append(_lines(top / f".art/sums/models/m/trajectories/train/{step:04d}.jsonl", groups))
    return found


@_form("rllm")
def rllm(top: Path) -> list[Path]:
    found = []
    for one in samples():
        said = {"observation": None, "reward": one.reward, "done": True, "model_response": one.text,
                "chat_completions": [*_user(one.prompt), *_assistant(one.text)]}  # fmt: skip
        record = {"training_step": one.step, "epoch": 0, "episode_id": f"e{one.group}:{one.row}",
                  "task": {"question": one.prompt, "ground_truth": one.truth}, "task_hash": f"{one.group}abc",
                  "is_correct": bool(one.accuracy),
                  "termination_reason": "max_response_length_exceeded" if one.cut else "env_done", "metrics": {},
                  "trajectories": [{"name": "solver", "reward": one.reward, "num_steps": 1, "steps": [said]}]}  # fmt: skip
        path = top / f"logs/p/x/episodes/train_step_{one.step}_epoch_0/episode_hash{one.group}abc_id{one.row}.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(record, indent=2))
        found.append(path)
    return found


@_form("plain")
def plain(top: Path) -> list[Path]:
    def row(one: Sample) -> dict[str, Any]:
        return {"step": one.step, "question": one.prompt, "response": one.text, "reward": one.reward,
                "accuracy": one.accuracy, "format": one.format, "advantage": one.advantage, "n_tokens": one.tokens,
                "finish_reason": _finish(one), "answer": one.truth, "temperature": 1.0, "latency_s": 0.1}  # fmt: skip

    return [_lines(top / "answers.jsonl", map(row, samples()))]


@_form("plain-groups")
def plain_groups(top: Path) -> list[Path]:
    found = []
    for step in STEPS:
        records = []
        for group in range(PROMPTS):
            rows = [one for one in _at(step) if one.group == group]
            answers = [
                {"rollout": one.row, "text": one.text, "correct": bool(one.accuracy), "pred_value": 3.0} for one in rows
            ]
            records.append({"model_revision": f"step-{step}", "qid": group, "question": rows[0].prompt,
                            "gold": rows[0].truth, "n_correct": 1, "n_rollouts": SIZE, "rollouts": answers})  # fmt: skip
        found.append(_lines(top / f"trajectory/step-{step}/raw.jsonl", records))
    return found
