"""The split: which base programs are held out, settled by their names before any of them was written.

Checks are tuned on the programs in `tuning/` and on nothing else. A base is held out with all that is made of it.
No check is changed for what is seen of held-out programs; those that were looked into move to the other side. So did
the first four rounds, each after it was run; what is held out is the fifth, named here before its first line was
written, by people who had read no check and no earlier edit but a few that show the format.
"""

import hashlib

HELD_OUT = (
    # scripts and recipes into which bugs are planted
    *("tide_table", "leaf_cnn", "gpt_rhymes", "lstm_pulse", "vit_crowns", "unet_canals", "recipe_beans", "ddp_orders"),
    *("hf_bert_letters", "resume_stars", "policy_boat", "gnn_rings", "loan_mlp", "resnet_moths", "hf_llama_riddles"),
    *("gru_surnames", "seq2seq_reverse", "vae_masks", "recipe_tales", "lightning_waves", "accelerate_quotes"),
    *("trainer_orders", "film_ranking", "mixer_tiles"),
    # scripts that only look buggy
    *("frozen_encoder", "swa_tail", "tied_heads", "dot_gan", "progressive_sizes", "hard_negatives", "replay_memory"),
    *("pseudo_labels", "adapter_layers", "meta_curves", "teacher_copy", "dead_experts", "sparse_lookup"),
    *("quantised_bottleneck", "reversed_domains", "two_optimizers", "multi_crop", "noisy_layers"),
)
"""The bases of the fifth round."""


def digest(name: str) -> int:
    """A number that a name gives, to choose and to order by."""
    return int(hashlib.sha256(name.encode()).hexdigest(), 16)


def held_out(base: str) -> bool:
    return base in HELD_OUT


def folder(base: str) -> str:
    """Where the file of a base program lies."""
    return "held_out" if held_out(base) else "tuning"
