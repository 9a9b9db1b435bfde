"""What a caller may name: nothing outside of the folder, no option, no step too many."""

import pytest

from surefoot.integrations.mcp.bounds import Bounds, Refused


@pytest.fixture
def bounds(tmp_path):
    folder = tmp_path / "inside"
    (folder / "sub").mkdir(parents=True)
    for file in ("train.py", "sub/own.py", "--trust-run"):
        (folder / file).write_text("print(1)\n")
    (tmp_path / "outside.py").write_text("print(2)\n")
    (folder / "link.py").symlink_to(tmp_path / "outside.py")
    (folder / "away").symlink_to(tmp_path)
    (folder / "near.py").symlink_to(folder / "train.py")
    return Bounds(folder.resolve(), steps=50)


def test_a_path_below_the_folder_is_relative_and_resolved(bounds):
    assert bounds.path("train.py") == "./train.py"
    assert bounds.path(str(bounds.folder / "sub" / "own.py")) == "./sub/own.py"
    assert bounds.path("near.py") == "./train.py"


@pytest.mark.parametrize(
    "named",
    ["../outside.py", "link.py", "away/outside.py", "sub/../../outside.py", "/etc/passwd", "~/x.py", "/", "..", "a\0b"],
)
def test_a_path_that_leads_outside_is_refused(bounds, named):
    with pytest.raises(Refused):
        bounds.path(named)


def test_what_stands_outside_is_not_told(bounds):
    """Whether a file outside exists makes no difference."""
    said = []
    for named in ("../outside.py", "../nothing.py"):
        with pytest.raises(Refused) as refused:
            bounds.path(named)
        said.append(str(refused.value).replace(named, "PATH"))
    assert said[0] == said[1]


def test_a_file_named_like_an_option_is_a_path(bounds):
    assert bounds.path("--trust-run") == "./--trust-run"
    assert bounds.target("--trust-run") == "./--trust-run"


def test_targets(bounds):
    assert bounds.target("gpt") == "gpt"
    assert bounds.target("sub/own.py:tiny") == "./sub/own.py:tiny"
    for named in ("os:system", "subprocess:run", "--help", "../outside.py:main", "link.py:main"):
        with pytest.raises(Refused):
            bounds.target(named)


def test_knobs(bounds):
    words = ["layers=12", "lr=3e-4", "precision=bf16-mixed", "corpus=sub/tokens", "text=--trust-run", "name="]
    assert bounds.knobs(words) == words
    wrong = ["--trust-run", "-x", "--layers=2", "corpus=/etc", "corpus=../x", "corpus=~/x", "mirror=s3://bucket", "x"]
    for word in [*wrong, "corpus=link.py", "corpus=sub,/etc", "corpus=away/x", "corpus=a\0b"]:
        with pytest.raises(Refused):
            bounds.knobs([word])


def test_devices_and_steps(bounds):
    assert bounds.device("8xh100-sxm") == "8xh100-sxm"
    for named in ("--trust-run", "", "../sheet.json", "a b", "h100,cpu"):
        with pytest.raises(Refused):
            bounds.device(named)
    assert bounds.within_steps(50) == 50
    for steps in (51, 0, -1):
        with pytest.raises(Refused, match="between 1 and 50"):
            bounds.within_steps(steps)
