"""What loops keep of their batches, read from their source."""

import pytest

from surefoot.source.evaluation_loop import Line, kept_by, loop_around

pytestmark = pytest.mark.sweep

KEPT_MEANS = {
    "for x in batches:\n    total += f(x).item()\nprint(total / len(batches))": ["mean"],
    "for x in batches:\n    total += f(x).item()\n    n += 1\ntotal /= n": ["mean"],
    "for x in batches:\n    out = f(x)\n    total.append(out.item())\nprint(np.mean(total))": ["mean"],
    "for x in batches:\n    total.append(f(x).item() * len(x))\nprint(sum(total) / len(batches))": [],
    "for x in batches:\n    total += f(x).item()\nprint(total / len(batches.dataset))": [],
    "for x in batches:\n    loss = f(x).item()\nprint(loss)": ["last"],
    "for x in batches:\n    loss = f(x).item()\n    best = min(best, loss)\nprint(loss)": [],
    "for x in batches:\n    loss = f(x).item()\nloss = 0\nprint(loss)": [],
    "for x in batches:\n    total += f(x).item() * scale\n    n += 1\nprint(total / n)": ["mean"],
    "for x in batches:\n    n = len(x)\n    total += f(x).item() * n\nprint(total / len(batches))": [],
    "for x in batches:\n    off = (f(x) - 1).abs().sum()\nprint(off)": ["last"],
    "print(sum(f(x).item() for x in batches) / len(batches))": ["mean"],
    "print(sum(f(x).item() * len(x) for x in batches) / len(batches))": [],
    "a = [f(x).item() for x in batches]\nprint(sum(a) / len(a))": ["mean"],
}


@pytest.mark.parametrize(("text", "kinds"), KEPT_MEANS.items())
def test_what_a_loop_keeps_of_the_means_of_its_batches(text, kinds, tmp_path):
    file = tmp_path / "loop.py"
    file.write_text(text)
    number = 1 + next(n for n, line in enumerate(text.splitlines()) if "f(x)" in line)
    line, loop, scope = loop_around([Line(str(file), number)])
    assert [kept.kind for kept in kept_by(loop, scope, line.file, {number})] == kinds


KEPT = {
    # a meter that is not told how many samples there are, and one that is
    "for x, y in data:\n    meter.update(f(x).item())\nprint(meter.avg)": ["mean"],
    "for x, y in data:\n    meter.update(f(x).item(), len(x))\nprint(meter.avg)": [],
    # items of a dict, attributes, places of an array
    "for x, y in data:\n    t['loss'] += f(x).item()\nr = {k: v / len(data) for k, v in t.items()}": ["mean"],
    "for x, y in data:\n    t['loss'] += f(x).item() * len(x)\n    t['n'] += len(x)\nr = t['loss'] / t['n']": [],
    "for x, y in data:\n    self.total += f(x).item()\nself.seen.append(self.total / len(data))": ["mean"],
    "for i, x in enumerate(data):\n    losses[i] = f(x)\nprint(losses.mean())": ["mean"],
    # by what they are divided
    "steps = math.ceil(len(a) / 8)\nfor k in range(steps):\n    total += f(x).item()\nprint(total / steps)": ["mean"],
    "for x, y in data:\n    total += f(x).item()\nprint(s * total / -(-len(a) // 8))": ["mean"],
    "n = len(data)\nfor x, y in data:\n    total += f(x).item()\ntotal /= n": ["mean"],
    "for x, y in data:\n    total, n = total + f(x).sum().item(), n + len(x)\nprint(total / n)": [],
    # means that are brought up to date
    "for i, x in enumerate(data, 1):\n    m += (f(x).item() - m) / i\nprint(m)": ["mean"],
    "for i, x in enumerate(data):\n    m = (m * i + f(x).item()) / (i + 1)\nprint(m)": ["mean"],
    # functions of the same file
    "def acc(z):\n    return z.sum() / len(z)\nfor x, y in data:\n    a.append(acc(f(x)))\nprint(np.mean(a))": ["mean"],
    "def hits(z):\n    return z.sum()\nfor x, y in data:\n    z = f(x)\n    a += hits(z)\nprint(a / len(data))": [],
    "def acc(z):\n    r = z == 1\n    m = r.float().mean()\n    return m.item()\n"
    "for x, y in data:\n    z = f(x)\n    a += acc(z)\n    n += 1\nprint(a / n)": ["mean"],
    "def acc(z):\n    return z.mean(1)\nfor x, y in data:\n    a += acc(f(x)).sum()\nprint(a / len(data))": [],
    # an attribute of what a call gives
    "for x, y in data:\n    total += f(x).loss.item()\n    n += 1\nprint(total / n)": ["mean"],
    "for x, y in data:\n    total += f(x).loss.item() * len(x)\n    n += len(x)\nprint(total / n)": [],
    # methods that a framework calls for every batch
    "def validation_step(self, x, i):\n    self.a.append(f(x))\n"
    "def end(self):\n    print(torch.stack(self.a).mean())": ["mean"],
    "def validation_step(self, x, i):\n    z = f(x)\n    self.a += (z == 1).float().mean().item()\n"
    "    self.n = i + 1\n"
    "def end(self):\n    print(self.a / self.n)": ["mean"],
    "def validation_step(self, x, i):\n    self.a += f(x).sum().item()\n    self.n += len(x)\n"
    "def end(self):\n    print(self.a / self.n)": [],
    # scores and numbers of single samples that are gathered are no means
    "for x, y in data:\n    a.append(f(x).sum((1, 2)) / n)\nprint(torch.cat(a).mean())": [],
    "for x, y in data:\n    z, t = f(x)\n    a.append(z)\nprint(torch.cat(a).mean())": [],
    # the last of several, of items, of attributes, shown meanwhile or begun anew
    "for x, y in data:\n    loss, acc = f(x)\nprint(loss.item())": ["last"],
    "for x, y in data:\n    s['loss'] = f(x).item()\nprint(s)": ["last"],
    "for x, y in data:\n    self.loss = f(x).item()\nprint(self.loss)": ["last"],
    "for x, y in data:\n    loss = f(x).item()\n    bar.set_postfix(loss=loss)\nprint(loss)": ["last"],
    "for x, y in data:\n    loss = f(x).item()\n    seen.append(loss)\nprint(loss, sum(seen))": [],
    "for x, y in data:\n    loss = f(x)\n    total += loss.item() * len(x)\nprint(loss.item())": ["last"],
    "for x, y in data:\n    seen.append(f(x).item())\nprint(seen[-1])": ["last"],
    "for x, y in data:\n    seen.append(f(x).item())\nprint(seen[-1], sum(seen) / n)": [],
    "for x, y in data:\n    loss = f(x)\n    total += loss.item() * len(x)\nprint(total / n)": [],
    "for x, y in data:\n    total = 0.0\n    total += f(x).item() * len(x)\nprint(total)": ["last"],
    "for x, y in data:\n    losses = []\n    losses.append(f(x).item())\nprint(sum(losses) / len(losses))": ["last"],
    "total = 0.0\nfor x, y in data:\n    total += f(x).item() * len(x)\nprint(total)": [],
    "for x, y in data:\n    z = f(x)\n    p = z.argmax(1)\nprint((p == y).float().mean())": ["last"],
    "for x, y in data:\n    z = f(x)\n    p = z.argmax(1)\nshow(p, y)": [],
}  # fmt: skip


@pytest.mark.parametrize(("text", "kinds"), KEPT.items())
def test_what_loops_keep_of_their_batches(text, kinds, tmp_path):
    file = tmp_path / "loop.py"
    file.write_text(text)
    number = next(n for n, line in enumerate(text.splitlines(), 1) if "f(x)" in line)
    line, loop, scope = loop_around([Line(str(file), number)])
    told = {number} if "z = f(x)" not in text and "sum()" not in text else set()
    assert [kept.kind for kept in kept_by(loop, scope, line.file, told)] == kinds
