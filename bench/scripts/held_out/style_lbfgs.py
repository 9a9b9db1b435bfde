"""Trains the pixels of a picture towards a style and a content, with L-BFGS and a closure; the network stays frozen."""

import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.optim as optim

torch.manual_seed(0)
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
torch.set_default_device(device)
imsize = 96


class ContentLoss(nn.Module):
    def __init__(self, target):
        super().__init__()
        self.target = target.detach()

    def forward(self, input):
        self.loss = F.mse_loss(input, self.target)
        return input


def gram_matrix(input):
    a, b, c, d = input.size()
    features = input.view(a * b, c * d)
    return torch.mm(features, features.t()).div(a * b * c * d)


class StyleLoss(nn.Module):
    def __init__(self, target_feature):
        super().__init__()
        self.target = gram_matrix(target_feature).detach()

    def forward(self, input):
        self.loss = F.mse_loss(gram_matrix(input), self.target)
        return input


class Normalization(nn.Module):
    def __init__(self, mean, std):
        super().__init__()
        self.mean = mean.clone().detach().view(-1, 1, 1)
        self.std = std.clone().detach().view(-1, 1, 1)

    def forward(self, img):
        return (img - self.mean) / self.std


cnn = nn.Sequential(
    nn.Conv2d(3, 32, 3, padding=1),
    nn.ReLU(inplace=True),
    nn.Conv2d(32, 32, 3, padding=1),
    nn.ReLU(inplace=True),
    nn.MaxPool2d(2),
    nn.Conv2d(32, 64, 3, padding=1),
    nn.ReLU(inplace=True),
    nn.Conv2d(64, 64, 3, padding=1),
    nn.ReLU(inplace=True),
).eval()


def get_model_and_losses(style_img, content_img):
    normalization = Normalization(torch.tensor([0.485, 0.456, 0.406]), torch.tensor([0.229, 0.224, 0.225]))
    model = nn.Sequential(normalization)
    content_losses, style_losses = [], []
    i = 0
    for layer in cnn.children():
        if isinstance(layer, nn.Conv2d):
            i += 1
            name = f"conv_{i}"
        elif isinstance(layer, nn.ReLU):
            name = f"relu_{i}"
            layer = nn.ReLU(inplace=False)
        else:
            name = f"pool_{i}"
        model.add_module(name, layer)
        if name == "conv_4":
            content_losses.append(ContentLoss(model(content_img)))
            model.add_module("content_loss", content_losses[-1])
        if name.startswith("conv"):
            style_losses.append(StyleLoss(model(style_img)))
            model.add_module(f"style_loss_{i}", style_losses[-1])
    return model, style_losses, content_losses


content = torch.rand(1, 3, imsize, imsize)
style = F.interpolate(torch.rand(1, 3, 12, 12), size=(imsize, imsize), mode="bicubic").clamp(0, 1)
input_img = content.clone()
model, style_losses, content_losses = get_model_and_losses(style, content)
input_img.requires_grad_(True)
model.requires_grad_(False)
optimizer = optim.LBFGS([input_img], max_iter=4)
run = [0]
while run[0] < 16:

    def closure():
        with torch.no_grad():
            input_img.clamp_(0, 1)
        optimizer.zero_grad()
        model(input_img)
        style_score = sum(sl.loss for sl in style_losses) * 1e6
        content_score = sum(cl.loss for cl in content_losses)
        loss = style_score + content_score
        loss.backward()
        run[0] += 1
        if run[0] % 4 == 0:
            print(f"run {run[0]}: Style Loss : {style_score.item():4f} Content Loss: {content_score.item():4f}")
        return style_score + content_score

    optimizer.step(closure)

with torch.no_grad():
    input_img.clamp_(0, 1)
torch.save(input_img.cpu(), "styled.pt")
