"""Shapes of training steps: what people write around a model, each at a small size."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence
from torch.utils.checkpoint import checkpoint

from surefoot import Recipe, recipe_of

Builder = Callable[[], Recipe]
STEPS: dict[str, Builder] = {}
REFUSED = {"closure"}
"""Shapes that a recipe refuses when it is built, with a reason: they are no training steps of a recipe."""


def step(build: Builder) -> Builder:
    """Adds a shape under the name of its function."""
    STEPS[build.__name__] = build
    return build


def mlp(width: int = 96, depth: int = 3, out: int = 10) -> nn.Sequential:
    layers = [part for _ in range(depth) for part in (nn.Linear(width, width), nn.GELU())]
    return nn.Sequential(*layers, nn.Linear(width, out))


def rows(samples: int = 64, width: int = 96) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.randn(samples, width), torch.randint(0, 10, (samples,))


def classify(model: nn.Module, batch: Any) -> torch.Tensor:
    return F.cross_entropy(model(batch[0]), batch[1])


def on_rows(model: Callable[[], nn.Module] = mlp, **settings: Any) -> Recipe:
    return recipe_of(model, rows(), **{"loss": classify, **settings})


# ------------------------------------------------------------------------------------------- the loop


@step
def plain() -> Recipe:
    return on_rows()


@step
def accumulation() -> Recipe:
    return recipe_of(mlp, rows(256), loss=classify, micro_batch_size=64, global_batch_tokens=256)


@step
def sum_and_count() -> Recipe:
    def loss(model: nn.Module, batch: Any) -> Any:
        return F.cross_entropy(model(batch[0]), batch[1], reduction="sum"), len(batch[1])

    return recipe_of(mlp, rows(256), loss=loss, micro_batch_size=64, global_batch_tokens=256)


@step
def clipping() -> Recipe:
    return on_rows(max_grad_norm=1.0)


@step
def bf16_mixed() -> Recipe:
    return on_rows(precision="bf16-mixed")


@step
def bf16_true() -> Recipe:
    return on_rows(precision="bf16-true")


@step
def fp16_mixed() -> Recipe:
    return on_rows(precision="16-mixed", max_grad_norm=1.0)


@step
def recompute_full() -> Recipe:
    return on_rows(Blocks, recompute="full")


@step
def recompute_selective() -> Recipe:
    return on_rows(Blocks, recompute="selective")


class Blocks(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(nn.Sequential(nn.Linear(96, 384), nn.GELU(), nn.Linear(384, 96)) for _ in range(4))
        self.head = nn.Linear(96, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for block in self.blocks:
            x = x + block(x)
        return self.head(x)


class Checkpointed(Blocks):
    """Recomputes its blocks by itself."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for block in self.blocks:
            x = x + checkpoint(block, x, use_reentrant=False)
        return self.head(x)


class Reentrant(Blocks):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.blocks[0](x)
        for block in self.blocks[1:]:
            x = checkpoint(block, x, use_reentrant=True)
        return self.head(x)


@step
def own_checkpoints() -> Recipe:
    return on_rows(Checkpointed)


@step
def reentrant_checkpoints() -> Recipe:
    return on_rows(Reentrant)


@step
def frozen_body() -> Recipe:
    def model() -> nn.Module:
        made = mlp()
        made[0].requires_grad_(False)
        made[2].requires_grad_(False)
        return made

    return on_rows(model)


@step
def decay_of_matrices() -> Recipe:
    return on_rows(decay="matrices")


@step
def evaluation() -> Recipe:
    recipe = on_rows()
    return on_rows(evaluation=recipe.data, evaluate_every=1)


# ------------------------------------------------------------------------------------------- optimizers


def optimized(name: str, optimizer: Callable[..., Any], **settings: Any) -> None:
    STEPS[name] = lambda: on_rows(optimizer=lambda parameters: optimizer(parameters, **settings))


optimized("sgd", torch.optim.SGD, lr=1e-2)
optimized("momentum", torch.optim.SGD, lr=1e-2, momentum=0.9, nesterov=True)
optimized("adam_amsgrad", torch.optim.Adam, amsgrad=True)
optimized("adamw_foreach", torch.optim.AdamW, foreach=True)
optimized("adamw_fused", torch.optim.AdamW, fused=True)
optimized("adagrad", torch.optim.Adagrad)
optimized("rmsprop", torch.optim.RMSprop, centered=True, momentum=0.9)
optimized("adafactor", torch.optim.Adafactor)
optimized("nadam", torch.optim.NAdam)
optimized("radam", torch.optim.RAdam)
optimized("adamax", torch.optim.Adamax)
optimized("adadelta", torch.optim.Adadelta)
optimized("rprop", torch.optim.Rprop)
optimized("asgd", torch.optim.ASGD)
optimized("closure", torch.optim.LBFGS)


@step
def muon() -> Recipe:
    def model() -> nn.Module:
        return nn.Sequential(*[nn.Linear(96, 96, bias=False) for _ in range(3)])

    def optimizer(parameters: Any) -> torch.optim.Optimizer:
        return torch.optim.Muon(parameters, lr=1e-3)

    return recipe_of(model, (torch.randn(64, 96),), optimizer=optimizer)


# ------------------------------------------------------------------------------------------- losses


@step
def gradient_penalty() -> Recipe:
    def loss(model: nn.Module, batch: Any) -> torch.Tensor:
        x = batch[0].clone().requires_grad_()
        scores = model(x)
        (gradient,) = torch.autograd.grad(scores.sum(), x, create_graph=True)
        return scores.mean() + 10 * (gradient.norm(dim=1) - 1).square().mean()

    return on_rows(lambda: nn.Sequential(nn.Linear(96, 192), nn.Tanh(), nn.Linear(192, 1)), loss=loss)


@step
def hessian_vector() -> Recipe:
    def loss(model: nn.Module, batch: Any) -> torch.Tensor:
        plain = classify(model, batch)
        parameters = list(model.parameters())
        gradients = torch.autograd.grad(plain, parameters, create_graph=True)
        return plain + 0.01 * sum(each.square().sum() for each in gradients)

    return on_rows(lambda: nn.Sequential(nn.Linear(96, 192), nn.Tanh(), nn.Linear(192, 10)), loss=loss)


@step
def distillation() -> Recipe:
    class Pair(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.student, self.teacher = mlp(), mlp(depth=6).requires_grad_(False)

        def forward(self, x: torch.Tensor) -> Any:
            with torch.no_grad():
                aims = self.teacher(x)
            return self.student(x), aims

    def loss(model: nn.Module, batch: Any) -> torch.Tensor:
        scores, aims = model(batch[0])
        return F.kl_div(F.log_softmax(scores / 2, -1), F.softmax(aims / 2, -1), reduction="batchmean")

    return on_rows(Pair, loss=loss)


@step
def contrastive() -> Recipe:
    def loss(model: nn.Module, batch: Any) -> torch.Tensor:
        one, two = F.normalize(model(batch[0]), dim=-1), F.normalize(model(batch[1]), dim=-1)
        scores = one @ two.t() / 0.07
        aims = torch.arange(len(scores))
        return (F.cross_entropy(scores, aims) + F.cross_entropy(scores.t(), aims)) / 2

    return recipe_of(lambda: mlp(out=64), (torch.randn(128, 96), torch.randn(128, 96)), loss=loss)


@step
def triplets() -> Recipe:
    def loss(model: nn.Module, batch: Any) -> torch.Tensor:
        return F.triplet_margin_loss(*(model(each) for each in batch))

    return recipe_of(lambda: mlp(out=64), tuple(torch.randn(64, 96) for _ in range(3)), loss=loss)


@step
def ctc() -> Recipe:
    def loss(model: nn.Module, batch: Any) -> torch.Tensor:
        sounds, aims, lengths = batch
        scores = model(sounds)[0].log_softmax(-1).transpose(0, 1)
        return F.ctc_loss(scores, aims, torch.full((len(sounds),), scores.shape[0]), lengths)

    batch = torch.randn(8, 60, 32), torch.randint(1, 40, (8, 12)), torch.tensor([12, 9, 12, 3, 5, 12, 7, 8])
    return recipe_of(lambda: nn.LSTM(32, 40, batch_first=True, bidirectional=False), batch, loss=loss)


@step
def focal() -> Recipe:
    def loss(model: nn.Module, batch: Any) -> torch.Tensor:
        plain = F.cross_entropy(model(batch[0]), batch[1], reduction="none")
        return ((1 - torch.exp(-plain)) ** 2 * plain).mean()

    return on_rows(loss=loss)


@step
def hard_examples() -> Recipe:
    def loss(model: nn.Module, batch: Any) -> torch.Tensor:
        return F.cross_entropy(model(batch[0]), batch[1], reduction="none").topk(16).values.mean()

    return on_rows(loss=loss)


@step
def masked_selection() -> Recipe:
    def loss(model: nn.Module, batch: Any) -> torch.Tensor:
        chosen = batch[1] > 4
        return F.cross_entropy(model(batch[0])[chosen], batch[1][chosen])

    return on_rows(loss=loss)


@step
def spectrum() -> Recipe:
    class Denoiser(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.mask = nn.Linear(129, 129)
            self.register_buffer("window", torch.hann_window(256))

        def forward(self, sound: torch.Tensor) -> torch.Tensor:
            waves = torch.stft(sound, 256, 64, window=self.window, return_complex=True)
            waves = waves * self.mask(waves.abs().transpose(1, 2)).sigmoid().transpose(1, 2)
            return torch.istft(waves, 256, 64, window=self.window, length=sound.shape[-1])

    return recipe_of(Denoiser, (torch.randn(8, 4096),))


@step
def fourier_layer() -> Recipe:
    class Fourier(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.randn(16, 16, 12, dtype=torch.cfloat) / 16)
            self.lift, self.drop = nn.Conv1d(1, 16, 1), nn.Conv1d(16, 1, 1)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            x = self.lift(x)
            waves = torch.fft.rfft(x)
            low = torch.einsum("bix,iox->box", waves[..., :12], self.weight)
            waves = torch.cat([low, torch.zeros_like(waves[..., 12:])], -1)
            return self.drop(F.gelu(x + torch.fft.irfft(waves, n=x.shape[-1])))

    return recipe_of(Fourier, (torch.randn(16, 1, 256),))


# ------------------------------------------------------------------------------------------- linear algebra


def covariance(x: torch.Tensor) -> torch.Tensor:
    return x.t() @ x / len(x) + 0.1 * torch.eye(x.shape[1])


def algebra(name: str, use: Callable[[torch.Tensor], torch.Tensor]) -> None:
    """A loss that takes a covariance of outputs through linear algebra."""

    def loss(model: nn.Module, batch: Any) -> torch.Tensor:
        return use(covariance(model(batch[0])))

    STEPS[name] = lambda: recipe_of(lambda: mlp(256, 2, 192), rows(256, 256), loss=loss)


algebra("cholesky", lambda c: -torch.linalg.cholesky(c).diagonal().log().sum())
algebra("eigenvalues", lambda c: torch.linalg.eigvalsh(c).log().square().sum())
algebra("eigenvectors", lambda c: torch.linalg.eigh(c)[1][:, -4:].square().mean() + c.trace())
algebra("solve", lambda c: torch.linalg.solve(c, c[:, :8].detach()).square().mean())
algebra("inverse", lambda c: torch.linalg.inv(c).trace() / 256)
algebra("log_determinant", lambda c: torch.linalg.slogdet(c)[1])
algebra("singular_values", lambda c: torch.linalg.svdvals(c).sum())
algebra("orthogonal", lambda c: torch.linalg.qr(c)[0].abs().mean())
algebra("matrix_exponential", lambda c: torch.matrix_exp(c / 50).mean())


@step
def gaussian_process() -> Recipe:
    class Process(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.scale, self.noise = nn.Parameter(torch.zeros(4)), nn.Parameter(torch.zeros(()))

        def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
            x = x * self.scale.exp()
            kernel = torch.exp(-0.5 * torch.cdist(x, x).square()) + (self.noise.exp() + 1e-2) * torch.eye(len(x))
            factor = torch.linalg.cholesky(kernel)
            solved = torch.cholesky_solve(y[:, None], factor)
            return 0.5 * (y @ solved).squeeze() + factor.diagonal().log().sum()

    def loss(model: nn.Module, batch: Any) -> torch.Tensor:
        return model(*batch)

    return recipe_of(Process, (torch.randn(256, 4), torch.randn(256)), loss=loss)


# ------------------------------------------------------------------------------------------- models with a twist


@step
def lstm() -> Recipe:
    return recurrent(lambda: nn.LSTM(64, 96, 2, batch_first=True, dropout=0.1))


@step
def gru() -> Recipe:
    return recurrent(lambda: nn.GRU(64, 96, 2, batch_first=True, bidirectional=True))


@step
def elman() -> Recipe:
    return recurrent(lambda: nn.RNN(64, 96, batch_first=True))


def recurrent(model: Callable[[], nn.Module]) -> Recipe:
    return recipe_of(model, (torch.randn(16, 40, 64),), loss=lambda model, batch: model(batch[0])[0].square().mean())


@step
def packed() -> Recipe:
    class Tagger(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embed, self.body, self.head = (
                nn.Embedding(500, 64),
                nn.LSTM(64, 64, batch_first=True, bidirectional=True),
                nn.Linear(128, 9),
            )

        def forward(self, tokens: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
            parts = pack_padded_sequence(self.embed(tokens), lengths, batch_first=True, enforce_sorted=False)
            padded, _ = pad_packed_sequence(self.body(parts)[0], batch_first=True, total_length=tokens.shape[1])
            return self.head(padded)

    return recipe_of(Tagger, (torch.randint(0, 500, (16, 30)), torch.randint(5, 30, (16,))))


@step
def lstm_cells() -> Recipe:
    class Cells(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.cell, self.head = nn.LSTMCell(32, 64), nn.Linear(64, 1)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            state = (x.new_zeros(len(x), 64), x.new_zeros(len(x), 64))
            for time in range(x.shape[1]):
                state = self.cell(x[:, time], state)
            return self.head(state[0])

    return recipe_of(Cells, (torch.randn(32, 20, 32),))


@step
def sparse_embedding() -> Recipe:
    def optimizer(parameters: Any) -> torch.optim.Optimizer:
        return torch.optim.SparseAdam(list(parameters), lr=1e-3)

    return recipe_of(
        lambda: nn.Embedding(5000, 32, sparse=True), (torch.randint(0, 5000, (64, 16)),), optimizer=optimizer
    )


@step
def sparse_bag() -> Recipe:
    def optimizer(parameters: Any) -> torch.optim.Optimizer:
        return torch.optim.SGD(parameters, lr=1e-2)

    return recipe_of(
        lambda: nn.EmbeddingBag(5000, 32, sparse=True), (torch.randint(0, 5000, (64, 16)),), optimizer=optimizer
    )


@step
def bag_of_words() -> Recipe:
    return recipe_of(
        lambda: nn.Sequential(nn.EmbeddingBag(5000, 64), nn.Linear(64, 10)), (torch.randint(0, 5000, (128, 16)),)
    )


@step
def mixture_by_masks() -> Recipe:
    class Mixture(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.router, self.experts = nn.Linear(64, 4), nn.ModuleList(nn.Linear(64, 64) for _ in range(4))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            weights, chosen = self.router(x).softmax(-1).max(-1)
            out = torch.zeros_like(x)
            for number, expert in enumerate(self.experts):
                where = chosen == number
                out[where] = expert(x[where]) * weights[where, None]
            return out

    return recipe_of(Mixture, (torch.randn(256, 64),), density=0.25)


@step
def mixture_dense() -> Recipe:
    class Mixture(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.router, self.experts = nn.Linear(64, 4), nn.Parameter(torch.randn(4, 64, 64) / 8)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            weights = self.router(x).softmax(-1)
            return torch.einsum("be,beo->bo", weights, torch.einsum("bi,eio->beo", x, self.experts))

    return recipe_of(Mixture, (torch.randn(256, 64),))


@step
def tied_weights() -> Recipe:
    class Tied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embed, self.body = nn.Embedding(1000, 64), nn.GRU(64, 64, batch_first=True)
            self.head = nn.Linear(64, 1000, bias=False)
            self.head.weight = self.embed.weight

        def forward(self, tokens: torch.Tensor) -> torch.Tensor:
            return self.head(self.body(self.embed(tokens))[0])

    def loss(model: nn.Module, batch: Any) -> torch.Tensor:
        return F.cross_entropy(model(batch[0])[:, :-1].flatten(0, 1), batch[0][:, 1:].flatten())

    return recipe_of(Tied, (torch.randint(0, 1000, (8, 40)),), loss=loss)


@step
def dict_batches() -> Recipe:
    def loss(model: nn.Module, batch: Any) -> torch.Tensor:
        return F.cross_entropy(model(batch["deep"]["x"]), batch["y"])

    x, y = rows()
    return recipe_of(mlp, {"deep": {"x": x}, "y": y}, loss=loss)


@step
def integer_images() -> Recipe:
    def loss(model: nn.Module, batch: Any) -> torch.Tensor:
        return F.cross_entropy(model(batch[0].float().div(255).flatten(1)), batch[1])

    pixels = torch.randint(0, 256, (64, 3, 16, 16), dtype=torch.uint8)
    return recipe_of(lambda: mlp(768, 1), (pixels, torch.randint(0, 10, (64,))), loss=loss)


@step
def batch_norm_and_dropout() -> Recipe:
    def model() -> nn.Module:
        return nn.Sequential(nn.Linear(96, 192), nn.BatchNorm1d(192), nn.ReLU(), nn.Dropout(0.2), nn.Linear(192, 10))

    return on_rows(model)


@step
def spectral_norm() -> Recipe:
    def model() -> nn.Module:
        return nn.Sequential(nn.utils.parametrizations.spectral_norm(nn.Linear(96, 192)), nn.ReLU(), nn.Linear(192, 10))

    return on_rows(model)


@step
def weight_norm() -> Recipe:
    def model() -> nn.Module:
        return nn.Sequential(nn.utils.parametrizations.weight_norm(nn.Linear(96, 192)), nn.ReLU(), nn.Linear(192, 10))

    return on_rows(model)


@step
def orthogonal_weights() -> Recipe:
    def model() -> nn.Module:
        return nn.Sequential(nn.utils.parametrizations.orthogonal(nn.Linear(96, 96)), nn.ReLU(), nn.Linear(96, 10))

    return on_rows(model)


@step
def transformer_layers() -> Recipe:
    class Body(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embed = nn.Embedding(300, 64)
            layer = nn.TransformerEncoderLayer(64, 4, 128, batch_first=True, norm_first=True)
            self.body, self.head = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False), nn.Linear(64, 300)

        def forward(self, tokens: torch.Tensor) -> torch.Tensor:
            mask = nn.Transformer.generate_square_subsequent_mask(tokens.shape[1])
            return self.head(self.body(self.embed(tokens), mask=mask, is_causal=True))

    return recipe_of(Body, (torch.randint(0, 300, (8, 40)),))


@step
def graph_by_index() -> Recipe:
    class Graph(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.one, self.two = nn.Linear(32, 64), nn.Linear(64, 8)

        def forward(self, nodes: torch.Tensor, edges: torch.Tensor) -> torch.Tensor:
            for layer in (self.one, self.two):
                sent = layer(nodes)
                heard = torch.gather(sent, 1, edges[:, :, :1].expand(-1, -1, sent.shape[-1]))
                into = edges[:, :, 1:].expand(-1, -1, sent.shape[-1])
                nodes = F.relu(torch.zeros_like(sent).scatter_add(1, into, heard))
            return nodes.mean(1)

    return recipe_of(Graph, (torch.randn(8, 50, 32), torch.randint(0, 50, (8, 200, 2))))


@step
def quantised_codes() -> Recipe:
    class Codes(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body, self.codes, self.back = nn.Linear(96, 32), nn.Embedding(64, 32), nn.Linear(32, 96)

        def forward(self, x: torch.Tensor) -> Any:
            h = self.body(x)
            nearest = torch.cdist(h, self.codes.weight).argmin(-1)
            codes = self.codes(nearest)
            return self.back(h + (codes - h).detach()), F.mse_loss(codes, h.detach()) + F.mse_loss(h, codes.detach())

    def loss(model: nn.Module, batch: Any) -> torch.Tensor:
        out, more = model(batch[0])
        return F.mse_loss(out, batch[0]) + more

    return on_rows(Codes, loss=loss)


@step
def gumbel() -> Recipe:
    def loss(model: nn.Module, batch: Any) -> torch.Tensor:
        return (F.gumbel_softmax(model(batch[0]), tau=0.5, hard=True) * torch.arange(10.0)).mean()

    return on_rows(loss=loss)


@step
def policy_gradient() -> Recipe:
    def loss(model: nn.Module, batch: Any) -> torch.Tensor:
        policy = torch.distributions.Categorical(logits=model(batch[0]))
        actions = policy.sample()
        return -(policy.log_prob(actions) * batch[0].mean(1)).mean() - 0.01 * policy.entropy().mean()

    return on_rows(loss=loss)


@step
def diffusion() -> Recipe:
    def loss(model: nn.Module, batch: Any) -> torch.Tensor:
        noise, time = torch.randn_like(batch[0]), torch.rand(len(batch[0]), 1)
        return F.mse_loss(model(batch[0] * (1 - time) + noise * time), noise)

    return on_rows(lambda: mlp(out=96), loss=loss)


@step
def branch_on_loss() -> Recipe:
    def loss(model: nn.Module, batch: Any) -> torch.Tensor:
        plain = classify(model, batch)
        return plain * 2 if plain > 100 else plain

    return on_rows(loss=loss)


@step
def logged_values() -> Recipe:
    seen: list[float] = []

    def loss(model: nn.Module, batch: Any) -> torch.Tensor:
        plain = classify(model, batch)
        seen.append(plain.item())
        return plain

    return on_rows(loss=loss)


@step
def averaged_copy() -> Recipe:
    class Averaged(nn.Module):
        """A model that keeps a moving average of itself, as self-supervised training does."""

        def __init__(self) -> None:
            super().__init__()
            self.online, self.target = mlp(out=32), mlp(out=32).requires_grad_(False)

        @torch.no_grad()
        def follow(self) -> None:
            for mine, its in zip(self.target.parameters(), self.online.parameters(), strict=True):
                mine.lerp_(its, 0.01)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.follow()
            with torch.no_grad():
                aims = self.target(x)
            return F.mse_loss(F.normalize(self.online(x), dim=-1), F.normalize(aims, dim=-1))

    return on_rows(Averaged, loss=lambda model, batch: model(batch[0]))


@step
def functional_call() -> Recipe:
    def loss(model: nn.Module, batch: Any) -> torch.Tensor:
        """One inner step of gradient descent, then the loss of what it led to."""
        weights = dict(model.named_parameters())
        inner = F.cross_entropy(torch.func.functional_call(model, weights, (batch[0],)), batch[1])
        gradients = torch.autograd.grad(inner, list(weights.values()), create_graph=True)
        moved = {name: each - 0.1 * g for (name, each), g in zip(weights.items(), gradients, strict=True)}
        return F.cross_entropy(torch.func.functional_call(model, moved, (batch[0],)), batch[1])

    return on_rows(lambda: nn.Sequential(nn.Linear(96, 96), nn.Tanh(), nn.Linear(96, 10)), loss=loss)


@step
def mapped_over_samples() -> Recipe:
    def loss(model: nn.Module, batch: Any) -> torch.Tensor:
        weights = dict(model.named_parameters())

        def one(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
            return F.cross_entropy(torch.func.functional_call(model, weights, (x[None],)), y[None])

        return torch.func.vmap(one)(*batch).mean()

    return on_rows(loss=loss)


@step
def hooks_in_backward() -> Recipe:
    def model() -> nn.Module:
        made = mlp()
        made[0].register_full_backward_hook(
            lambda module, into, out: (into[0].clamp(-1, 1),) if into[0] is not None else None
        )
        for each in made.parameters():
            each.register_hook(lambda gradient: gradient * 0.5)
        return made

    return on_rows(model)


@step
def custom_function() -> Recipe:
    class Rounded(torch.autograd.Function):
        @staticmethod
        def forward(context: Any, x: torch.Tensor) -> torch.Tensor:
            context.save_for_backward(x)
            return x.round()

        @staticmethod
        def backward(context: Any, gradient: torch.Tensor) -> torch.Tensor:
            (x,) = context.saved_tensors
            return gradient * (x.abs() < 1)

    def loss(model: nn.Module, batch: Any) -> torch.Tensor:
        return Rounded.apply(model(batch[0])).square().mean()

    return on_rows(loss=loss)


@step
def unrolled_time() -> Recipe:
    """Truncated backpropagation: the state is carried and detached."""

    def loss(model: nn.Module, batch: Any) -> torch.Tensor:
        state, total = None, torch.zeros(())
        for chunk in batch[0].chunk(4, 1):
            out, state = model(chunk, state)
            state = state.detach()
            total = total + out.square().mean()
        return total

    return recipe_of(lambda: nn.GRU(32, 64, batch_first=True), (torch.randn(16, 32, 32),), loss=loss)
