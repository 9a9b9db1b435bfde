"""Trains a small Llama-like model on many ranks with fully_shard: mixed precision, checkpointing, accumulation."""

import os
import time
from dataclasses import dataclass

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard


@dataclass
class ModelArgs:
    dim: int = 256
    n_layers: int = 4
    n_heads: int = 8
    n_kv_heads: int = 4
    vocab_size: int = 4096
    seq_len: int = 128
    rope_theta: float = 10000.0


class Attention(nn.Module):
    def __init__(self, a):
        super().__init__()
        self.head = a.dim // a.n_heads
        self.wq = nn.Linear(a.dim, a.n_heads * self.head, bias=False)
        self.wk = nn.Linear(a.dim, a.n_kv_heads * self.head, bias=False)
        self.wv = nn.Linear(a.dim, a.n_kv_heads * self.head, bias=False)
        self.wo = nn.Linear(a.n_heads * self.head, a.dim, bias=False)

    def forward(self, x, rope):
        b, s, _ = x.shape
        q, k, v = (w(x).view(b, s, -1, self.head) for w in (self.wq, self.wk, self.wv))

        def turn(t):
            c = torch.view_as_complex(t.float().reshape(*t.shape[:-1], -1, 2))
            return torch.view_as_real(c * rope[None, :s, None]).flatten(3).type_as(t)

        q, k, v = (t.transpose(1, 2) for t in (turn(q), turn(k), v))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
        return self.wo(y.transpose(1, 2).reshape(b, s, -1))


class TransformerBlock(nn.Module):
    def __init__(self, a):
        super().__init__()
        self.attention_norm, self.ffn_norm = nn.RMSNorm(a.dim), nn.RMSNorm(a.dim)
        self.attention = Attention(a)
        hidden = 256 * ((8 * a.dim // 3 + 255) // 256)
        self.w1, self.w3 = nn.Linear(a.dim, hidden, bias=False), nn.Linear(a.dim, hidden, bias=False)
        self.w2 = nn.Linear(hidden, a.dim, bias=False)

    def forward(self, x, rope):
        h = x + self.attention(self.attention_norm(x), rope)
        y = self.ffn_norm(h)
        return h + self.w2(F.silu(self.w1(y)) * self.w3(y))


class Transformer(nn.Module):
    def __init__(self, a):
        super().__init__()
        self.args = a
        self.tok_embeddings = nn.Embedding(a.vocab_size, a.dim)
        self.register_buffer("rope", torch.empty(a.seq_len, a.dim // a.n_heads // 2, dtype=torch.complex64))
        self.layers = nn.ModuleDict({str(i): TransformerBlock(a) for i in range(a.n_layers)})
        self.norm = nn.RMSNorm(a.dim)
        self.output = nn.Linear(a.dim, a.vocab_size, bias=False)

    def init_weights(self):
        a = self.args
        half = a.dim // a.n_heads // 2
        freqs = a.rope_theta ** (-torch.arange(half, device=self.rope.device).float() / half)
        angle = torch.outer(torch.arange(a.seq_len, device=self.rope.device).float(), freqs)
        self.rope = torch.polar(torch.ones_like(angle), angle)
        for m in self.modules():
            if isinstance(m, nn.Linear):
                nn.init.trunc_normal_(m.weight, std=0.02)
            elif isinstance(m, nn.Embedding):
                nn.init.normal_(m.weight)
            elif isinstance(m, nn.RMSNorm):
                m.reset_parameters()

    def forward(self, tokens):
        h = self.tok_embeddings(tokens)
        for layer in self.layers.values():
            h = layer(h, self.rope)
        return self.output(self.norm(h)).float()


def main(steps=5, batch=2, accumulate=2):
    device_type = "cuda" if torch.cuda.is_available() else "cpu"
    world = int(os.environ["WORLD_SIZE"])
    local = int(os.environ["LOCAL_RANK"])
    device = torch.device(f"{device_type}:{local}" if device_type == "cuda" else "cpu")
    if device_type == "cuda":
        torch.cuda.set_device(device)
    dist.init_process_group("nccl" if device_type == "cuda" else "gloo")
    mesh = init_device_mesh(device_type, (world,), mesh_dim_names=("dp",))
    torch.manual_seed(0)
    args = ModelArgs()
    with torch.device("meta"):
        model = Transformer(args)
    for name, layer in model.layers.items():
        model.layers[name] = checkpoint_wrapper(layer, preserve_rng_state=False)
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    for i, layer in enumerate(model.layers.values()):
        fully_shard(layer, mesh=mesh, mp_policy=policy, reshard_after_forward=i < args.n_layers - 1)
    fully_shard(model, mesh=mesh, mp_policy=policy)
    assert isinstance(model, FSDPModule)
    model.to_empty(device=device_type)
    with torch.no_grad():
        model.init_weights()
    optimizer = torch.optim.AdamW(model.parameters(), lr=8e-4, betas=(0.9, 0.95), weight_decay=0.1, foreach=True)
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda s: min(1.0, (s + 1) / 2))
    generator = torch.Generator().manual_seed(100 + dist.get_rank())
    for step in range(steps):
        began = time.perf_counter()
        optimizer.zero_grad()
        losses = []
        for micro in range(accumulate):
            model.set_requires_gradient_sync(micro == accumulate - 1)
            tokens = torch.randint(0, args.vocab_size, (batch, args.seq_len + 1), generator=generator)
            inputs, labels = tokens[:, :-1].to(device), tokens[:, 1:].to(device)
            logits = model(inputs)
            loss = F.cross_entropy(logits.flatten(0, 1), labels.flatten())
            del logits
            (loss / accumulate).backward()
            losses.append(loss.detach())
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        scheduler.step()
        mean = torch.stack(losses).mean()
        dist.all_reduce(mean, op=dist.ReduceOp.SUM)
        norm = norm.full_tensor()
        if dist.get_rank() == 0:
            memory = torch.cuda.max_memory_reserved() / 2**30 if device_type == "cuda" else 0.0
            print(
                f"step {step + 1} loss {mean.item() / world:.4f} grad_norm {norm.item():.3f} "
                f"memory {memory:.2f}GiB {time.perf_counter() - began:.2f}s"
            )
    state = get_model_state_dict(model, options=StateDictOptions(full_state_dict=True, cpu_offload=True))
    if dist.get_rank() == 0:
        torch.save(state, "fsdp2_full.pt")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
