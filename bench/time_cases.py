"""The models whose steps are predicted and timed, split before any prediction was compared with a step.

Whatever is chosen by hand in how seconds are predicted (how often an operator is timed, which of its times counts, what
is added beside it) is chosen on `TUNING`; `HELD_OUT` judges it.
"""

TUNING = ("deep_linear", "cnn", "vit", "gpt_softmax", "gru")
HELD_OUT = ("resnet", "unet", "audio", "convnext", "mixer", "lstm", "gpt_sdpa", "decoder", "hf_llama", "hf_bert")
SETTINGS = ("fp32", "bf16-mixed")
