"""Continues the training of a Hugging Face Llama with adapters of low rank, stops, and goes on from its checkpoint."""

import os

import torch
from torch import nn
from transformers import LlamaConfig, LlamaForCausalLM

VOCAB, LENGTH = 50, 18


class LowRank(nn.Module):
    """A frozen linear layer with a trained detour, which begins at zero."""

    def __init__(self, linear, rank=4, alpha=8.0):
        super().__init__()
        self.linear = linear
        self.linear.weight.requires_grad_(False)
        self.down = nn.Parameter(torch.randn(rank, linear.in_features) * 0.05)
        self.up = nn.Parameter(torch.zeros(linear.out_features, rank))
        self.alpha = alpha / rank

    def forward(self, x):
        return self.linear(x) + self.alpha * (x @ self.down.T @ self.up.T)


def stories(n, moves, seed):
    g = torch.Generator().manual_seed(seed)
    steps = torch.tensor(moves)[torch.randint(len(moves), (n, LENGTH), generator=g)]
    return (steps.cumsum(1) + torch.randint(VOCAB, (n, 1), generator=g)) % VOCAB


def new_model():
    config = LlamaConfig(
        vocab_size=VOCAB,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=4,
        max_position_embeddings=LENGTH,
        attention_dropout=0.05,
        bos_token_id=0,
        eos_token_id=0,
    )
    return LlamaForCausalLM(config)


def add_adapters(model):
    model.requires_grad_(False)
    for layer in model.model.layers:
        layer.self_attn.q_proj = LowRank(layer.self_attn.q_proj)
        layer.self_attn.v_proj = LowRank(layer.self_attn.v_proj)
        layer.mlp.down_proj = LowRank(layer.mlp.down_proj)
    return [p for p in model.parameters() if p.requires_grad]


def held_out_loss(model, rows):
    model.eval()
    with torch.no_grad():
        value = model(input_ids=rows, labels=rows).loss.item()
    model.train()
    return value


def learn(model, rows, optimizer, schedule, steps, generator, batch=16):
    model.train()
    for _ in range(steps):
        ids = rows[torch.randint(len(rows), (batch,), generator=generator)]
        loss = model(input_ids=ids, labels=ids).loss
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_([p for p in model.parameters() if p.requires_grad], 1.0)
        optimizer.step()
        schedule.step()
    return loss.item()


def make_optimizer(parameters, lr, total):
    optimizer = torch.optim.AdamW(parameters, lr=lr)
    return optimizer, torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.1, total_iters=total)


def main():
    torch.manual_seed(303)
    order = torch.Generator().manual_seed(303)
    model = new_model()
    optimizer, schedule = make_optimizer(model.parameters(), 5e-3, 20)
    print("first stories", learn(model, stories(400, [1, 2], seed=1), optimizer, schedule, 20, order))

    rows, fresh = stories(400, [1, 3], seed=2), stories(40, [1, 3], seed=3)
    adapters = add_adapters(model)
    optimizer, schedule = make_optimizer(adapters, 2e-2, 30)
    print("other stories", learn(model, rows, optimizer, schedule, 15, order), held_out_loss(model, fresh))
    state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "schedule": schedule.state_dict()}
    torch.save(state | {"order": order.get_state()}, "stories.tmp")
    os.replace("stories.tmp", "stories.pt")

    state = torch.load("stories.pt")
    model = new_model()
    adapters = add_adapters(model)
    optimizer, schedule = make_optimizer(adapters, 2e-2, 30)
    model.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])
    schedule.load_state_dict(state["schedule"])
    order.set_state(state["order"])
    print("went on", learn(model, rows, optimizer, schedule, 15, order), held_out_loss(model, fresh))


if __name__ == "__main__":
    main()
