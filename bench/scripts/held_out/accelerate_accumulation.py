"""Fine-tunes a sentence-pair encoder with Accelerate: accumulation, tracking, saved states and resuming from one.

Needs transformers, accelerate.
"""

import argparse
import os

import torch
from accelerate import Accelerator, DistributedType
from accelerate.utils import ProjectConfiguration, set_seed
from torch.utils.data import DataLoader, Dataset
from transformers import ElectraConfig, ElectraForSequenceClassification, get_linear_schedule_with_warmup

MAX_GPU_BATCH_SIZE = 8


class Pairs(Dataset):
    def __init__(self, n, seed):
        g = torch.Generator().manual_seed(seed)
        self.items = []
        for _ in range(n):
            a = torch.randint(5, 3000, (int(torch.randint(8, 40, (1,), generator=g)),), generator=g)
            same = bool(torch.rand(1, generator=g) < 0.5)
            b = a.flip(0) if same else torch.randint(5, 3000, a.shape, generator=g)
            self.items.append((torch.cat([torch.tensor([2]), a, torch.tensor([3]), b, torch.tensor([3])]), int(same)))

    def __len__(self):
        return len(self.items)

    def __getitem__(self, i):
        return self.items[i]


def get_dataloaders(accelerator, batch_size):
    def collate_fn(examples):
        max_length = 128 if accelerator.distributed_type == DistributedType.XLA else None
        multiple = 16 if accelerator.mixed_precision == "fp8" else 8 if accelerator.mixed_precision != "no" else None
        length = max_length or max(len(x) for x, _ in examples)
        if multiple is not None:
            length += -length % multiple
        ids = torch.zeros(len(examples), length, dtype=torch.long)
        for row, (x, _) in enumerate(examples):
            ids[row, : len(x)] = x
        return {
            "input_ids": ids,
            "attention_mask": (ids != 0).long(),
            "labels": torch.tensor([y for _, y in examples]),
        }

    train = DataLoader(Pairs(96, 0), shuffle=True, collate_fn=collate_fn, batch_size=batch_size, drop_last=True)
    valid = DataLoader(Pairs(20, 1), shuffle=False, collate_fn=collate_fn, batch_size=batch_size)
    return train, valid


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--mixed_precision", default=None, choices=["no", "fp16", "bf16", "fp8"])
    parser.add_argument("--cpu", action="store_true")
    parser.add_argument("--batch_size", type=int, default=24)
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--resume", default=None)
    args = parser.parse_args()

    batch_size, steps = args.batch_size, 1
    if batch_size > MAX_GPU_BATCH_SIZE:
        steps = batch_size // MAX_GPU_BATCH_SIZE
        batch_size = MAX_GPU_BATCH_SIZE
    accelerator = Accelerator(
        cpu=args.cpu,
        mixed_precision=args.mixed_precision,
        gradient_accumulation_steps=steps,
        project_config=ProjectConfiguration(project_dir="pairs", automatic_checkpoint_naming=True, total_limit=1),
    )
    set_seed(42)
    train, valid = get_dataloaders(accelerator, batch_size)
    model = ElectraForSequenceClassification(
        ElectraConfig(
            vocab_size=3000,
            embedding_size=96,
            hidden_size=192,
            num_hidden_layers=4,
            num_attention_heads=4,
            intermediate_size=768,
        )
    )
    model = model.to(accelerator.device)
    optimizer = torch.optim.AdamW(params=model.parameters(), lr=2e-4)
    scheduler = get_linear_schedule_with_warmup(optimizer, 2, (len(train) * args.epochs) // steps)
    model, optimizer, train, valid, scheduler = accelerator.prepare(model, optimizer, train, valid, scheduler)
    if args.resume:
        accelerator.load_state(args.resume)

    for epoch in range(args.epochs):
        model.train()
        total = torch.zeros((), device=accelerator.device)
        for batch in train:
            with accelerator.accumulate(model):
                loss = model(**batch).loss
                total += loss.detach()
                accelerator.backward(loss)
                if accelerator.sync_gradients:
                    accelerator.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
                scheduler.step()
                optimizer.zero_grad()
        model.eval()
        right = count = 0
        for batch in valid:
            with torch.no_grad():
                outputs = model(**batch)
            guess, gold = accelerator.gather_for_metrics((outputs.logits.argmax(dim=-1), batch["labels"]))
            right += (guess == gold).sum().item()
            count += len(gold)
        accelerator.print(f"epoch {epoch}: loss {total.item() / len(train):.4f} accuracy {right / count:.3f}")
        accelerator.save_state()
    accelerator.wait_for_everyone()
    unwrapped = accelerator.unwrap_model(model)
    unwrapped.save_pretrained(os.path.join("pairs", "model"), save_function=accelerator.save)
    accelerator.end_training()


if __name__ == "__main__":
    main()
