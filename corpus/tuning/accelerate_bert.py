"""Tags tokens with a Hugging Face BERT, prepared and driven by Accelerate."""

import torch
from accelerate import Accelerator
from torch.utils.data import DataLoader, Dataset
from transformers import BertConfig, BertForTokenClassification

torch.manual_seed(0)
VOCAB, LENGTH, TAGS = 50, 12, 4


class Tagged(Dataset):
    """A token's tag is given by its own group and its left neighbour's."""

    def __init__(self, n, seed):
        generator = torch.Generator().manual_seed(seed)
        self.tokens = torch.randint(2, VOCAB, (n, LENGTH), generator=generator)
        left = self.tokens.roll(1, dims=1)
        self.tags = (self.tokens % 2) + 2 * (left % 2)
        self.tags[:, 0] = -100

    def __len__(self):
        return len(self.tokens)

    def __getitem__(self, i):
        return {"input_ids": self.tokens[i], "labels": self.tags[i]}


def main():
    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=2)
    train_loader = DataLoader(Tagged(128, 1), batch_size=8, shuffle=True)
    eval_loader = DataLoader(Tagged(32, 2), batch_size=16)
    config = BertConfig(
        vocab_size=VOCAB, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=64,
        max_position_embeddings=LENGTH, num_labels=TAGS,
    )  # fmt: skip
    model = BertForTokenClassification(config)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    scheduler = torch.optim.lr_scheduler.LinearLR(optimizer, start_factor=1.0, end_factor=0.1, total_iters=16)
    model, optimizer, train_loader, eval_loader, scheduler = accelerator.prepare(
        model, optimizer, train_loader, eval_loader, scheduler
    )
    for epoch in range(2):
        model.train()
        for batch in train_loader:
            with accelerator.accumulate(model):
                loss = model(**batch).loss
                accelerator.backward(loss)
                if accelerator.sync_gradients:
                    accelerator.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
                scheduler.step()
                optimizer.zero_grad()

        model.eval()
        right = count = 0
        for batch in eval_loader:
            with torch.no_grad():
                logits = model(**batch).logits
            guesses, labels = accelerator.gather_for_metrics((logits.argmax(-1), batch["labels"]))
            right += (guesses == labels)[labels != -100].sum().item()
            count += (labels != -100).sum().item()
        accelerator.print(f"epoch {epoch}: accuracy {right / count:.3f}")


if __name__ == "__main__":
    main()
