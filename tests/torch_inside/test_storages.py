"""A storage is known by a number, and by how many hold it."""

import torch

from surefoot.torch_inside.fake_mode import FakeMode
from surefoot.torch_inside.storages import holders_of, identity_of


def test_views_share_the_identity_of_their_storage_and_copies_do_not():
    for world in (FakeMode(), torch.no_grad()):
        with world:
            whole = torch.ones(4)
            storages = [each.untyped_storage() for each in (whole, whole[1:], whole.clone())]
            first, view, copy = map(identity_of, storages)
        assert first == view != copy


def test_holders_are_counted():
    whole = torch.ones(4)
    alone = holders_of(whole.untyped_storage())
    view = whole[1:]
    assert holders_of(view.untyped_storage()) == alone + 1
