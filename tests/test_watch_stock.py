"""Trainers and libraries of others run under `watch` to their end, and compute the same, bit for bit."""

import copy
import math
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, Dataset, TensorDataset

from surefoot.records.watched import Watched
from surefoot.watch import watch_call

WORDS = ["the", "cat", "dog", "bird", "sees", "likes", "a", "small", "old", "house", "tree", "and", "runs", "home", "."]
UPDATES = 4
Outputs = dict[str, Any]


# ------------------------------------------------------------------------------------------- small parts


def tokenizer() -> Any:
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    words = ["<pad>", "<eos>", "<unk>", *WORDS]
    plain = Tokenizer(models.WordLevel({word: place for place, word in enumerate(words)}, unk_token="<unk>"))
    plain.pre_tokenizer = pre_tokenizers.Whitespace()
    return PreTrainedTokenizerFast(tokenizer_object=plain, pad_token="<pad>", eos_token="<eos>", unk_token="<unk>")


def llama() -> Any:
    from transformers import LlamaConfig, LlamaForCausalLM

    sizes = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2}
    ids = {"pad_token_id": 0, "eos_token_id": 1, "bos_token_id": 1}
    return LlamaForCausalLM(
        LlamaConfig(vocab_size=32, num_key_value_heads=1, max_position_embeddings=64, **sizes, **ids)
    )


def sentences(count: int) -> list[str]:
    drawn = random.Random(0)
    return [" ".join(drawn.choices(WORDS, k=drawn.randint(4, 9))) for _ in range(count)]


def weights(model: nn.Module) -> dict[str, torch.Tensor]:
    return {name: value.detach().clone() for name, value in model.state_dict().items() if torch.is_tensor(value)}


def logged(trainer: Any) -> list[float]:
    """Losses, rates and metrics that a trainer of transformers logged, without times."""
    timed = ("runtime", "per_second", "total_flos", "num_tokens")
    return [
        value
        for row in trainer.state.log_history
        for name, value in sorted(row.items())
        if isinstance(value, float) and not any(word in name for word in timed)
    ]


def settings(folder: Path) -> dict[str, Any]:
    return {
        "output_dir": str(folder),
        "max_steps": UPDATES,
        "per_device_train_batch_size": 2,
        "gradient_accumulation_steps": 2,
        "learning_rate": 1e-3,
        "logging_steps": 1,
        "save_strategy": "no",
        "report_to": "none",
        "use_cpu": True,
        "disable_tqdm": True,
        "bf16": False,
        "gradient_checkpointing": False,
    }


# ------------------------------------------------------------------------------------------- what is trained


def trl_sft(folder: Path) -> Outputs:
    from datasets import Dataset as Table
    from trl import SFTConfig, SFTTrainer

    rows = Table.from_list([{"text": each} for each in sentences(24)])
    trainer = SFTTrainer(
        llama(),
        args=SFTConfig(**settings(folder), max_length=16),
        train_dataset=rows.select(range(16)),
        eval_dataset=rows.select(range(16, 24)),
        processing_class=tokenizer(),
    )
    trainer.train()
    trainer.evaluate()
    return {"logged": logged(trainer), **weights(trainer.model)}


def trl_dpo(folder: Path) -> Outputs:
    from datasets import Dataset as Table
    from trl import DPOConfig, DPOTrainer

    some = sentences(48)
    rows = Table.from_list(
        [{"prompt": a, "chosen": b, "rejected": c} for a, b, c in zip(some[::3], some[1::3], some[2::3], strict=True)]
    )
    model = llama()
    trainer = DPOTrainer(
        model,
        ref_model=copy.deepcopy(model),
        args=DPOConfig(**settings(folder), max_length=32),
        train_dataset=rows,
        processing_class=tokenizer(),
    )
    trainer.train()
    return {"logged": logged(trainer), **weights(trainer.model)}


def peft_lora(folder: Path) -> Outputs:
    from peft import LoraConfig, get_peft_model

    adapter = LoraConfig(
        r=2, lora_alpha=4, lora_dropout=0.1, target_modules=["q_proj", "v_proj"], task_type="CAUSAL_LM"
    )
    model, words = get_peft_model(llama(), adapter), tokenizer()
    optimizer = torch.optim.AdamW([each for each in model.parameters() if each.requires_grad], lr=1e-2)
    losses = []
    for step in range(UPDATES):
        batch = words(sentences(24)[4 * step : 4 * step + 4], padding=True, return_tensors="pt")
        labels = batch["input_ids"].masked_fill(batch["attention_mask"] == 0, -100)
        loss = model(input_ids=batch["input_ids"], attention_mask=batch["attention_mask"], labels=labels).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    model.eval()
    with torch.no_grad():
        scores = model(input_ids=batch["input_ids"], attention_mask=batch["attention_mask"]).logits
    return {"losses": losses, "scores": scores, **weights(model)}


def hf_trainer(folder: Path) -> Outputs:
    from transformers import DataCollatorForLanguageModeling, Trainer, TrainingArguments

    words = tokenizer()
    rows = [{"input_ids": words(each)["input_ids"]} for each in sentences(24)]
    trainer = Trainer(
        model=llama(),
        args=TrainingArguments(**settings(folder)),
        train_dataset=rows[:16],
        eval_dataset=rows[16:],
        data_collator=DataCollatorForLanguageModeling(words, mlm=False),
    )
    trainer.train()
    trainer.evaluate()
    return {"logged": logged(trainer), **weights(trainer.model)}


def points(count: int = 64) -> TensorDataset:
    x = torch.randn(count, 6)
    return TensorDataset(x, (x[:, 0] > x[:, 1]).long())


def accelerate_loop(folder: Path) -> Outputs:
    from accelerate import Accelerator

    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=2)
    model = nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Dropout(0.1), nn.Linear(16, 2))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    loader = DataLoader(points(), batch_size=8, shuffle=True)
    schedule = torch.optim.lr_scheduler.LinearLR(optimizer, 0.1, 1.0, 4)
    model, optimizer, loader, schedule = accelerator.prepare(model, optimizer, loader, schedule)
    losses = []
    for x, y in loader:
        with accelerator.accumulate(model):
            loss = F.cross_entropy(model(x), y)
            accelerator.backward(loss)
            if accelerator.sync_gradients:
                accelerator.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            schedule.step()
            optimizer.zero_grad()
        losses.append(loss.item())
    model.eval()
    with torch.no_grad():
        scores = accelerator.gather_for_metrics(model(torch.randn(5, 6)))
    return {"losses": losses, "scores": scores, **weights(accelerator.unwrap_model(model))}


def lightning_fit(folder: Path) -> Outputs:
    import lightning as L

    class Classifier(L.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.net, self.seen = nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 2)), []

        def training_step(self, batch: Any, index: int) -> torch.Tensor:
            loss = F.cross_entropy(self.net(batch[0]), batch[1])
            self.log("train_loss", loss)
            self.seen.append(loss.detach())
            return loss

        def validation_step(self, batch: Any, index: int) -> None:
            loss = F.cross_entropy(self.net(batch[0]), batch[1])
            self.log("val_loss", loss)
            self.seen.append(loss.detach())

        def configure_optimizers(self) -> Any:
            optimizer = torch.optim.Adam(self.parameters(), lr=1e-2)
            return {"optimizer": optimizer, "lr_scheduler": torch.optim.lr_scheduler.StepLR(optimizer, 1)}

    model = Classifier()
    trainer = L.Trainer(
        max_epochs=2, accelerator="cpu", logger=False, enable_checkpointing=False, enable_progress_bar=False,
        enable_model_summary=False, gradient_clip_val=1.0, default_root_dir=folder,
    )  # fmt: skip
    trainer.fit(model, DataLoader(points(), batch_size=16, shuffle=True), DataLoader(points(32), batch_size=16))
    return {"losses": model.seen, **weights(model)}


class _Pictures(Dataset):
    """Pictures with random crops and flips, as a data set of timm gives them."""

    def __init__(self, count: int) -> None:
        self.labels = torch.randint(0, 4, (count,))
        self.pictures = torch.randn(count, 3, 20, 20) + self.labels[:, None, None, None]

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        top, left = random.randint(0, 4), int(np.random.randint(0, 5))
        picture = self.pictures[index, :, top : top + 16, left : left + 16]
        return (picture.flip(-1) if random.random() < 0.5 else picture), int(self.labels[index])


class _Block(nn.Module):
    def __init__(self, width: int, drop: float) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(width, width, 3, padding=1, bias=False), nn.BatchNorm2d(width), nn.ReLU(inplace=True),
            nn.Conv2d(width, width, 3, padding=1, bias=False), nn.BatchNorm2d(width),
        )  # fmt: skip
        self.drop = drop

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        added = self.body(x)
        if self.training and self.drop:
            kept = torch.empty(len(x), 1, 1, 1).bernoulli_(1 - self.drop) / (1 - self.drop)
            added = added * kept
        return torch.relu(x + added)


def timm_like(folder: Path) -> Outputs:
    """Mixup, label smoothing, stochastic depth, no decay of norms and biases, cosine with warm-up, an EMA, autocast."""
    model = nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1), _Block(8, 0.0), _Block(8, 0.2), nn.AdaptiveAvgPool2d(1), nn.Flatten(),
        nn.Linear(8, 4),
    )  # fmt: skip
    decayed = [each for each in model.parameters() if each.dim() > 1]
    others = [each for each in model.parameters() if each.dim() <= 1]
    optimizer = torch.optim.AdamW([{"params": decayed}, {"params": others, "weight_decay": 0.0}], lr=5e-3)
    average = copy.deepcopy(model).requires_grad_(False)
    loader = DataLoader(_Pictures(48), batch_size=8, shuffle=True, drop_last=True, num_workers=1)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda n: min((n + 1) / 3, 0.5 + 0.5 * math.cos(n / 6)))
    losses = []
    for x, y in loader:
        share = float(np.random.beta(0.8, 0.8))
        aim = F.one_hot(y, 4).float() * 0.9 + 0.025
        x, aim = share * x + (1 - share) * x.flip(0), share * aim + (1 - share) * aim.flip(0)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = F.cross_entropy(model(x), aim)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        with torch.no_grad():
            for kept, new in zip(average.state_dict().values(), model.state_dict().values(), strict=True):
                kept.copy_(kept.lerp(new, 0.1) if kept.is_floating_point() else new)
        losses.append(loss.item())
    average.eval()
    with torch.no_grad():
        scores = average(torch.randn(6, 3, 16, 16))
    return {"losses": losses, "scores": scores, **weights(model)}


def diffusers_unet(folder: Path) -> Outputs:
    from diffusers import DDPMScheduler, UNet2DModel
    from diffusers.training_utils import EMAModel

    model = UNet2DModel(
        sample_size=8, in_channels=1, out_channels=1, layers_per_block=1, block_out_channels=(8, 16), norm_num_groups=4,
        down_block_types=("DownBlock2D", "AttnDownBlock2D"), up_block_types=("AttnUpBlock2D", "UpBlock2D"),
    )  # fmt: skip
    noises, average = DDPMScheduler(num_train_timesteps=20), EMAModel(model.parameters())
    optimizer, losses = torch.optim.AdamW(model.parameters(), lr=1e-3), []
    for _ in range(UPDATES):
        clean, noise, times = torch.rand(4, 1, 8, 8), torch.randn(4, 1, 8, 8), torch.randint(0, 20, (4,))
        loss = F.mse_loss(model(noises.add_noise(clean, noise, times), times).sample, noise)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        average.step(model.parameters())
        losses.append(loss.item())
    model.eval()
    drawn = torch.randn(2, 1, 8, 8)
    with torch.no_grad():
        for time in (15, 10, 5, 0):
            drawn = noises.step(model(drawn, time).sample, time, drawn).prev_sample
    return {"losses": losses, "drawn": drawn, **weights(model)}


STOCK: dict[Callable[[Path], Outputs], tuple[str, ...]] = {
    trl_sft: ("trl", "datasets"),
    trl_dpo: ("trl", "datasets"),
    peft_lora: ("peft",),
    hf_trainer: ("transformers", "accelerate"),
    accelerate_loop: ("accelerate",),
    lightning_fit: ("lightning",),
    timm_like: (),
    diffusers_unet: ("diffusers",),
}
"""What is trained, and the packages that it needs."""


# ------------------------------------------------------------------------------------------- bare and watched


def drawn() -> list[Any]:
    """The next number of every generator."""
    return [torch.rand(()).item(), random.random(), float(np.random.rand())]


def outputs(program: Callable[[Path], Outputs], folder: Path, *, watched: bool) -> tuple[Outputs, Watched | None]:
    torch.manual_seed(0)
    random.seed(0)
    np.random.seed(0)
    found: Outputs = {}

    def ran() -> None:
        found.update(program(folder))
        found["drawn after it"] = drawn()

    if watched:
        return found, watch_call(ran, name=__file__)
    ran()
    return found, None


def differing(bare: Outputs, seen: Outputs) -> Iterator[str]:
    for name in bare.keys() | seen.keys():
        one, other = bare[name], seen[name]
        if isinstance(one, torch.Tensor):
            if one.dtype != other.dtype or one.numpy(force=True).tobytes() != other.numpy(force=True).tobytes():
                yield name
        elif repr(one) != repr(other):
            yield f"{name}: {one} and {other}"


@pytest.mark.sweep
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("program", STOCK, ids=lambda program: program.__name__)
def test_a_stock_training_is_the_same_when_it_is_watched(program, tmp_path, monkeypatch):
    for package in STOCK[program]:
        pytest.importorskip(package)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    bare, _ = outputs(program, tmp_path / "bare", watched=False)
    seen, record = outputs(program, tmp_path / "watched", watched=True)
    assert list(differing(bare, seen)) == []
    assert record is not None
    assert record.steps >= UPDATES
    assert (record.failure, record.findings.failure) == ("", "")


def test_a_difference_in_the_last_bit_is_seen():
    """Else the test above could not fail."""
    one = torch.ones(3)
    assert list(differing({"w": one}, {"w": one.clone()})) == []
    assert list(differing({"w": one}, {"w": torch.nextafter(one, 2 * one)})) == ["w"]
    assert len(list(differing({"losses": [0.1]}, {"losses": [0.10000000000000002]}))) == 1
