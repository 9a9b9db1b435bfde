"""Reinforcement learning on text: answers are sampled inside the step, judged, and learned from."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from families import family
from torch import nn

from surefoot import Recipe, recipe_of

text_rl = family("text_rl")
WORDS, END = 200, 1


def prompts(samples: int = 8, length: int = 12) -> tuple[torch.Tensor]:
    return (torch.randint(2, WORDS, (samples, length)),)


def gpt2(width: int = 64) -> nn.Module:
    from transformers import GPT2Config, GPT2LMHeadModel

    return GPT2LMHeadModel(
        GPT2Config(vocab_size=WORDS, n_positions=64, n_embd=width, n_layer=2, n_head=4, eos_token_id=END,
                   bos_token_id=0, pad_token_id=0)
    )  # fmt: skip


def reward_of(tokens: torch.Tensor) -> torch.Tensor:
    return (tokens % 7 == 3).float().mean(1)


def log_probabilities(model: nn.Module, tokens: torch.Tensor, after: int) -> torch.Tensor:
    scores = model(tokens).logits[:, after - 1 : -1].log_softmax(-1)
    return scores.gather(2, tokens[:, after:, None]).squeeze(2)


class Pair(nn.Module):
    """A policy and the frozen model it began as."""

    def __init__(self) -> None:
        super().__init__()
        self.policy, self.reference = gpt2(), gpt2().requires_grad_(False)
        self.value = nn.Linear(64, 1)

    def train(self, mode: bool = True) -> Any:
        super().train(mode)
        self.reference.eval()
        return self


@text_rl
def grpo() -> Recipe:
    """Four answers to each prompt by `generate`, judged against each other."""

    def loss(model: Any, batch: Any) -> torch.Tensor:
        asked = batch[0].repeat_interleave(4, 0)
        with torch.no_grad():
            tokens = model.policy.generate(
                asked, attention_mask=torch.ones_like(asked), do_sample=True, max_new_tokens=16
            )
            reference = log_probabilities(model.reference, tokens, asked.shape[1])
        said = tokens[:, asked.shape[1] :]
        mask = ((said == END).cumsum(1) - (said == END).long()) == 0
        groups = reward_of(said).view(-1, 4)
        gain = ((groups - groups.mean(1, keepdim=True)) / (groups.std(1, keepdim=True) + 1e-4)).flatten()
        new = log_probabilities(model.policy, tokens, asked.shape[1])
        kl = torch.exp(reference - new) - (reference - new) - 1
        each = torch.exp(new - new.detach()) * gain[:, None] - 0.04 * kl
        return -((each * mask).sum(1) / mask.sum(1)).mean()

    return recipe_of(Pair, prompts(4), loss=loss)


@text_rl
def ppo() -> Recipe:
    """A step of one's own: sampling word by word until all have ended, then two rounds of updates."""

    def sampled(model: Any, tokens: torch.Tensor) -> torch.Tensor:
        ended = torch.zeros(len(tokens), dtype=torch.bool)
        for _ in range(20):
            scores = model.policy(tokens).logits[:, -1]
            word = torch.multinomial(scores.softmax(-1), 1).squeeze(1).masked_fill(ended, 0)
            tokens, ended = torch.cat([tokens, word[:, None]], 1), ended | (word == END)
            if ended.all():
                break
        return tokens

    def step(model: Any, optimizer: Any, batch: Any) -> torch.Tensor:
        length = batch[0].shape[1]
        with torch.no_grad():
            tokens = sampled(model, batch[0])
            old = log_probabilities(model.policy, tokens, length)
            rewards = -0.1 * (old - log_probabilities(model.reference, tokens, length))
            rewards[:, -1] += reward_of(tokens[:, length:])
            returns = rewards.flip(1).cumsum(1).flip(1)
        for _ in range(2):
            hidden = model.policy.transformer(tokens).last_hidden_state
            values = model.value(hidden[:, length - 1 : -1]).squeeze(-1)
            ratio = torch.exp(log_probabilities(model.policy, tokens, length) - old)
            gain = (returns - values).detach()
            loss = -torch.min(ratio * gain, ratio.clamp(0.8, 1.2) * gain).mean() + 0.5 * F.mse_loss(values, returns)
            optimizer.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
        return loss

    def optimizer(model: nn.Module) -> torch.optim.Optimizer:
        return torch.optim.AdamW([each for each in model.parameters() if each.requires_grad], lr=1e-4)

    return recipe_of(Pair, prompts(), step=step, optimizer=optimizer)


@text_rl
def reinforce() -> Recipe:
    """A recurrent writer that is rewarded for what it drew, through the graph of the drawing itself."""

    class Writer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embed, self.cell, self.head = nn.Embedding(WORDS, 96), nn.GRUCell(96, 96), nn.Linear(96, WORDS)

        def forward(self, word: torch.Tensor) -> Any:
            state, said, chances = word.new_zeros(len(word), 96, dtype=torch.float), [], []
            for _ in range(24):
                state = self.cell(self.embed(word), state)
                choice = torch.distributions.Categorical(logits=self.head(state))
                word = choice.sample()
                said.append(word)
                chances.append(choice.log_prob(word))
            return torch.stack(said, 1), torch.stack(chances, 1)

    def loss(model: nn.Module, batch: Any) -> torch.Tensor:
        said, chances = model(batch[0])
        gain = reward_of(said) - reward_of(said).mean()
        return -(chances * gain[:, None]).mean()

    return recipe_of(Writer, (torch.randint(0, WORDS, (64,)),), loss=loss)


class Captioner(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.eyes, self.embed = nn.Linear(512, 96), nn.Embedding(WORDS, 96)
        self.cell, self.head = nn.LSTMCell(96, 96), nn.Linear(96, WORDS)

    def write(self, image: torch.Tensor, greedy: bool) -> tuple[torch.Tensor, torch.Tensor]:
        state = (self.eyes(image), self.eyes(image))
        word, said, chances = torch.zeros(len(image), dtype=torch.long), [], []
        going = torch.ones(len(image), dtype=torch.bool)
        for _ in range(20):
            state = self.cell(self.embed(word), state)
            scores = self.head(state[0]).log_softmax(-1)
            word = scores.argmax(1) if greedy else torch.multinomial(scores.exp(), 1).squeeze(1)
            chances.append(scores.gather(1, word[:, None]).squeeze(1) * going)
            word = word * going
            going = going & (word != END)
            said.append(word)
            if going.sum() == 0:
                break
        return torch.stack(said, 1), torch.stack(chances, 1)


@text_rl
def self_critical() -> Recipe:
    """A captioner that must beat its own greedy captions."""

    def loss(model: Any, batch: Any) -> torch.Tensor:
        with torch.no_grad():
            plain, _ = model.write(batch[0], True)
        said, chances = model.write(batch[0], False)
        gain = reward_of(said) - reward_of(plain)
        return -(chances.sum(1) * gain).mean()

    return recipe_of(Captioner, (torch.randn(64, 512),), loss=loss)


class Cached(nn.Module):
    """A decoder with a cache of keys and values that grows by one with each word."""

    def __init__(self, width: int = 96) -> None:
        super().__init__()
        self.embed, self.head = nn.Embedding(WORDS, width), nn.Linear(width, WORDS)
        self.parts = nn.ModuleList(nn.Linear(width, 3 * width) for _ in range(3))
        self.out = nn.ModuleList(nn.Linear(width, width) for _ in range(3))

    def forward(self, tokens: torch.Tensor, cache: list[Any] | None = None) -> tuple[torch.Tensor, list[Any]]:
        x, kept = self.embed(tokens), []
        for number, (parts, out) in enumerate(zip(self.parts, self.out, strict=True)):
            q, k, v = (each.unflatten(-1, (4, -1)).transpose(1, 2) for each in parts(x).chunk(3, -1))
            if cache is not None:
                k, v = torch.cat([cache[number][0], k], 2), torch.cat([cache[number][1], v], 2)
            kept.append((k, v))
            looked = F.scaled_dot_product_attention(q, k, v, is_causal=cache is None)
            x = x + out(F.gelu(looked.transpose(1, 2).flatten(2)))
        return self.head(x), kept


def went_on(model: Any, tokens: torch.Tensor, words: int) -> torch.Tensor:
    """The tokens, and so many drawn after them, with the cache that `Cached` returns."""
    with torch.no_grad():
        scores, cache = model(tokens)
        for _ in range(words):
            word = torch.multinomial(scores[:, -1].softmax(-1), 1)
            tokens = torch.cat([tokens, word], 1)
            scores, cache = model(word, cache)
    return tokens


@text_rl
def leave_one_out() -> Recipe:
    """RLOO with a cache by hand: the baseline of an answer is the mean of the others."""

    def loss(model: Any, batch: Any) -> torch.Tensor:
        tokens = went_on(model, batch[0].repeat(4, 1), 24)
        length = batch[0].shape[1]
        rewards = reward_of(tokens[:, length:]).view(4, -1)
        gain = (rewards - (rewards.sum(0) - rewards) / 3).flatten()
        chances = model(tokens[:, :-1])[0].log_softmax(-1).gather(2, tokens[:, 1:, None]).squeeze(2)[:, length - 1 :]
        return -(chances.sum(1) * gain).mean()

    return recipe_of(Cached, prompts(), loss=loss)


@text_rl
def online_preferences() -> Recipe:
    """Two answers by `generate`, the better of which is preferred by DPO."""

    def loss(model: Any, batch: Any) -> torch.Tensor:
        mask = torch.ones_like(batch[0])
        with torch.no_grad():
            one, two = (
                model.policy.generate(
                    batch[0], attention_mask=mask, do_sample=True, min_new_tokens=12, max_new_tokens=12, top_k=50
                )
                for _ in range(2)
            )
        length = batch[0].shape[1]
        first = (reward_of(one[:, length:]) >= reward_of(two[:, length:]))[:, None]
        chosen, rejected = torch.where(first, one, two), torch.where(first, two, one)
        both = torch.cat([chosen, rejected])
        with torch.no_grad():
            before = log_probabilities(model.reference, both, length).sum(1)
        good, bad = (log_probabilities(model.policy, both, length).sum(1) - before).chunk(2)
        return -F.logsigmoid(0.1 * (good - bad)).mean()

    return recipe_of(Pair, prompts(), loss=loss)


@text_rl
def best_of_many() -> Recipe:
    """Expert iteration: answers above the mean are kept and imitated."""

    def loss(model: Any, batch: Any) -> torch.Tensor:
        tokens = went_on(model, batch[0].repeat_interleave(8, 0), 16)
        rewards = reward_of(tokens[:, 12:])
        kept = tokens[rewards > rewards.mean()]
        return F.cross_entropy(model(kept[:, :-1])[0].flatten(0, 1), kept[:, 1:].flatten())

    return recipe_of(Cached, prompts(), loss=loss)
