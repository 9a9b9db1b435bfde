"""Adapters on a vision transformer, and a new head, with peft and a plain loop."""

import torch
import torch.nn.functional as F
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForImageClassification

torch.manual_seed(9)


def tiles(count, seed):
    drawn = torch.Generator().manual_seed(seed)
    kinds = torch.randint(0, 4, (count,), generator=drawn)
    shown = 0.5 * torch.randn(count, 3, 16, 16, generator=drawn)
    for row, kind in enumerate(kinds.tolist()):
        shown[row, :, 4 * kind : 4 * kind + 4] += 1.0
    return torch.utils.data.TensorDataset(shown, kinds)


def main():
    model = AutoModelForImageClassification.from_pretrained("base/vit-tiny", num_labels=4)
    config = LoraConfig(r=4, lora_alpha=16, target_modules="all-linear", modules_to_save=["classifier"])
    model = get_peft_model(model, config)
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=1e-3)
    train = torch.utils.data.DataLoader(tiles(96, 1), batch_size=8, shuffle=True)
    held = torch.utils.data.DataLoader(tiles(32, 2), batch_size=8)
    for epoch in range(2):
        model.train()
        for shown, kinds in train:
            loss = F.cross_entropy(model(pixel_values=shown).logits, kinds)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        model.eval()
        with torch.no_grad():
            right = sum((model(pixel_values=x).logits.argmax(-1) == y).sum().item() for x, y in held)
        print(epoch, right / 32)
    model.save_pretrained("adapter")


main()
