# Grades of apples from small pictures. Cosine decay first, then a constant rate whose weights are averaged (SWA).
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.optim.swa_utils import SWALR, AveragedModel, update_bn
from torch.utils.data import DataLoader, Dataset

SEED = 21
EPOCHS = 8
SWA_START = 5
BATCH = 32

torch.manual_seed(SEED)


class Apples(Dataset):
    def __init__(self, n, seed, flip):
        g = torch.Generator().manual_seed(seed)
        self.grade = torch.randint(0, 4, (n,), generator=g)
        self.images = 1.8 * torch.randn(n, 3, 12, 12, generator=g)
        for image, grade in zip(self.images, self.grade.tolist(), strict=True):
            image[grade % 3] += 0.5
            if grade == 3:
                image[:, 3:9, 3:9] += 0.8
        self.flip = flip

    def __len__(self):
        return len(self.grade)

    def __getitem__(self, i):
        image = self.images[i]
        if self.flip and torch.rand(()) < 0.5:
            image = image.flip(-1)
        return image, self.grade[i]


train_loader = DataLoader(Apples(320, seed=1, flip=True), batch_size=BATCH, shuffle=True)
val_loader = DataLoader(Apples(100, seed=2, flip=False), batch_size=BATCH)

model = nn.Sequential(
    nn.Conv2d(3, 16, 3, padding=1, bias=False),
    nn.BatchNorm2d(16),
    nn.ReLU(),
    nn.MaxPool2d(2),
    nn.Conv2d(16, 24, 3, padding=1, bias=False),
    nn.BatchNorm2d(24),
    nn.ReLU(),
    nn.AdaptiveAvgPool2d(1),
    nn.Flatten(),
    nn.Linear(24, 4),
)
swa_model = AveragedModel(model)
optimizer = torch.optim.SGD(model.parameters(), lr=0.08, momentum=0.9, weight_decay=5e-4, nesterov=True)
scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=SWA_START, eta_min=0.03)
swa_scheduler = SWALR(optimizer, swa_lr=0.03, anneal_epochs=1)


@torch.no_grad()
def evaluate(net):
    net.eval()
    loss_sum, right, seen = 0.0, 0, 0
    for images, grade in val_loader:
        logits = net(images)
        loss_sum += F.cross_entropy(logits, grade, reduction="sum").item()
        right += (logits.argmax(1) == grade).sum().item()
        seen += len(grade)
    return loss_sum / seen, right / seen


for epoch in range(EPOCHS):
    model.train()
    for images, grade in train_loader:
        optimizer.zero_grad(set_to_none=True)
        loss = F.cross_entropy(model(images), grade, label_smoothing=0.05)
        loss.backward()
        optimizer.step()
    if epoch >= SWA_START:
        swa_model.update_parameters(model)
        swa_scheduler.step()
    else:
        scheduler.step()
    val_loss, accuracy = evaluate(model)
    print(f"epoch {epoch}: lr {optimizer.param_groups[0]['lr']:.4f}, loss {val_loss:.3f}, accuracy {accuracy:.3f}")

update_bn(train_loader, swa_model)  # the average has never seen a batch: its norms need statistics of their own
val_loss, accuracy = evaluate(swa_model)
print(f"average of {int(swa_model.n_averaged)}: loss {val_loss:.3f}, accuracy {accuracy:.3f}")
torch.save(swa_model.module.state_dict(), "apples_swa.pt")
