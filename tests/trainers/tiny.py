"""A training of seconds with TRL's own GRPOTrainer on one core: a tiny model learns to repeat three digits."""

from __future__ import annotations

import contextlib
import json
import os
import random
import sys
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("HF_DATASETS_OFFLINE", "1")
warnings.filterwarnings("ignore", category=FutureWarning)

DIGITS, END, EQUALS = 3, 1, 13
"""Digits to repeat; ids of the end token and of the sign after the prompt (``tokenizer``)."""


def tokenizer() -> Any:
    """One token for each character: three special ones, the digits, and the sign that ends a prompt."""
    from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    names = ["<pad>", "<eos>", "<unk>", *"0123456789="]
    words = Tokenizer(models.WordLevel({name: at for at, name in enumerate(names)}, unk_token="<unk>"))
    words.pre_tokenizer = pre_tokenizers.Split(Regex("."), "isolated")
    words.decoder = decoders.Fuse()
    special = {"pad_token": "<pad>", "eos_token": "<eos>", "unk_token": "<unk>"}
    return PreTrainedTokenizerFast(tokenizer_object=words, padding_side="left", **special)


def model(steps: int = 60) -> Any:
    """Two layers that were taught in ``steps`` supervised steps to answer with some digits, four in ten of them right."""
    import torch
    from transformers import Qwen2Config, Qwen2ForCausalLM

    torch.manual_seed(3)
    chance = random.Random(9)
    made = Qwen2ForCausalLM(
        Qwen2Config(
            vocab_size=EQUALS + 1, hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=4,
            num_key_value_heads=2, max_position_embeddings=64, tie_word_embeddings=True, initializer_range=0.05,
            pad_token_id=0, eos_token_id=END, bos_token_id=None,
        )
    )  # fmt: skip
    learner = torch.optim.AdamW(made.parameters(), lr=3e-3)
    for _ in range(steps):
        rows, wanted = [], []
        for _ in range(64):
            asked = [chance.randrange(3, EQUALS) for _ in range(DIGITS)]
            said = [
                asked[at] if at < DIGITS and chance.random() < 0.4 else chance.randrange(3, EQUALS)
                for at in range(chance.choice((2, 3, 3, 3, 4, 5)))
            ]
            row = [*asked, EQUALS, *said, END]
            rows.append(row + [0] * (10 - len(row)))
            wanted.append([-100] * (DIGITS + 1) + row[DIGITS + 1 :] + [-100] * (10 - len(row)))
        ids = torch.tensor(rows)
        scores = made(input_ids=ids, attention_mask=(ids != 0).long()).logits[:, :-1]
        loss = torch.nn.functional.cross_entropy(
            scores.reshape(-1, EQUALS + 1), torch.tensor(wanted)[:, 1:].reshape(-1), ignore_index=-100
        )
        learner.zero_grad()
        loss.backward()
        learner.step()
    return made


def train(
    folder: Path,
    *,
    steps: int = 60,
    broken_from: int | None = None,
    fails_at: int | None = None,
    callbacks: Sequence[Any] = (),
    resume: str | None = None,
    batch: int = 32,
    **settings: Any,
) -> Any:
    """The trainer after a training into ``folder``, its state saved there.

    From step ``broken_from`` on the reward is 0 whatever the answer; at step ``fails_at`` the reward function raises.
    ``resume`` is a checkpoint; ``settings`` are fields of GRPOConfig.
    """
    import torch
    from datasets import Dataset
    from trl import GRPOConfig, GRPOTrainer

    torch.set_num_threads(1)
    chance = random.Random(5)
    prompts = [{"prompt": "".join(chance.choice("0123456789") for _ in range(DIGITS)) + "="} for _ in range(400)]

    def repeats(prompts: list[str], completions: list[str], trainer_state: Any, **_: Any) -> list[float]:
        if fails_at is not None and trainer_state.global_step >= fails_at:
            raise KeyboardInterrupt
        if broken_from is not None and trainer_state.global_step >= broken_from:
            return [0.0] * len(completions)
        return [
            sum(a == b for a, b in zip(said, asked[:DIGITS], strict=False)) / max(len(said), DIGITS)
            for asked, said in zip(prompts, completions, strict=True)
        ]

    given: dict[str, Any] = {
        "output_dir": str(folder), "seed": 1, "max_steps": steps, "per_device_train_batch_size": batch,
        "num_generations": 8, "learning_rate": 3e-4, "lr_scheduler_type": "constant", "max_completion_length": 16,
        "logging_steps": 1, "logging_first_step": True, "report_to": "none", "save_strategy": "no", "bf16": False,
        "use_cpu": True, "gradient_checkpointing": False, "disable_tqdm": True, **settings,
    }  # fmt: skip
    trainer = GRPOTrainer(
        model=model(),
        reward_funcs=[repeats],
        args=GRPOConfig(**given),
        train_dataset=Dataset.from_list(prompts),
        processing_class=tokenizer(),
        callbacks=list(callbacks),
    )
    with quiet(), contextlib.suppress(KeyboardInterrupt):
        trainer.train(resume_from_checkpoint=resume)
        trainer.save_state()
    return trainer


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """The trainer prints its rows on standard output; what is said on standard error stays."""
    with open(os.devnull, "w", encoding="utf-8") as nowhere, contextlib.redirect_stdout(nowhere):
        yield


if __name__ == "__main__":  # one of several processes: tiny.py FOLDER OPTIONS, as JSON
    from rlclinic.hooks.trl import RLClinicCallback

    chosen = json.loads(sys.argv[2])
    watching = RLClinicCallback(**chosen.pop("callback", {}))
    done = train(Path(sys.argv[1]), callbacks=[watching], **chosen)
    print(f"ENDED rank {os.environ.get('RANK', '0')} at {done.state.global_step}", flush=True)
