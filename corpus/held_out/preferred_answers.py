"""Direct preference optimisation of a small recurrent model of answers, against a frozen copy of where it began."""

import argparse
import copy

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset, random_split

VOCAB, PROMPT, ANSWER = 20, 4, 6


class AnswerModel(nn.Module):
    def __init__(self, width=32):
        super().__init__()
        self.embed = nn.Embedding(VOCAB, width)
        self.rnn = nn.GRU(width, width, batch_first=True)
        self.head = nn.Linear(width, VOCAB)

    def forward(self, tokens):
        return self.head(self.rnn(self.embed(tokens))[0])


def make_pairs(count, generator):
    """An answer that goes on counting from the prompt is liked; one that wanders off in its second half is not."""
    start = torch.randint(VOCAB, (count, 1), generator=generator)
    stride = torch.randint(1, 4, (count, 1), generator=generator)
    full = (start + stride * torch.arange(PROMPT + ANSWER)) % VOCAB
    prompt, chosen = full[:, :PROMPT], full[:, PROMPT:].clone()
    slip = torch.rand(count, ANSWER, generator=generator) < 0.15
    chosen[slip] = torch.randint(VOCAB, (int(slip.sum()),), generator=generator)
    rejected = chosen.clone()
    rejected[:, ANSWER // 2 :] = torch.randint(VOCAB, (count, ANSWER // 2), generator=generator)
    return prompt, chosen, rejected


def sequence_logps(model, prompt, answer):
    """Log-probability of every answer, given its prompt."""
    tokens = torch.cat([prompt, answer], dim=1)
    logps = F.log_softmax(model(tokens[:, :-1]), dim=-1)
    picked = logps.gather(-1, tokens[:, 1:].unsqueeze(-1)).squeeze(-1)
    return picked[:, PROMPT - 1 :].sum(dim=1)


def dpo_loss(policy_chosen, policy_rejected, ref_chosen, ref_rejected, beta):
    chosen_reward = beta * (policy_chosen - ref_chosen)
    rejected_reward = beta * (policy_rejected - ref_rejected)
    loss = -F.logsigmoid(chosen_reward - rejected_reward).mean()
    return loss, (chosen_reward > rejected_reward).float().mean()


def fine_tune(model, loader, epochs):
    """Ordinary training on both answers, as the model has seen them in the wild."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    model.train()
    for _ in range(epochs):
        for prompt, chosen, rejected in loader:
            loss = -torch.cat([sequence_logps(model, prompt, a) for a in (chosen, rejected)]).mean() / ANSWER
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    return loss.item()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--beta", type=float, default=0.2)
    parser.add_argument("--lr", type=float, default=1e-3)
    parser.add_argument("--epochs", type=int, default=4)
    args = parser.parse_args()
    torch.manual_seed(17)
    generator = torch.Generator().manual_seed(17)
    data = TensorDataset(*make_pairs(480, generator))
    train_set, valid_set = random_split(data, [400, 80], generator=generator)
    loader = DataLoader(train_set, batch_size=40, shuffle=True)
    valid_loader = DataLoader(valid_set, batch_size=40)

    policy = AnswerModel()
    print(f"fine-tuned to a loss of {fine_tune(policy, loader, epochs=4):.3f}")
    reference = copy.deepcopy(policy).eval()
    reference.requires_grad_(False)
    optimizer = torch.optim.AdamW(policy.parameters(), lr=args.lr, weight_decay=0.0)

    for epoch in range(args.epochs):
        policy.train()
        total = 0.0
        for prompt, chosen, rejected in loader:
            with torch.no_grad():
                ref_chosen = sequence_logps(reference, prompt, chosen)
                ref_rejected = sequence_logps(reference, prompt, rejected)
            policy_chosen = sequence_logps(policy, prompt, chosen)
            policy_rejected = sequence_logps(policy, prompt, rejected)
            loss, _ = dpo_loss(policy_chosen, policy_rejected, ref_chosen, ref_rejected, args.beta)
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(policy.parameters(), 1.0)
            optimizer.step()
            total += loss.item()
        policy.eval()
        preferred = 0.0
        with torch.no_grad():
            for prompt, chosen, rejected in valid_loader:
                pair = [sequence_logps(policy, prompt, a) for a in (chosen, rejected)]
                base = [sequence_logps(reference, prompt, a) for a in (chosen, rejected)]
                preferred += dpo_loss(*pair, *base, args.beta)[1].item() * len(prompt)
        print(f"epoch {epoch + 1} loss {total / len(loader):.4f} preferred {preferred / len(valid_set):.3f}")
    torch.save(policy.state_dict(), "policy.pt")


if __name__ == "__main__":
    main()
