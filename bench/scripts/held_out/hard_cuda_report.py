"""Trains a sparse autoencoder on activations on a GPU that must be there, and reports its memory all along.

Needs numpy.
"""

import gc

import numpy as np
import torch
import torch.nn as nn

assert torch.cuda.is_available(), "this script needs a GPU"
torch.manual_seed(0)
torch.cuda.manual_seed_all(0)
np.random.seed(0)

props = torch.cuda.get_device_properties(0)
print(f"{props.name}: {props.total_memory / 2**30:.1f} GiB, {props.multi_processor_count} SMs")
print(torch.cuda.device_count(), torch.cuda.get_device_capability(), torch.cuda.current_device(), torch.version.cuda)
DTYPE = torch.bfloat16 if torch.cuda.is_bf16_supported() else torch.float16


def report(tag):
    now = torch.cuda.memory_allocated() / 2**20
    peak = torch.cuda.max_memory_allocated() / 2**20
    held = torch.cuda.memory_reserved() / 2**20
    free, total = torch.cuda.mem_get_info()
    print(f"[{tag}] allocated {now:.1f} MiB, peak {peak:.1f}, reserved {held:.1f}, free {free / total:.0%}")


class SparseAutoencoder(nn.Module):
    def __init__(self, d_in, d_hidden, k):
        super().__init__()
        self.k = k
        self.pre_bias = nn.Parameter(torch.zeros(d_in))
        self.latent_bias = nn.Parameter(torch.zeros(d_hidden))
        self.encoder = nn.Linear(d_in, d_hidden, bias=False)
        self.decoder = nn.Linear(d_hidden, d_in, bias=False)
        self.decoder.weight.data = self.encoder.weight.data.T.clone()
        self.register_buffer("last_fired", torch.zeros(d_hidden, dtype=torch.long))

    def forward(self, x):
        pre = self.encoder(x - self.pre_bias) + self.latent_bias
        values, indices = pre.topk(self.k, dim=-1)
        latents = torch.zeros_like(pre).scatter_(-1, indices, torch.relu(values))
        fired = torch.zeros_like(self.last_fired).scatter_(0, indices.flatten(), 1)
        self.last_fired = (self.last_fired + 1) * (1 - fired)
        return self.decoder(latents) + self.pre_bias, latents


sae = SparseAutoencoder(256, 4096, 32).cuda()
optimizer = torch.optim.Adam(sae.parameters(), lr=5e-5, eps=6.25e-10)
report("model")
activations = np.random.standard_normal((8192, 256)).astype(np.float32)
torch.cuda.reset_peak_memory_stats()
start, stop = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
for step in range(8):
    rows = np.random.randint(0, len(activations), 512)
    x = torch.from_numpy(activations[rows]).pin_memory().cuda(non_blocking=True)
    start.record()
    with torch.autocast("cuda", dtype=DTYPE):
        recon, latents = sae(x)
    loss = (recon.float() - x).pow(2).mean() / x.pow(2).mean()
    loss.backward()
    with torch.no_grad():
        w, g = sae.decoder.weight, sae.decoder.weight.grad
        unit = w / w.norm(dim=0, keepdim=True)
        g -= (g * unit).sum(dim=0, keepdim=True) * unit
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    with torch.no_grad():
        sae.decoder.weight /= sae.decoder.weight.norm(dim=0, keepdim=True)
    stop.record()
    torch.cuda.synchronize()
    dead = (sae.last_fired > 4).sum().item()
    print(f"step {step} nmse {loss.item():.4f} dead {dead} {start.elapsed_time(stop):.2f} ms")
    if step % 4 == 3:
        report(f"step {step}")
        del recon, latents, x
        gc.collect()
        torch.cuda.empty_cache()
stats = torch.cuda.memory_stats()
print("peak of active bytes:", stats.get("active_bytes.all.peak", 0), "retries:", stats.get("num_alloc_retries", 0))
torch.save({k: v.cpu() for k, v in sae.state_dict().items()}, "sae.pt")
