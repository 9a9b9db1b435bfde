"""Whether arithmetic or memory holds a module up."""

from surefoot.costs.module_shares import Ceilings, bound, module_shares, seen_ceilings
from surefoot.records.profile import Profile
from surefoot.records.report import ModuleShare
from surefoot.records.tally import Account, Tally
from surefoot.records.usage import Usage

ROOF = Ceilings(flops_per_second=1e12, bytes_per_second=1e11, source="made up")


def test_the_ridge_divides_memory_from_compute():
    assert ROOF.ridge == 10
    assert ROOF.at(1) == 1e11
    assert ROOF.at(100) == 1e12
    assert bound(ModuleShare("a", 0, 2000, 100, 1), ROOF) == "compute"
    assert bound(ModuleShare("a", 0, 500, 100, 1), ROOF) == "memory"
    assert bound(ModuleShare("a", 0, 0, 0, 1), ROOF) == ""
    assert bound(ModuleShare("a", 0, 500, 100, 1), None) == ""


def test_ceilings_are_what_was_reached_and_slivers_do_not_count():
    shares = [
        ModuleShare("a", 0, 1e9, 1e6, 1.0),
        ModuleShare("b", 0, 1e6, 1e8, 1.0),
        ModuleShare("c", 0, 1e9, 1e9, 1e-4),
    ]
    roof = seen_ceilings(shares)
    assert (roof.flops_per_second, roof.bytes_per_second) == (1e9, 1e8)
    assert seen_ceilings([]) is None


def test_shares_of_a_module_come_from_every_meter():
    usage = Usage(Tally.of([Account("memory/activations/a", 8, "bytes"), Account("flops/forward/a", 30, "FLOP")]))
    counted = Tally.of([Account("moved/forward/a", 5, "bytes"), Account("moved/backward/a", 6, "bytes")])
    traced = Tally.of(
        [Account("time/forward/a/aten::mm", 2.0, "seconds"), Account("time/load/-/python", 1.0, "seconds")]
    )
    profile = Profile("r", {}, "cpu", 1, usage, usage, 1, (3.0,), Tally(), counted=counted, traced=traced)
    first, second = module_shares(profile)
    assert first == ModuleShare("a", 8, 30, 11, 2.0)
    assert (second.module, second.seconds) == ("-", 1.0)
