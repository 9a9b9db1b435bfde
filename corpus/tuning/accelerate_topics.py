"""Topics of short articles under Accelerate: a transformer layer that minds padding, updates of two parts."""

import torch
from accelerate import Accelerator
from accelerate.utils import set_seed
from torch import nn
from torch.utils.data import DataLoader, Dataset

NAMES = ("tax", "tea", "toy", "tram")
PAD, WORDS, LONGEST = 0, 90, 18
ROWS, BATCH, PARTS, EPOCHS, WARM = 288, 12, 2, 4, 6


class Articles(Dataset):
    """Rows of (name of the topic, words), as a reader of files would give them."""

    def __init__(self, count, seed):
        g = torch.Generator().manual_seed(seed)
        self.rows = []
        for _ in range(count):
            topic = int(torch.randint(len(NAMES), (), generator=g))
            length = int(torch.randint(5, LONGEST + 1, (), generator=g))
            common = torch.randint(1, WORDS, (length,), generator=g)
            telling = 1 + 20 * topic + torch.randint(20, (length,), generator=g)
            words = torch.where(torch.rand(length, generator=g) < 0.45, telling, common)
            self.rows.append((NAMES[topic], words))

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, i):
        name, words = self.rows[i]
        return {"words": words, "topic": NAMES.index(name)}


def collate(rows):
    words = nn.utils.rnn.pad_sequence([row["words"] for row in rows], batch_first=True, padding_value=PAD)
    return {"words": words, "topic": torch.tensor([row["topic"] for row in rows])}


class TopicNet(nn.Module):
    def __init__(self, width=32, heads=4):
        super().__init__()
        self.words = nn.Embedding(WORDS, width, padding_idx=PAD)
        self.places = nn.Embedding(LONGEST, width)
        self.attend = nn.MultiheadAttention(width, heads, dropout=0.1, batch_first=True)
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.mlp = nn.Sequential(nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width))
        self.topic = nn.Linear(width, len(NAMES))

    def forward(self, words):
        empty = words == PAD
        x = self.words(words) + self.places(torch.arange(words.shape[1], device=words.device))
        h = self.norm1(x)
        x = x + self.attend(h, h, h, key_padding_mask=empty, need_weights=False)[0]
        x = x + self.mlp(self.norm2(x))
        x = x.masked_fill(empty.unsqueeze(-1), 0.0)
        return self.topic(x.sum(dim=1) / (~empty).sum(dim=1, keepdim=True))


def factor(step):
    return min(1.0, (step + 1) / WARM)


def main():
    set_seed(33)
    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=PARTS)
    net = TopicNet()
    optimizer = torch.optim.AdamW(net.parameters(), lr=4e-3)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, factor)
    train = DataLoader(Articles(ROWS, seed=1), batch_size=BATCH, shuffle=True, collate_fn=collate)
    test = DataLoader(Articles(70, seed=2), batch_size=BATCH, collate_fn=collate)
    net, optimizer, train, test, schedule = accelerator.prepare(net, optimizer, train, test, schedule)
    for epoch in range(EPOCHS):
        net.train()
        losses = []
        for batch in train:
            with accelerator.accumulate(net):
                loss = nn.functional.cross_entropy(net(batch["words"]), batch["topic"])
                accelerator.backward(loss)
                if accelerator.sync_gradients:
                    accelerator.clip_grad_norm_(net.parameters(), 1.0)
                optimizer.step()
                schedule.step()
                optimizer.zero_grad()
            losses.append(accelerator.gather(loss.detach()).mean().item())
        net.eval()
        right = count = 0
        for batch in test:
            with torch.inference_mode():
                guess = net(batch["words"]).argmax(dim=-1)
            guess, topic = accelerator.gather_for_metrics((guess, batch["topic"]))
            right += (guess == topic).sum().item()
            count += len(topic)
        accelerator.print(f"epoch {epoch}: loss {sum(losses) / len(losses):.3f}, right {right / count:.3f}")
    accelerator.save(accelerator.unwrap_model(net).state_dict(), "topics.pt")


if __name__ == "__main__":
    main()
