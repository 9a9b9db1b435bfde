"""The split: which base programs are held out, settled by their names before any of them was written.

Checks are tuned on the programs in `tuning/` and on nothing else. A base is held out with all that is made of it.
No check is changed for what is seen of held-out programs; those that were looked into move to the other side. So did
the first three rounds, each after it was run; what is held out is the fourth, named here before its first line was
written, by people who had read no check.
"""

import hashlib

HELD_OUT = (
    # scripts and recipes into which bugs are planted
    *("bike_demand", "stroke_cnn", "gpt_chess", "lstm_weather", "vit_cells", "hf_llama_sums", "translate_numbers"),
    *("unet_lungs", "vae_knots", "gru_opinions", "recipe_spectra", "recipe_poems", "lightning_fruit", "ddp_tabular"),
    *("stream_clicks", "hf_bert_tickets", "resnet_coins", "mixture_router", "multitask_clothes", "dqn_grid"),
    *("ddpm_glyphs", "gnn_streets", "ctc_morse", "siamese_signatures", "distil_shapes", "accelerate_topics"),
    *("trainer_dialogue", "resume_mosaic", "recipe_grades", "functional_waves"),
    # scripts that only look buggy
    *("frozen_trunk", "ema_shadow", "tied_decoder", "gan_petals", "layers_thawed", "curriculum_rows"),
    *("prioritized_replay", "label_noise_study", "lora_heads", "meta_bends", "teacher_average", "unused_specialists"),
    *("sparse_codes", "vq_codes", "domain_reversal", "lbfgs_fit"),
)
"""The bases of the fourth round."""


def digest(name: str) -> int:
    """A number that a name gives, to choose and to order by."""
    return int(hashlib.sha256(name.encode()).hexdigest(), 16)


def held_out(base: str) -> bool:
    return base in HELD_OUT


def folder(base: str) -> str:
    """Where the file of a base program lies."""
    return "held_out" if held_out(base) else "tuning"
