"""The split: which base programs are held out, settled by their names before any of them was written.

Checks are tuned on the programs in `tuning/` and on nothing else. A base is held out with all that is made of it.
No check is changed for what is seen of held-out programs; those that were looked into move to the other side. So did
the first five rounds, each after it was run; what is held out is the sixth, named here before its first line was
written, by people who had read no check and no earlier edit but a few that show the format.
"""

import hashlib

HELD_OUT = (
    # scripts and recipes into which bugs are planted
    *("flood_table", "moss_cnn", "gpt_proverbs", "tcn_tides", "vit_postmarks", "fcn_fields", "recipe_pollen"),
    *("ddp_reviews", "hf_bert_parcels", "resume_glaciers", "bandit_menu", "gnn_bonds", "claims_mlp", "resnet_ferns"),
    *("hf_llama_lists", "gru_rhythms", "seq2seq_units", "vae_tiles", "recipe_ballads", "lightning_quakes"),
    *("accelerate_notes", "trainer_mails", "song_ranking", "convnext_shells"),
    # scripts that only look buggy
    *("frozen_stem", "ema_judges", "shared_embeddings", "ring_gan", "growing_windows", "mined_triplets", "fitted_q"),
    *("self_training", "low_rank_layers", "implicit_layers", "momentum_pairs", "switch_experts", "sparse_baskets"),
    *("vector_codes", "domain_critic", "alternating_players", "masked_patches", "dropout_ensembles"),
    *("curriculum_mazes", "mixup_tiles", "gradient_surgery", "layerwise_rates", "cyclic_rates", "normalising_flow"),
)
"""The bases of the sixth round."""


def digest(name: str) -> int:
    """A number that a name gives, to choose and to order by."""
    return int(hashlib.sha256(name.encode()).hexdigest(), 16)


def held_out(base: str) -> bool:
    return base in HELD_OUT


def folder(base: str) -> str:
    """Where the file of a base program lies."""
    return "held_out" if held_out(base) else "tuning"
