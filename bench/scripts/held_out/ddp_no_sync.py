"""Trains a residual network on many ranks with DistributedDataParallel and accumulation under no_sync."""

import argparse
import contextlib
import os

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.distributed.elastic.multiprocessing.errors import record
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


class Bottleneck(nn.Module):
    def __init__(self, i, mid, stride=1):
        super().__init__()
        o = mid * 4
        self.body = nn.Sequential(
            nn.Conv2d(i, mid, 1, bias=False),
            nn.BatchNorm2d(mid),
            nn.ReLU(inplace=True),
            nn.Conv2d(mid, mid, 3, stride, 1, bias=False),
            nn.BatchNorm2d(mid),
            nn.ReLU(inplace=True),
            nn.Conv2d(mid, o, 1, bias=False),
            nn.BatchNorm2d(o),
        )
        self.skip = nn.Conv2d(i, o, 1, stride, bias=False) if stride > 1 or i != o else nn.Identity()

    def forward(self, x):
        return F.relu(self.body(x) + self.skip(x))


def build():
    return nn.Sequential(
        nn.Conv2d(3, 32, 7, 2, 3, bias=False),
        nn.BatchNorm2d(32),
        nn.ReLU(inplace=True),
        nn.MaxPool2d(3, 2, 1),
        Bottleneck(32, 32),
        Bottleneck(128, 48, 2),
        Bottleneck(192, 64, 2),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(256, 50),
    )


def reduce_mean(value):
    out = value.detach().clone()
    dist.all_reduce(out)
    return out / dist.get_world_size()


@record
def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch-size", type=int, default=8, help="of one rank")
    parser.add_argument("--accumulate", type=int, default=2)
    parser.add_argument("--updates", type=int, default=5)
    parser.add_argument("--sync-bn", action="store_true")
    args = parser.parse_args()

    use_cuda = torch.cuda.is_available()
    dist.init_process_group(backend="nccl" if use_cuda else "gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    local_rank = int(os.environ["LOCAL_RANK"])
    if use_cuda:
        torch.cuda.set_device(local_rank)
    device = torch.device("cuda", local_rank) if use_cuda else torch.device("cpu")
    torch.manual_seed(13)
    model = build()
    if args.sync_bn and use_cuda:
        model = nn.SyncBatchNorm.convert_sync_batchnorm(model)
    model = model.to(device)
    model = DistributedDataParallel(
        model,
        device_ids=[local_rank] if use_cuda else None,
        gradient_as_bucket_view=True,
        bucket_cap_mb=2,
        broadcast_buffers=False,
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1 * world, momentum=0.9, weight_decay=1e-4)
    warmup = torch.optim.lr_scheduler.LinearLR(optimizer, 0.1, total_iters=2)
    cosine = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, args.updates)
    scheduler = torch.optim.lr_scheduler.SequentialLR(optimizer, [warmup, cosine], milestones=[2])

    data = TensorDataset(torch.randn(256, 3, 64, 64), torch.randint(0, 50, (256,)))
    sampler = DistributedSampler(data, shuffle=True, drop_last=True)
    loader = DataLoader(data, args.batch_size, sampler=sampler, pin_memory=use_cuda, drop_last=True)

    updates, micro, epoch = 0, 0, 0
    model.train()
    while updates < args.updates:
        sampler.set_epoch(epoch)
        for x, y in loader:
            x, y = x.to(device, non_blocking=True), y.to(device, non_blocking=True)
            micro += 1
            last = micro % args.accumulate == 0
            with contextlib.nullcontext() if last else model.no_sync():
                loss = F.cross_entropy(model(x), y)
                (loss / args.accumulate).backward()
            if not last:
                continue
            optimizer.step()
            scheduler.step()
            optimizer.zero_grad(set_to_none=True)
            updates += 1
            mean = reduce_mean(loss)
            if rank == 0:
                print(f"update {updates} loss {mean.item():.4f} lr {scheduler.get_last_lr()[0]:.4f}", flush=True)
            if updates == args.updates:
                break
        epoch += 1
    dist.barrier()
    if rank == 0:
        torch.save({"model": model.module.state_dict(), "updates": updates}, "ddp_last.pt")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
