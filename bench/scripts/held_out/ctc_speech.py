"""Trains a speech recogniser: convolutions and a bidirectional GRU under a CTC loss, with utterances of many lengths.

Needs numpy.
"""

import argparse

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

ALPHABET = "_abcdefghijklmnopqrstuvwxyz' "


class Recogniser(nn.Module):
    def __init__(self, n_mels, hidden, n_class):
        super().__init__()
        self.conv = nn.Sequential(
            nn.Conv2d(1, 16, (11, 11), stride=(2, 2), padding=(5, 5)),
            nn.BatchNorm2d(16),
            nn.Hardtanh(0, 20, inplace=True),
            nn.Conv2d(16, 16, (11, 11), stride=(2, 1), padding=(5, 5)),
            nn.BatchNorm2d(16),
            nn.Hardtanh(0, 20, inplace=True),
        )
        self.rnn = nn.GRU(16 * (n_mels // 4), hidden, num_layers=2, bidirectional=True, batch_first=True)
        self.norm = nn.LayerNorm(2 * hidden)
        self.out = nn.Linear(2 * hidden, n_class)

    def forward(self, spectrogram, lengths):
        x = self.conv(spectrogram.unsqueeze(1))
        lengths = (lengths + 1) // 2
        b, c, f, t = x.shape
        mask = torch.arange(t, device=x.device)[None] >= lengths[:, None]
        x = x.masked_fill(mask[:, None, None, :], 0.0)
        x = x.permute(0, 3, 1, 2).reshape(b, t, c * f)
        x, _ = self.rnn(x)
        return F.log_softmax(self.out(self.norm(x)), dim=-1), lengths


def utterance(rng, n_mels):
    words = "".join(rng.choice(list(ALPHABET[1:]), size=rng.integers(5, 20)))
    ids = np.array([ALPHABET.index(c) for c in words])
    frames = np.repeat(ids, rng.integers(6, 10))
    mel = np.sin(np.outer(np.arange(1, n_mels + 1), frames + 1) / 20) + 0.1 * rng.standard_normal((n_mels, len(frames)))
    return mel.astype(np.float32), ids, words


def batches(rng, count, size, n_mels):
    for _ in range(count):
        items = sorted((utterance(rng, n_mels) for _ in range(size)), key=lambda u: -u[0].shape[1])
        longest = items[0][0].shape[1]
        mels = torch.zeros(size, n_mels, longest)
        for row, (mel, _, _) in enumerate(items):
            mels[row, :, : mel.shape[1]] = torch.from_numpy(mel)
        lengths = torch.tensor([mel.shape[1] for mel, _, _ in items])
        targets = torch.cat([torch.from_numpy(ids) for _, ids, _ in items])
        target_lengths = torch.tensor([len(ids) for _, ids, _ in items])
        yield mels, targets, lengths, target_lengths, [w for _, _, w in items]


def collapse(path):
    text, last = "", 0
    for p in path:
        if p != last and p != 0:
            text += ALPHABET[p]
        last = p
    return text


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--hidden", type=int, default=128)
    parser.add_argument("--batch-size", type=int, default=8)
    parser.add_argument("--steps", type=int, default=6)
    parser.add_argument("--n-mels", type=int, default=64)
    args = parser.parse_args()

    torch.manual_seed(7)
    rng = np.random.default_rng(7)
    use_cuda = torch.cuda.is_available()
    device = torch.device("cuda" if use_cuda else "cpu")
    model = Recogniser(args.n_mels, args.hidden, len(ALPHABET)).to(device)
    print("parameters:", sum(p.numel() for p in model.parameters()))
    optimizer = torch.optim.AdamW(model.parameters(), 5e-4)
    scheduler = torch.optim.lr_scheduler.OneCycleLR(
        optimizer, max_lr=5e-4, total_steps=args.steps, anneal_strategy="linear"
    )
    criterion = nn.CTCLoss(blank=0, zero_infinity=True).to(device)

    model.train()
    for step, (mels, targets, lengths, target_lengths, words) in enumerate(
        batches(rng, args.steps, args.batch_size, args.n_mels)
    ):
        mels, targets = mels.to(device, non_blocking=True), targets.to(device, non_blocking=True)
        lengths, target_lengths = lengths.to(device), target_lengths.to(device)
        optimizer.zero_grad()
        log_probs, out_lengths = model(mels, lengths)
        loss = criterion(log_probs.transpose(0, 1), targets, out_lengths, target_lengths)
        loss.backward()
        norm = nn.utils.clip_grad_norm_(model.parameters(), 400)
        optimizer.step()
        scheduler.step()
        guess = collapse(log_probs[0, : out_lengths[0]].argmax(-1).tolist())
        print(f"{step}: loss {loss.item():.3f} norm {norm.item():.2f} ref={words[0]!r} hyp={guess!r}")


if __name__ == "__main__":
    main()
