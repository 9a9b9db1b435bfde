"""fashion on the real data set: 87% with the dense network, over 90% with the convolutional one."""

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_model

import surefoot
from surefoot.recipes.fashion import DEBIAN_FOLDER, images_and_labels

needs_the_data_set = pytest.mark.skipif(
    not Path(DEBIAN_FOLDER).is_dir(), reason="needs Debian's package dataset-fashion-mnist"
)


@pytest.mark.long
@needs_the_data_set
@pytest.mark.parametrize(("network", "least"), [("dense", 0.87), ("convolutional", 0.90)])
def test_accuracy_on_the_test_images(network: str, least: float, tmp_path):
    recipe = surefoot.load_recipe("fashion", [f"network={network}", "max_steps=2500"])
    run = surefoot.train(recipe, path=str(tmp_path / "run"))
    model = recipe.model()
    load_model(model, str(run.weights))
    images, labels = images_and_labels(DEBIAN_FOLDER, "t10k").tensors
    with torch.inference_mode():
        predicted = torch.cat([model.eval()(part).argmax(1) for part in images.split(1000)])
    accuracy = (predicted == labels).float().mean().item()
    print(f"{network}: {accuracy:.2%} of {len(labels)} test images")
    assert accuracy > least
