"""The split: which base programs are held out, settled by their names before any of them was written.

Checks are tuned on the programs in `tuning/` and on nothing else. A base is held out with all that is made of it.
No check is changed for what is seen of held-out programs; those that were looked into move to the other side. So did
the first six rounds, each after it was run; what is held out is the seventh, named here before its first line was
written, by people who had read no check and no earlier edit but a few that show the format.
"""

import hashlib

HELD_OUT = (
    # scripts and recipes into which bugs are planted
    *("wine_table", "cloud_cnn", "gpt_ledgers", "ddp_orchards", "resume_tariffs", "unet_organs", "resnet_stamps"),
    *("hf_llama_menus", "lstm_currents", "recipe_fabric", "lightning_kilns", "two_tower_films", "vit_glyphs"),
    *("hf_bert_claims", "seq2seq_clocks", "accelerate_scores", "trainer_tickets", "policy_kite"),
    # scripts that only look buggy
    *("critic_pairs", "adapter_ranks", "slow_weights", "routed_experts", "delayed_networks", "sparse_clicks"),
    *("stilled_norms", "tied_codecs", "long_accumulation", "silent_students", "bootstrap_views", "noise_schedules"),
    *("small_gpt_script", "image_script_shape", "annealed_rates", "inner_loops", "contrast_queues", "packed_sequences"),
)
"""The bases of the seventh round."""


def digest(name: str) -> int:
    """A number that a name gives, to choose and to order by."""
    return int(hashlib.sha256(name.encode()).hexdigest(), 16)


def held_out(base: str) -> bool:
    return base in HELD_OUT


def folder(base: str) -> str:
    """Where the file of a base program lies."""
    return "held_out" if held_out(base) else "tuning"
