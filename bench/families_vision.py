"""Families of vision models as torchvision has them, written by hand and small; timm's and diffusers' if installed."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from surefoot import Recipe, recipe_of

VISION: dict[str, Callable[[], nn.Module]] = {}


def family(build: Any) -> Any:
    """Adds a model under the name of its class or function."""
    VISION[build.__name__.lower()] = build
    return build


def conv(into: int, out: int, size: int = 3, stride: int = 1, groups: int = 1, act: Any = nn.ReLU) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(into, out, size, stride, size // 2, groups=groups, bias=False),
        nn.BatchNorm2d(out),
        act(inplace=True) if act is not nn.GELU else nn.GELU(),
    )


def headed(*body: nn.Module, width: int) -> nn.Sequential:
    return nn.Sequential(*body, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width, 10))


@family
def alexnet() -> nn.Module:
    return headed(
        nn.Conv2d(3, 32, 11, 4, 2), nn.ReLU(True), nn.MaxPool2d(3, 2), nn.Conv2d(32, 64, 5, padding=2), nn.ReLU(True),
        nn.Conv2d(64, 64, 3, padding=1), nn.ReLU(True), nn.MaxPool2d(3, 2), nn.Dropout(), width=64,
    )  # fmt: skip


@family
def vgg() -> nn.Module:
    body: list[nn.Module] = []
    into = 3
    for width in (16, 32, 64):
        body += [conv(into, width), conv(width, width), nn.MaxPool2d(2)]
        into = width
    return headed(*body, width=64)


class Residual(nn.Module):
    def __init__(self, body: nn.Module, short: nn.Module | None = None, act: bool = True) -> None:
        super().__init__()
        self.body, self.short, self.act = body, short or nn.Identity(), act

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out = self.short(x) + self.body(x)
        return F.relu(out, inplace=True) if self.act else out


def bottleneck(into: int, out: int, stride: int, groups: int = 1) -> nn.Module:
    middle = out // 4 * (2 if groups > 1 else 1)
    body = nn.Sequential(
        conv(into, middle, 1), conv(middle, middle, 3, stride, groups), nn.Conv2d(middle, out, 1), nn.BatchNorm2d(out)
    )
    same = into == out and stride == 1
    return Residual(body, None if same else nn.Sequential(nn.Conv2d(into, out, 1, stride), nn.BatchNorm2d(out)))


@family
def resnet() -> nn.Module:
    return headed(
        conv(3, 16, 7, 2), nn.MaxPool2d(3, 2, 1),
        *(bottleneck(16 if n == 0 else 64, 64, 1 + (n == 2)) for n in range(4)), width=64,
    )  # fmt: skip


@family
def resnext() -> nn.Module:
    return headed(conv(3, 16), *(bottleneck(16 if n == 0 else 64, 64, 1 + (n == 1), 4) for n in range(3)), width=64)


class Squeeze(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.gate = nn.Sequential(
            nn.AdaptiveAvgPool2d(1), nn.Conv2d(width, width // 4, 1), nn.SiLU(True), nn.Conv2d(width // 4, width, 1)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * self.gate(x).sigmoid()


def inverted(into: int, out: int, stride: int, act: Any, squeeze: bool) -> nn.Module:
    middle = 4 * into
    body = nn.Sequential(
        conv(into, middle, 1, act=act),
        conv(middle, middle, 3, stride, middle, act=act),
        Squeeze(middle) if squeeze else nn.Identity(),
        nn.Conv2d(middle, out, 1, bias=False),
        nn.BatchNorm2d(out),
    )
    return Residual(body, act=False) if stride == 1 and into == out else body


@family
def mobilenet_v2() -> nn.Module:
    shape = [(16, 16, 1), (16, 24, 2), (24, 24, 1), (24, 32, 2)]
    return headed(conv(3, 16, 3, 2, act=nn.ReLU6), *(inverted(*each, nn.ReLU6, False) for each in shape), width=32)


@family
def mobilenet_v3() -> nn.Module:
    shape = [(16, 16, 1), (16, 24, 2), (24, 24, 1), (24, 32, 2)]
    return headed(conv(3, 16, 3, 2, act=nn.Hardswish), *(inverted(*e, nn.Hardswish, True) for e in shape), width=32)


@family
def efficientnet() -> nn.Module:
    shape = [(16, 16, 1), (16, 24, 2), (24, 24, 1), (24, 32, 2)]
    return headed(conv(3, 16, 3, 2, act=nn.SiLU), *(inverted(*each, nn.SiLU, True) for each in shape), width=32)


class Dense(nn.Module):
    def __init__(self, into: int, growth: int, layers: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList(
            nn.Sequential(
                nn.BatchNorm2d(into + n * growth), nn.ReLU(True), nn.Conv2d(into + n * growth, growth, 3, padding=1)
            )
            for n in range(layers)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        parts = [x]
        for layer in self.layers:
            parts.append(layer(torch.cat(parts, 1)))
        return torch.cat(parts, 1)


@family
def densenet() -> nn.Module:
    return headed(conv(3, 16, 3, 2), Dense(16, 12, 4), conv(64, 32, 1), nn.AvgPool2d(2), Dense(32, 8, 4), width=64)


class Fire(nn.Module):
    def __init__(self, into: int, out: int) -> None:
        super().__init__()
        self.squeeze = conv(into, out // 4, 1)
        self.one, self.three = conv(out // 4, out // 2, 1), conv(out // 4, out // 2, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.squeeze(x)
        return torch.cat([self.one(x), self.three(x)], 1)


@family
def squeezenet() -> nn.Module:
    return headed(conv(3, 32, 3, 2), Fire(32, 64), nn.MaxPool2d(3, 2, ceil_mode=True), Fire(64, 64), width=64)


class Shuffle(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        half = width // 2
        self.body = nn.Sequential(conv(half, half, 1), nn.Conv2d(half, half, 3, 1, 1, groups=half), conv(half, half, 1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        one, two = x.chunk(2, 1)
        out = torch.cat([one, self.body(two)], 1)
        samples, width, *size = out.shape
        return out.view(samples, 2, width // 2, *size).transpose(1, 2).reshape(samples, width, *size)


@family
def shufflenet() -> nn.Module:
    return headed(conv(3, 48, 3, 2), Shuffle(48), Shuffle(48), width=48)


class Inception(nn.Module):
    def __init__(self, into: int) -> None:
        super().__init__()
        self.one, self.three = conv(into, 16, 1), nn.Sequential(conv(into, 16, 1), conv(16, 32, 3))
        self.five = nn.Sequential(conv(into, 8, 1), conv(8, 8, 5))
        self.pool = nn.Sequential(nn.MaxPool2d(3, 1, 1), conv(into, 8, 1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.cat([self.one(x), self.three(x), self.five(x), self.pool(x)], 1)


@family
def googlenet() -> nn.Module:
    return headed(conv(3, 32, 3, 2), Inception(32), Inception(64), nn.Dropout(0.2), width=64)


class ConvNextBlock(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.deep, self.norm = nn.Conv2d(width, width, 7, padding=3, groups=width), nn.LayerNorm(width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.scale = nn.Parameter(1e-6 * torch.ones(width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out = self.norm(self.deep(x).permute(0, 2, 3, 1))
        return x + (self.scale * self.down(F.gelu(self.up(out)))).permute(0, 3, 1, 2)


@family
def convnext() -> nn.Module:
    return headed(nn.Conv2d(3, 32, 4, 4), ConvNextBlock(32), ConvNextBlock(32), nn.Conv2d(32, 64, 2, 2), width=64)


@family
def mlp_mixer() -> nn.Module:
    class Mixed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.one, self.two = nn.LayerNorm(64), nn.LayerNorm(64)
            self.across = nn.Sequential(nn.Linear(64, 128), nn.GELU(), nn.Linear(128, 64))
            self.along = nn.Sequential(nn.Linear(64, 128), nn.GELU(), nn.Linear(128, 64))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            x = x + self.across(self.one(x).transpose(1, 2)).transpose(1, 2)
            return x + self.along(self.two(x))

    class Mixer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.stem, self.body = nn.Conv2d(3, 64, 8, 8), nn.Sequential(Mixed(), Mixed())
            self.head = nn.Linear(64, 10)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.head(self.body(self.stem(x).flatten(2).transpose(1, 2)).mean(1))

    return Mixer()


@family
def vit() -> nn.Module:
    class Vit(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.stem, self.mark = nn.Conv2d(3, 64, 8, 8), nn.Parameter(torch.zeros(1, 1, 64))
            self.places = nn.Parameter(torch.randn(1, 65, 64) / 8)
            layer = nn.TransformerEncoderLayer(64, 4, 128, activation="gelu", batch_first=True, norm_first=True)
            self.body, self.head = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False), nn.Linear(64, 10)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            x = self.stem(x).flatten(2).transpose(1, 2)
            return self.head(self.body(torch.cat([self.mark.expand(len(x), -1, -1), x], 1) + self.places)[:, 0])

    return Vit()


class Double(nn.Sequential):
    def __init__(self, into: int, out: int) -> None:
        super().__init__(conv(into, out), conv(out, out))


@family
class Unet(nn.Module):
    """Segmentation with skips."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.two, self.low = Double(3, 16), Double(16, 32), Double(32, 64)
        self.up_two, self.up_one = nn.ConvTranspose2d(64, 32, 2, 2), nn.ConvTranspose2d(32, 16, 2, 2)
        self.back_two, self.back_one, self.head = Double(64, 32), Double(32, 16), nn.Conv2d(16, 4, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        one = self.one(x)
        two = self.two(F.max_pool2d(one, 2))
        low = self.up_two(self.low(F.max_pool2d(two, 2)))
        return self.head(self.back_one(torch.cat([self.up_one(self.back_two(torch.cat([low, two], 1))), one], 1)))


@family
class DeepLab(nn.Module):
    """Dilated convolutions beside each other, and a bilinear way back."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(conv(3, 16, 3, 2), conv(16, 32, 3, 2))
        self.wide = nn.ModuleList(nn.Conv2d(32, 16, 3, padding=d, dilation=d) for d in (1, 2, 4))
        self.pool = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Conv2d(32, 16, 1))
        self.head = nn.Conv2d(64, 4, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        low = self.body(x)
        parts = [*(each(low) for each in self.wide), F.interpolate(self.pool(low), low.shape[-2:], mode="bilinear")]
        return F.interpolate(self.head(torch.cat(parts, 1)), x.shape[-2:], mode="bilinear", align_corners=False)


@family
class Fpn(nn.Module):
    """A pyramid of features with a dense head on each level."""

    def __init__(self) -> None:
        super().__init__()
        self.downs = nn.ModuleList([conv(3, 16, 3, 2), conv(16, 32, 3, 2), conv(32, 64, 3, 2)])
        self.sides, self.head = nn.ModuleList(nn.Conv2d(w, 32, 1) for w in (16, 32, 64)), nn.Conv2d(32, 5, 3, padding=1)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        found = []
        for down in self.downs:
            x = down(x)
            found.append(x)
        top = None
        levels = []
        for side, each in zip(reversed(self.sides), reversed(found), strict=True):
            here = side(each)
            top = here if top is None else here + F.interpolate(top, here.shape[-2:], mode="nearest")
            levels.append(self.head(top))
        return tuple(levels)


@family
class Transformed(nn.Module):
    """A spatial transformer: a grid of places that the model computes."""

    def __init__(self) -> None:
        super().__init__()
        self.look, self.body = headed(conv(3, 8, 3, 2), width=8), headed(conv(3, 16), width=16)
        self.look[-1] = nn.Linear(8, 6)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        grid = F.affine_grid(self.look(x).view(-1, 2, 3), list(x.shape), align_corners=False)
        return self.body(F.grid_sample(x, grid, align_corners=False))


@family
def group_norms() -> nn.Module:
    return headed(nn.Conv2d(3, 32, 3), nn.GroupNorm(8, 32), nn.SiLU(), nn.Conv2d(32, 32, 3), nn.InstanceNorm2d(32),
                  nn.PReLU(), width=32)  # fmt: skip


@family
def upscaler() -> nn.Module:
    return nn.Sequential(nn.Conv2d(3, 32, 3, padding=1), nn.LeakyReLU(0.2), nn.Conv2d(32, 48, 3, padding=1),
                         nn.PixelShuffle(4))  # fmt: skip


def images(samples: int = 8) -> tuple[torch.Tensor, ...]:
    return (torch.randn(samples, 3, 64, 64),)


def from_timm(name: str) -> Callable[[], Recipe]:
    def build() -> Recipe:
        import timm

        return recipe_of(lambda: timm.create_model(name, num_classes=10), (torch.randn(2, 3, *timm_size(name)),))

    return build


def timm_size(name: str) -> tuple[int, int]:
    import timm

    return tuple(timm.get_pretrained_cfg(name).input_size[1:])  # type: ignore[return-value]


TIMM = """resnet18 resnetv2_50 efficientnet_b0 mobilenetv3_small_100 convnext_atto vit_tiny_patch16_224
    deit_tiny_patch16_224
    swin_tiny_patch4_window7_224 mixer_s32_224 regnety_002 densenet121 ghostnet_100 mnasnet_050 repvgg_a0
    edgenext_xx_small
    poolformer_s12 levit_128s xcit_nano_12_p16_224 coat_lite_tiny crossvit_tiny_240 pit_ti_224 efficientformer_l1
    fastvit_t8 mobilevit_xxs hrnet_w18_small dla34 cspresnet50 dpn48b vovnet39a hardcorenas_a lcnet_050 tinynet_e
    maxvit_nano_rw_256 gcvit_xxtiny eva02_tiny_patch14_224 beit_base_patch16_224 nfnet_f0 halonet26t lambda_resnet26t
    sequencer2d_s"""


def vision_names() -> list[str]:
    found = [f"vision/{name}" for name in VISION]
    if importlib.util.find_spec("timm") is not None:
        found += [f"timm/{name}" for name in TIMM.split()]
    return found


def case_recipe(case: str) -> Recipe:
    kind, _, name = case.partition("/")
    torch.manual_seed(0)
    return from_timm(name)() if kind == "timm" else recipe_of(VISION[name], images(), name=case)
