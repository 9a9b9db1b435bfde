"""What a raised error is explained as: the cause, and the lines that made what met."""

import pytest

from surefoot.debug.errors.causes import cause_of
from surefoot.records.explanation import FailedModule, Met, Place, Raised
from tests.debug.errors.conftest import lines_of

NET = """
class Net(nn.Module):
    def __init__(self, width=8):
        super().__init__()
        self.first = nn.Linear(4, width)
        self.head = nn.Linear(6, 2)

    def forward(self, x):
        h = torch.relu(self.first(x))
        return self.head(h)


"""
BACKWARD = {
    "in place": (
        "h = torch.sigmoid(layer(x))\nh += 1\nh.sum().backward()\n",
        "`add_` on line 6 changes in place a tensor that `sigmoid` on line 5",
    ),
    "in place, by an update": (
        "optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)\n"
        "layer(x).sum().backward()\n"
        "loss = layer(layer(x)).sum()\noptimizer.step()\nloss.backward()\n",
        "The optimizer's step on line 8 changed parameters in place",
    ),
    "backward twice": (
        "loss = layer(x).square().sum()\nloss.backward()\nloss.backward()\n",
        "`loss` had its backward before (line 6)",
    ),
    "state carried over": (
        "h = torch.zeros(2, 4)\nfor _ in range(2):\n    h = torch.tanh(layer(h))\n    h.sum().backward()\n",
        "`h` comes from an earlier iteration",
    ),
    "sum carried over": (
        "loss = 0.0\nfor _ in range(2):\n    h = layer(x)\n    loss = loss + h.square().mean()\n    loss.backward()\n",
        "`loss` comes from an earlier iteration",
    ),
    "shared graph": (
        "h = torch.tanh(layer(x))\na = h.sum()\nb = h.square().sum()\na.backward()\nb.backward()\n",
        "The graph of `h` was freed by an earlier backward (line 8)",
    ),
    "detached": ("h = layer(x).detach()\nloss = h.sum()\nloss.backward()\n", "`detach` on line 5"),
    "no_grad": ("with torch.no_grad():\n    loss = layer(x).sum()\nloss.backward()\n", "`no_grad` or `inference_mode`"),
    "not a scalar": ("loss = layer(x).square()\nloss.backward()\n", "`loss` (2, 4) is not a scalar"),
}


@pytest.mark.parametrize("case", BACKWARD)
def test_a_backward_that_fails_names_the_lines_before_it(explained, case):
    source, said = BACKWARD[case]
    found = explained("layer, x = nn.Linear(4, 4), torch.ones(2, 4)\n" + source)
    assert found.cause is not None
    assert said in found.cause.said


def test_a_layer_names_its_input_its_weight_and_the_lines_that_made_both(explained):
    found = explained(NET + "model = Net()\nmodel(torch.ones(3, 4))\n")
    assert found.raised.module == FailedModule(
        "head", "Linear", found.raised.module.made, (("in_features", 6), ("out_features", 2))
    )
    assert "`head` (Linear) takes 6 features and gets 8: its input `h` (3, 8)" in found.cause.said
    assert {8, 9, 12} <= lines_of(found)  # first, head, h


def test_a_width_given_from_outside_leads_to_the_line_that_gives_it(explained):
    source = (
        NET.replace("nn.Linear(6, 2)", "nn.Linear(width + 1, 2)") + "model = Net(width=5)\nmodel(torch.ones(3, 4))\n"
    )
    assert 16 in lines_of(explained(source))


def test_a_batch_leads_to_the_data_set_that_made_it(explained):
    source = """
class Rows(torch.utils.data.Dataset):
    def __len__(self):
        return 4

    def __getitem__(self, index):
        row = torch.ones(3)
        label = index + 1
        return row, label

layer = nn.Linear(3, 4)
for rows, labels in torch.utils.data.DataLoader(Rows(), batch_size=4):
    F.cross_entropy(layer(rows), labels)
"""
    found = explained(source)
    assert "The target `labels` (4,) has class 4. It holds 1 to 4." in found.cause.said
    assert 11 in lines_of(found)


def test_a_batch_leads_to_its_loader(explained):
    source = """
rows = torch.utils.data.TensorDataset(torch.ones(9, 3))
loader = torch.utils.data.DataLoader(rows, batch_size=4)
norm = nn.BatchNorm1d(3)
for (x,) in loader:
    norm(x)
"""
    found = explained(source)
    assert "averages over the batch, and `x` (1, 3) has one value per channel" in found.cause.said
    assert 6 in lines_of(found)


def test_a_dtype_leads_through_cat_and_expand_to_the_line_that_made_it(explained):
    source = """
x = torch.ones(2, 3, dtype=torch.float64)
own = x.unsqueeze(1).expand_as(torch.ones(2, 4, 3))
both = torch.cat([own, own - 1], dim=-1)
nn.Linear(6, 2)(both)
"""
    assert 5 in lines_of(explained(source))


def test_a_range_leads_to_the_tensor_whose_size_it_has(explained):
    source = """
places = nn.Embedding(5, 2)
def look(tokens):
    return places(torch.arange(tokens.shape[1]))
def batch(length):
    return torch.zeros(1, length)
tokens = batch(9)
look(tokens)
"""
    found = explained(source)
    assert "holds 0 to 8" in found.cause.said
    assert 10 in lines_of(found)


@pytest.mark.parametrize(("given", "is_named"), [("", True), ("width=7", False), ("7", False)])
def test_a_number_that_nobody_gave_leads_to_its_default(explained, given, is_named):
    net = NET.replace("nn.Linear(6, 2)", "nn.Linear(width + 1, 2)")
    assert (6 in lines_of(explained(f"{net}model = Net({given})\nmodel(torch.ones(3, 4))\n"))) == is_named


def test_a_value_that_is_none_leads_to_the_return_that_gives_none_and_its_condition(explained):
    source = """
class Net(nn.Linear):
    def forward(self, x, targets=None):
        scores = super().forward(x)
        if targets is None:
            return scores, None
        return scores, F.mse_loss(scores, targets)

model = Net(2, 2)
scores, loss = model(torch.ones(1, 2))
loss.backward()
"""
    found = explained(source)
    assert found.cause.said == "`loss` is None: line 9 returns it, under `if targets is None:`."
    assert {8, 9, 13} <= lines_of(found)


CALLS = {
    "indices": ("nn.Embedding(5, 2)(torch.tensor([7]))", "Embedding has 5 rows, 0 to 4"),
    "too many asked for": (
        "x = torch.ones(2, 3)\nx.topk(5)",
        "`topk` asks for 5 in dimension -1 of `x` (2, 3), which has 3",
    ),
    "unsigned indices": (
        "nn.Embedding(5, 2)(torch.ones(2, dtype=torch.uint16))",
        "is uint16. Embedding looks up rows by number",
    ),
    "a tuple as a tensor": (
        "both = nn.GRU(3, 4)(torch.ones(2, 3))\nboth[:, -1]",
        "`both` is a tuple of 2 tensors, (2, 4) and (1, 4), not a tensor",
    ),
    "a tuple given to a layer": (
        "both = nn.GRU(3, 4)(torch.ones(2, 3))\nnn.Linear(4, 2)(both)",
        "`both` is a tuple of 2 tensors",
    ),
    "a tuple without a method": (
        "both = nn.GRU(3, 4)(torch.ones(2, 3))\nboth.mean()",
        "`both` is a tuple of 2 tensors",
    ),
    "a state of a wrapped model": (
        "net = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2))\n"
        "net.load_state_dict(nn.DataParallel(net).state_dict())",
        "All keys of the state begin with `module.`",
    ),
    "a state for a wrapped model": (
        "layer = nn.Linear(2, 2)\nnn.DataParallel(layer).load_state_dict(layer.state_dict())",
        "All keys of DataParallel begin with `module.`, and those of the state do not",
    ),
    "a state of other keys": (
        "nn.Linear(2, 2).load_state_dict(nn.Linear(2, 2, bias=False).state_dict())",
        "1 key of Linear is not in the state: bias",
    ),
    "a state of other shapes": (
        "nn.Linear(2, 2).load_state_dict(nn.Linear(3, 2).state_dict())",
        "weight: (2, 3) in the state, (2, 2) in Linear",
    ),
    "dtypes": ("nn.Linear(2, 2)(torch.ones(1, 2).double())", "is float64"),
    "devices": ("torch.ones(2) + torch.ones(2, device='meta')", "Tensors on 2 devices meet"),
    "target dtype": ("F.cross_entropy(torch.ones(2, 3), torch.ones(2))", "Class numbers must be int64"),
    "target shape": ("F.binary_cross_entropy_with_logits(torch.ones(2, 1), torch.ones(2))", "must have one shape"),
    "contiguity": ("torch.ones(2, 3).t().view(6)", "is not contiguous: its strides are (1, 3)"),
    "sizes": ("torch.ones(2, 3) + torch.ones(2, 4)", "3 and 4 in dimension 1"),
    "matmul": ("torch.ones(2, 3) @ torch.ones(2, 3)", "cannot be multiplied"),
    "cat": ("torch.cat([torch.ones(2, 3), torch.ones(2, 4)])", "`cat` joins along dimension 0"),
    "view": ("torch.ones(2, 3).view(4, -1)", "a multiple of 4"),
    "channels": ("nn.Conv2d(3, 4, 1)(torch.ones(1, 2, 5, 5))", "takes 3 channels and gets 2"),
    "numpy": ("torch.ones(2, requires_grad=True).numpy()", "is part of a graph"),
    "leaf": ("w = torch.ones(2, requires_grad=True)\nw += 1", "`w` is a leaf that requires grad"),
    "none": ("def f(x):\n    x + 1\ntorch.ones(2) + f(1)", "`f(1)` is None"),
    "arguments": ("def f(x, scale):\n    return x\nf(1)", "This call passes no `scale`"),
    "key": ("batch = {'label': 1}\nbatch['labels']", "The keys are 'label'"),
    "unpacking": ("def f():\n    return 1, 2, 3\na, b = f()", "is unpacked into 2 names"),
    "uneven samples": (
        "next(iter(torch.utils.data.DataLoader([torch.ones(2), torch.ones(3)], batch_size=2)))",
        "sample 0 is [2] and sample 1 is [3]",
    ),
}


@pytest.mark.parametrize("case", CALLS)
def test_a_call_that_fails_is_explained_by_what_met(explained, case):
    source, said = CALLS[case]
    found = explained(source + "\n")
    assert found is not None
    assert found.cause is not None
    assert said in found.cause.said
    assert found.cause.remedy


@pytest.mark.parametrize(
    "source", ["raise ValueError('shape')", "assert torch.ones(1) > 2, 'device'", "1 / 0", "{}['a']"]
)
def test_what_the_user_raises_and_what_is_plain_python_needs_no_explanation(explained, source):
    assert explained(source + "\n") is None


def test_an_unknown_error_of_torch_only_lists_what_met(explained):
    found = explained("torch.linalg.cholesky(-torch.eye(2))\n")
    assert found.cause is None
    assert [each.shape for each in found.raised.met] == [(2, 2)]


def test_a_value_that_code_of_the_user_makes_is_not_made_again(explained, tmp_path):
    mark = tmp_path / "calls"
    source = (
        f"def f():\n    with open({str(mark)!r}, 'a') as file:\n        file.write('x')\n    return torch.ones(2, 3)\n"
    )
    explained(source + "f() @ f()\n")
    assert mark.read_text() == "xx"


def test_a_cause_is_a_function_of_facts_alone():
    made = Place("a.py", 3, "y = x.long()")
    facts = Raised(
        "RuntimeError",
        "expected target dtype to be Long or Byte, but got Float",
        met=(
            Met("p", "input", "tensor", (2, 3), "float32"),
            Met("y", "target", "tensor", (2,), "float32", made=(made,)),
        ),
    )
    cause = cause_of(facts)
    assert cause is not None
    assert cause.places == (made,)
    assert cause_of(Raised("RuntimeError", "something else")) is None
