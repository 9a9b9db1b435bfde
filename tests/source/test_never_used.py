"""What a script makes and never uses: each kind beside its twin, and what looks like it and is fine."""

import textwrap

import pytest

from surefoot.source.liveness import dead_stores
from surefoot.source.never_used import never_used
from surefoot.source.parsing import forget_files, parsed


@pytest.fixture
def found(tmp_path):
    def told(source: str) -> list[tuple[str, str]]:
        file = tmp_path / "train.py"
        file.write_text(textwrap.dedent(source))
        forget_files()
        return [(each.kind, each.name) for each in never_used(str(file))]

    return told


TWINS = {
    "loader": """
        train_loader = DataLoader(train, 8)
        val_loader = DataLoader(val, 8)
        fit(train_loader{fixed})
        """,
    "copy of the weights": """
        def fit(model):
            best, kept = 1e9, None
            for epoch in range(3):
                loss = run(model)
                if loss < best:
                    best, kept = loss, copy.deepcopy(model.state_dict())
            {fixed}
            return model
        fit(model)
        """,
    "function that evaluates": """
        @torch.no_grad()
        def accuracy(model, x, y):
            return (model(x).argmax(1) == y).float().mean()
        fit(model)
        {fixed}
        """,
    "mask": """
        def forward(tokens):
            mask = tokens != PAD
            return model(tokens{fixed})
        """,
    "order": """
        for epoch in range(3):
            order = torch.randperm(len(x))
            for at in range(0, len(x), 8):
                step(x[{fixed}at : at + 8])
        """,
    "generator": """
        drawn = torch.Generator().manual_seed(0)
        x = torch.randn(8, 3{fixed})
        fit(x)
        """,
    "loss term": """
        for x, y in batches:
            loss = F.cross_entropy(model(x), y)
            smooth = F.mse_loss(model(x), model(x + 0.1))
            (loss{fixed}).backward()
        """,
    "output of a layer": """
        class Net(nn.Module):
            def forward(self, x):
                seen = self.first(x)
                normed = self.norm(seen)
                return self.last({fixed})
        """,
    "part of the data": """
        train, held = x[:800], x[800:]
        fit(train)
        {fixed}
        """,
    "set of what was seen": """
        seen = set()
        for item in items:
            seen.add(item)
            fit(item{fixed})
        """,
    "state carried by the loop": """
        def fit(model):
            {fixed}
            for x in windows:
                {again}
                out, state = model(x, state)
                step(out)
                state = state.detach()
        """,
}
FIXES = {
    "loader": ", val_loader",
    "copy of the weights": "model.load_state_dict(kept)",
    "function that evaluates": "print(accuracy(model, x, y))",
    "mask": ", mask",
    "order": "order[at]",
    "generator": ", generator=drawn",
    "loss term": " + smooth",
    "output of a layer": "normed",
    "part of the data": "print(measure(held))",
    "set of what was seen": ", item in seen",
    "state carried by the loop": "state = None",
}


def made(kind: str, *, buggy: bool) -> str:
    """The source of a twin."""
    again = "state = None" if buggy else "pass"
    left = "seen" if kind == "output of a layer" else "pass" if TWINS[kind].count("\n        {fixed}") else ""
    left = "pass" if kind in ("copy of the weights", "state carried by the loop") else left
    fixed = left if buggy else FIXES[kind].replace("order[at]", "order[at] if 0 else ")
    return textwrap.dedent(TWINS[kind]).format(fixed=fixed, again=again)


@pytest.mark.parametrize("kind", TWINS)
def test_each_kind_is_told_and_its_twin_is_clean(found, kind):
    assert [each for each, _ in found(made(kind, buggy=True))] == [kind]
    assert found(made(kind, buggy=False)) == []


def test_an_argument_that_a_function_is_given_and_never_reads(found):
    source = """
        mask = (tokens == PAD).unsqueeze(1)
        def loss_of(scores, y, {name}):
            return F.cross_entropy(scores, y)
        fit(loss_of(model(tokens), y, mask))
        """
    assert found(source.format(name="mask")) == [("mask that `loss_of` is given", "mask")]
    assert found(source.format(name="_mask")) == []


@pytest.mark.parametrize(
    ("reads", "kinds"),
    [
        ("", ["mask"]),
        ("Trainer(model, collate)", []),
        ("fit(batch['mask'])", []),
        ("model(**batch)", []),
        ("[t.cuda() for t in batch.values()]", []),
    ],
)
def test_a_key_of_a_sample_that_nothing_names_again(found, reads, kinds):
    source = """
        def collate(samples):
            tokens = pad(samples)
            return {{"tokens": tokens, "mask": tokens != 0}}
        batch = collate(samples)
        fit(batch["tokens"])
        {reads}
        """
    assert [kind for kind, _ in found(source.format(reads=reads))] == kinds


FINE = [
    "out, state = self.gru(x)\nfit(out)",
    "_mask = x != 0\nfit(x)",
    "loss = 0\nlosses = []\nlosses.append(loss)",
    "train, rest = random_split(data, [8, 2])\nfit(train, rest)",
    "first, second = random_split(data, [8, 2])",
    "val_loader = DataLoader(data)\nfit(**globals())",
    "mask = x != 0\ndef later():\n    return mask\nfit(later)",
    "def later():\n    return mask\nmask = x != 0\nfit(later)",
    "mask = None\nfor x in batches:\n    if mask is not None:\n        fit(mask)\n    mask = x.mask != 0",
    "try:\n    mask = x != 0\n    fit(x)\nexcept ValueError:\n    fit(mask)",
    "while True:\n    mask = x != 0\n    if done():\n        break\nfit(mask)",
    "with open(name) as file:\n    mask = file.read() != 0\nfit(mask)",
    "__all__ = ['val_loader']\nval_loader = DataLoader(data)",
    "class Net(nn.Module):\n    def __init__(self):\n        self.register_buffer('mask', torch.tril(x))\n"
    "    def forward(self, q):\n        return F.scaled_dot_product_attention(q, q, q, is_causal=True)",
    "class Mine(pl.LightningModule):\n    @torch.no_grad()\n    def evaluate(self, x):\n        return self(x)",
    "for x in windows:\n    state = None\n    out, state = model(x, state)\n    fit(out)",
]


@pytest.mark.parametrize("source", FINE)
def test_what_looks_like_it_and_is_fine(found, source):
    assert found(source) == []


def dead(tmp_path, source: str) -> list[str]:
    file = tmp_path / "flow.py"
    file.write_text(source)
    forget_files()
    return [f"{each.name.id}:{each.name.lineno}" for each in dead_stores(parsed(str(file)))]


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("a = 1\na = 2\nprint(a)", ["a:1"]),
        ("a = 1\nif b:\n    a = 2\nprint(a)", []),
        ("a = 1\nif b:\n    a = 2\nelse:\n    a = 3\nprint(a)", ["a:1"]),
        ("for i in b:\n    print(a)\n    a = i", []),
        ("for i in b:\n    a = 0\n    print(a)\n    a = i", ["a:4"]),
        ("for i in b:\n    a = i\n    if i:\n        continue\n    print(a)", []),
        ("total = 0\nfor i in b:\n    total += i", ["total:1", "total:3"]),
        ("total = 0\nfor i in b:\n    total += i\nprint(total)", []),
        ("match b:\n    case 1:\n        a = 1\n    case _:\n        a = 2\nprint(a)", []),
        ("a = 1\ndel a", []),
        ("a = f()\ng = lambda: a", ["g:2"]),
    ],
)
def test_which_values_are_read_afterwards(tmp_path, source, expected):
    assert dead(tmp_path, source) == expected
