"""Trains an audio tagger with a prefetcher on a side stream, timed by CUDA events where there is a GPU."""

import torch
import torch.nn as nn
from torch.utils.data import DataLoader, Dataset

torch.manual_seed(0)
torch.backends.cudnn.benchmark = True
torch.set_float32_matmul_precision("high")
use_cuda = torch.cuda.is_available()
device = torch.device("cuda", torch.cuda.current_device()) if use_cuda else torch.device("cpu")


class Clips(Dataset):
    def __len__(self):
        return 80

    def __getitem__(self, i):
        g = torch.Generator().manual_seed(i)
        return torch.randn(1, 8000, generator=g), (torch.rand(20, generator=g) < 0.15).float()


class Prefetcher:
    """Copies the next batch while the current one is trained on."""

    def __init__(self, loader):
        self.loader = iter(loader)
        self.stream = torch.cuda.Stream() if use_cuda else None
        self.preload()

    def preload(self):
        try:
            self.x, self.y = next(self.loader)
        except StopIteration:
            self.x = self.y = None
            return
        if self.stream is None:
            self.x, self.y = self.x.to(device), self.y.to(device)
            return
        with torch.cuda.stream(self.stream):
            self.x = self.x.cuda(non_blocking=True)
            self.y = self.y.cuda(non_blocking=True)
            self.x = self.x.sub_(self.x.mean()).div_(self.x.std() + 1e-5)

    def next(self):
        if self.stream is not None:
            torch.cuda.current_stream().wait_stream(self.stream)
        x, y = self.x, self.y
        if x is not None and self.stream is not None:
            x.record_stream(torch.cuda.current_stream())
            y.record_stream(torch.cuda.current_stream())
        self.preload()
        return x, y


class Timer:
    def __enter__(self):
        if use_cuda:
            self.start = torch.cuda.Event(enable_timing=True)
            self.end = torch.cuda.Event(enable_timing=True)
            self.start.record()
        return self

    def __exit__(self, *exc):
        if use_cuda:
            self.end.record()
            torch.cuda.synchronize()
            self.ms = self.start.elapsed_time(self.end)
        else:
            self.ms = float("nan")


class Tagger(nn.Module):
    def __init__(self):
        super().__init__()
        blocks, width = [], 1
        for out in (32, 64, 128, 256):
            blocks += [nn.Conv1d(width, out, 9, 4, 4), nn.BatchNorm1d(out), nn.GELU()]
            width = out
        self.front = nn.Sequential(*blocks)
        self.encoder = nn.TransformerEncoder(
            nn.TransformerEncoderLayer(256, 8, 512, dropout=0.1, activation="gelu", batch_first=True, norm_first=True),
            num_layers=2,
            enable_nested_tensor=False,
        )
        self.head = nn.Linear(256, 20)

    def forward(self, x):
        return self.head(self.encoder(self.front(x).transpose(1, 2)).mean(1))


model = Tagger().to(device)
optimizer = torch.optim.Adam(model.parameters(), lr=3e-4, capturable=use_cuda)
criterion = nn.BCEWithLogitsLoss(pos_weight=torch.full((20,), 4.0, device=device))
loader = DataLoader(
    Clips(), batch_size=16, shuffle=True, num_workers=2, pin_memory=use_cuda, prefetch_factor=2, drop_last=True
)
prefetcher = Prefetcher(loader)
x, y = prefetcher.next()
step, meter = 0, torch.zeros((), device=device)
while x is not None:
    with Timer() as timer:
        loss = criterion(model(x), y)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        meter += loss.detach()
    step += 1
    print(f"step {step} loss {loss.item():.4f} {timer.ms:.1f} ms")
    x, y = prefetcher.next()
print("mean loss", (meter / step).item())
if use_cuda:
    print(torch.cuda.memory_summary(abbreviated=True))
