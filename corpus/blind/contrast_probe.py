"""Contrastive pretraining (SimCLR style) on unlabelled 1-d signals, then a linear probe on a few labelled ones."""
import torch
import torch.nn as nn
import torch.nn.functional as F

LENGTH = 40
N_CLASSES = 6
N_UNLABELLED, N_LABELLED, N_TEST = 1536, 90, 600
FEATURES = 48
BATCH = 128
EPOCHS = 11
TEMPERATURE = 0.2


def make_signals(n, generator):
    """The class is the pair of frequencies; phase, gain and noise are of no interest."""
    pairs = torch.tensor([(2, 5), (2, 7), (3, 5), (3, 7), (4, 5), (4, 7)], dtype=torch.float32)
    y = torch.randint(N_CLASSES, (n,), generator=generator)
    t = torch.arange(LENGTH) / LENGTH * 2 * torch.pi
    phase = torch.rand(n, 2, 1, generator=generator) * 2 * torch.pi
    waves = torch.sin(pairs[y][:, :, None] * t + phase)
    gain = 0.6 + 0.8 * torch.rand(n, 1, generator=generator)
    x = gain * waves.sum(dim=1) + 0.9 * torch.randn(n, LENGTH, generator=generator)
    return x, y


def augment(x):
    """Circular shift, gain, noise: all leave the frequencies as they are."""
    shift = torch.randint(LENGTH, (len(x), 1))
    index = (torch.arange(LENGTH) + shift) % LENGTH
    gain = 0.7 + 0.6 * torch.rand(len(x), 1)
    return gain * x.gather(1, index) + 0.3 * torch.randn_like(x)


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Sequential(
            nn.Conv1d(1, 24, 9, padding=4, padding_mode="circular"), nn.BatchNorm1d(24), nn.ReLU(),
            nn.Conv1d(24, FEATURES, 5, stride=2, padding=2), nn.BatchNorm1d(FEATURES), nn.ReLU(),
        )

    def forward(self, x):
        return self.conv(x[:, None]).mean(dim=2)


class ContrastiveModel(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = Encoder()
        self.projector = nn.Sequential(nn.Linear(FEATURES, FEATURES), nn.ReLU(), nn.Linear(FEATURES, 24))

    def forward(self, x):
        return F.normalize(self.projector(self.encoder(x)), dim=1)


def nt_xent(z1, z2):
    """Every view has to find the other view of the same signal among all the others."""
    n = len(z1)
    z = torch.cat([z1, z2])
    similarity = z @ z.T / TEMPERATURE
    similarity.fill_diagonal_(float("-inf"))
    partner = (torch.arange(2 * n) + n) % (2 * n)
    return F.cross_entropy(similarity, partner)


@torch.no_grad()
def extract(encoder, x):
    encoder.eval()
    return encoder(x)


def linear_probe(encoder, labelled, test, steps=150):
    """Logistic regression on frozen, standardised features."""
    (x, y), (x_test, y_test) = labelled, test
    h, h_test = extract(encoder, x), extract(encoder, x_test)
    mean, std = h.mean(0), h.std(0) + 1e-6
    h, h_test = (h - mean) / std, (h_test - mean) / std
    torch.manual_seed(1)
    head = nn.Linear(FEATURES, N_CLASSES)
    optimizer = torch.optim.Adam(head.parameters(), lr=0.02, weight_decay=1e-3)
    for _ in range(steps):
        loss = F.cross_entropy(head(h), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return (head(h_test).argmax(1) == y_test).float().mean().item()


def pretrain(x):
    model = ContrastiveModel()
    optimizer = torch.optim.Adam(model.parameters(), lr=4e-3, weight_decay=1e-5)
    for epoch in range(EPOCHS):
        model.train()
        losses = []
        for rows in torch.randperm(len(x)).split(BATCH):
            first, second = augment(x[rows]), augment(x[rows])
            loss = nt_xent(model(first), model(second))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        if epoch % 3 == 1:
            print(f"epoch {epoch + 1}: contrastive loss {sum(losses) / len(losses):.4f}")
    torch.save({"state_dict": model.state_dict(), "epochs": EPOCHS}, "contrast_probe.ckpt")


def load_encoder(path):
    """Only the encoder's part of the checkpoint; the projector is not needed for the probe."""
    state = torch.load(path)["state_dict"]
    state = {k.removeprefix("encoder."): v for k, v in state.items()}
    encoder = Encoder()
    encoder.load_state_dict(state, strict=False)
    return encoder


def main():
    generator = torch.Generator().manual_seed(8)
    unlabelled, _ = make_signals(N_UNLABELLED, generator)
    labelled, test = make_signals(N_LABELLED, generator), make_signals(N_TEST, generator)

    torch.manual_seed(8)
    print(f"before: probe accuracy {linear_probe(Encoder(), labelled, test):.3f} (random encoder)")
    torch.manual_seed(9)
    pretrain(unlabelled)
    encoder = load_encoder("contrast_probe.ckpt")
    print(f"after: probe accuracy {linear_probe(encoder, labelled, test):.3f} (pretrained encoder)")


if __name__ == "__main__":
    main()
