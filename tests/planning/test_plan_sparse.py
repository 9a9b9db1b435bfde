"""plan: sparse matrices and gradients, and graphs whose edges follow from the batch, beside torch's allocator."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import surefoot
from surefoot.data.batches import batches_of
from surefoot.errors import WorldError
from surefoot.meters import allocator
from surefoot.step import Step
from surefoot.world import sparse as sparse_calls
from surefoot.world.world import World

pytestmark = [
    pytest.mark.filterwarnings("ignore:Sparse"),
    pytest.mark.skipif(not allocator.available(), reason="needs a C++ compiler"),
]
NODES, EDGES = 200, 1500
PLACES = torch.randint(0, NODES, (2, EDGES), generator=torch.Generator().manual_seed(0))


def allocated(recipe: surefoot.Recipe, steps: int = 2) -> list[int]:
    """The peak of torch's allocator in each of a few real steps."""
    allocator.install()
    try:
        batches, base, peaks = batches_of(recipe), allocator.live_bytes(), []
        step = Step(recipe, world := World())
        for _ in range(steps):
            allocator.reset_peak()
            step(world.take(batches) for _ in range(recipe.micro_batches()))
            peaks.append(allocator.peak_bytes() - base)
        return peaks
    finally:
        allocator.uninstall()


def assert_planned_as_allocated(recipe: surefoot.Recipe) -> surefoot.Plan:
    torch.manual_seed(0)
    plan = surefoot.plan(recipe)
    torch.manual_seed(0)
    first, second = allocated(recipe)
    assert plan.first.peak.peak_bytes == pytest.approx(first, abs=64)
    assert plan.steady.peak.peak_bytes == pytest.approx(second, abs=64)
    return plan


def adjacency(layout: str) -> torch.Tensor:
    made = torch.sparse_coo_tensor(PLACES.clone(), torch.ones(EDGES), (NODES, NODES)).coalesce()
    return made if layout == "coo" else made.to_sparse_csr()


class Convolution(nn.Module):
    """Two layers of a graph convolution."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.two = nn.Linear(32, 64), nn.Linear(64, 8)

    def matrix(self) -> torch.Tensor:
        raise NotImplementedError

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        matrix = self.matrix()
        return matrix @ self.two(F.relu(torch.sparse.mm(matrix, self.one(x[0]))))


def as_buffer(layout: str) -> nn.Module:
    class Graph(Convolution):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("edges", adjacency(layout))

        def matrix(self):
            return self.edges

    return Graph()


def made_in_forward(layout: str) -> nn.Module:
    class Graph(Convolution):
        def __init__(self) -> None:
            super().__init__()
            self.places = PLACES.clone()

        def matrix(self):
            made = torch.sparse_coo_tensor(self.places, torch.ones(EDGES), (NODES, NODES)).coalesce()
            rows = torch.sparse.sum(made, 1).to_dense().clamp(min=1).rsqrt()
            (into, of), values = made.indices(), made.values()
            made = torch.sparse_coo_tensor(made.indices(), rows[into] * values * rows[of], made.shape)
            return made if layout == "coo" else made.coalesce().to_sparse_csr()

    return Graph()


def learned(layout: str) -> nn.Module:
    class Graph(Convolution):
        def __init__(self) -> None:
            super().__init__()
            self.places, self.values = PLACES.clone(), nn.Parameter(torch.rand(EDGES))

        def matrix(self):
            return torch.sparse_coo_tensor(self.places, self.values, (NODES, NODES))

    return Graph()


def graph(model) -> surefoot.Recipe:
    return surefoot.recipe_of(
        model,
        (torch.randn(1, NODES, 32),),
        loss=lambda model, batch: model(batch[0]).square().mean(),
        optimizer=lambda parameters: torch.optim.AdamW(parameters, foreach=False),
    )


@pytest.mark.parametrize("layout", ["coo", "csr"])
@pytest.mark.parametrize("kind", [as_buffer, made_in_forward])
def test_a_graph_convolution_is_planned_to_the_byte(kind, layout):
    assert_planned_as_allocated(graph(lambda: kind(layout)))


def test_learned_weights_of_edges():
    assert_planned_as_allocated(graph(lambda: learned("coo")))


@pytest.mark.parametrize("layout", ["coo", "csr"])
def test_a_sparse_matrix_in_the_batch(layout):
    samples = [(adjacency(layout), torch.randn(NODES, 32)) for _ in range(3)]
    recipe = surefoot.Recipe(
        model=lambda: nn.Linear(32, 64),
        data=lambda: samples,
        collate=lambda rows: tuple(each.clone() for each in rows[0]),
        loss=lambda model, batch: torch.sparse.mm(batch[0], model(batch[1])).square().mean(),
        optimizer=lambda parameters: torch.optim.SGD(parameters, lr=0.1),
        micro_batch_size=1,
        global_batch_tokens=1,
    )
    plan = surefoot.plan(recipe)
    assert plan.first.peak.peak_bytes == pytest.approx(allocated(recipe)[0], abs=64)
    edges = samples[0][0].values().nbytes
    assert plan.first.tally.total("memory/inputs") > NODES * 32 * 4 + edges


OPTIMIZERS = {
    "adam": lambda parameters: torch.optim.SparseAdam(list(parameters), lr=0.1),
    "sgd": lambda parameters: torch.optim.SGD(parameters, lr=0.1),
    "adagrad": lambda parameters: torch.optim.Adagrad(parameters, lr=0.1),
}


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_sparse_gradients_are_planned_to_the_byte(name):
    tokens = torch.randint(0, 500, (16, 32))
    recipe = surefoot.recipe_of(
        lambda: nn.Embedding(500, 16, sparse=True), (tokens,), optimizer=OPTIMIZERS[name], micro_batch_size=16
    )
    plan = assert_planned_as_allocated(recipe)
    assert any("merged as in one batch, and not validated" in note for note in plan.assumptions)


def test_a_sparse_state_that_grows_is_said():
    recipe = surefoot.recipe_of(
        lambda: nn.Embedding(500, 16, sparse=True),
        (torch.arange(500).view(50, 10),),
        optimizer=lambda parameters: torch.optim.SGD(parameters, lr=0.1, momentum=0.9),
        micro_batch_size=5,
    )
    assert any("grew in a step" in note and "not validated" in note for note in surefoot.plan(recipe).assumptions)


def test_a_gradient_that_goes_to_the_largest_of_several():
    class Largest(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer, self.places = nn.Linear(32, 64), PLACES.clone()

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            sent = self.layer(x[0])[self.places[0]]
            into = self.places[1][:, None].expand_as(sent)
            return torch.zeros(NODES, 64).scatter_reduce(0, into, sent, "amax", include_self=False)

    assert_planned_as_allocated(graph(Largest))


class Neighbours(nn.Module):
    """A graph of the points of the batch that are near each other."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.two = nn.Linear(96, 64), nn.Linear(128, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        points = x[0, :, :2].contiguous()
        into, of = (torch.cdist(points, points) < 0.3).nonzero(as_tuple=True)
        nodes = self.one(x[0])
        sent = self.two(torch.cat([nodes[into], nodes[of]], 1))
        return torch.zeros(len(nodes), 8).index_add(0, into, sent)


def test_a_radius_graph_has_the_edges_of_its_batch():
    """As many as the points of the batch have, and not one between any two of them."""
    recipe = surefoot.recipe_of(
        Neighbours, (torch.randn(1, NODES, 96),), loss=lambda model, batch: model(batch[0]).square().mean()
    )
    plan = assert_planned_as_allocated(recipe)
    assert any("read a value of the batch" in note and "not validated" in note for note in plan.assumptions)


def test_a_density_that_a_recipe_sets_is_taken():
    data = (torch.randn(1, NODES, 96),)
    low, high = (
        surefoot.plan(surefoot.recipe_of(Neighbours, data, loss=lambda m, b: m(b[0]).mean(), density=share))
        for share in (0.01, 0.5)
    )
    assert high.steady.peak.peak_bytes > 5 * low.steady.peak.peak_bytes


def test_on_a_gpu_sparse_kernels_are_said_to_be_the_cpus():
    plan = surefoot.plan(graph(lambda: as_buffer("coo")), on="h100-sxm")
    assert any("sparse kernels of a GPU" in note and "not validated" in note for note in plan.assumptions)


def test_operands_that_are_too_large_are_refused_with_a_reason(monkeypatch):
    monkeypatch.setattr(sparse_calls, "LIMIT_BYTES", 1000)
    with pytest.raises(WorldError, match=r"memory of the sparse operator .* its operands take more than"):
        surefoot.plan(graph(lambda: as_buffer("coo")))
