"""A loop full of torch.cuda: properties, memory, events, streams, prefetching, random states."""

import torch
from torch import nn

torch.manual_seed(0)
torch.cuda.manual_seed_all(0)
about = torch.cuda.get_device_properties(0)
print(about.name, about.total_memory, torch.cuda.get_device_capability(), torch.cuda.mem_get_info())
torch.cuda.reset_peak_memory_stats()
torch.backends.cuda.enable_flash_sdp(True)
start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
side = torch.cuda.Stream()
model = nn.Sequential(nn.Linear(384, 1536), nn.GELU(), nn.Linear(1536, 384))
optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
model.to(torch.bfloat16).cuda()
batches = [torch.randn(192, 384) for _ in range(8)]


def fetch(index):
    with torch.cuda.stream(side):
        batch = batches[index].pin_memory().cuda(non_blocking=True).to(torch.bfloat16)
    torch.cuda.current_stream().wait_stream(side)
    batch.record_stream(torch.cuda.current_stream())
    return batch


following = fetch(0)
for step in range(5):
    x, following = following, fetch(step + 1)
    start.record()
    hidden = model(x)
    hidden[:, :16] += 1
    loss = (hidden - x).pow(2).mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad(set_to_none=False)
    end.record()
    torch.cuda.synchronize()
    print(start.elapsed_time(end), torch.cuda.memory_allocated(), torch.cuda.max_memory_allocated(), loss)
    torch.cuda.empty_cache()
    torch.cuda.set_rng_state(torch.cuda.get_rng_state())
