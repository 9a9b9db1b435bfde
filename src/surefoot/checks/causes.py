"""Causes: for each check, which searches of the source lead to the line that made the bug, and to its partner."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial

from surefoot.source.at_fault import case as here
from surefoot.source.at_fault import data, loop, losses, modules
from surefoot.source.at_fault.case import Case, Search
from surefoot.source.program import At

Wanted = tuple[str, Search]
"""What stands under the marked part, and the search that finds it. Of several, the first to find something counts."""


def _calls(*names: str) -> Search:
    return lambda case: here.called(case, *names)


def _in_class(*names: str) -> Search:
    return lambda case: modules.in_class(case, *names)


def _stray(*names: str) -> Search:
    return lambda case: loop.stray(case, *names)


def _in_loop(*names: str) -> Search:
    return lambda case: loop.in_loop(case, *names)


def _into_loss(*names: str) -> Search:
    return lambda case: losses.loss_input(case, *names)


def _flowing(*names: str) -> Search:
    return lambda case: here.flowing(case, *names)


def _method(*names: str) -> Search:
    return lambda case: modules.method(case, *names)


def _each(*searches: Search) -> Search:
    """What any of these searches finds, in their order."""
    return lambda case: _joined(case, searches)


def _joined(case: Case, searches: Iterable[Search]) -> Iterable[At]:
    for each in searches:
        yield from each(case)


_SOFTMAX = _into_loss("softmax", "Softmax", "log_softmax", "LogSoftmax", "softmax2d", "Softmax2d")
_SIGMOID = _into_loss("sigmoid", "Sigmoid", "expit", "hardsigmoid", "tanh", "Tanh", "softmax", "Softmax")
_ACTIVATION = _into_loss(
    "relu", "ReLU", "tanh", "Tanh", "sigmoid", "Sigmoid", "softplus", "gelu", "GELU", "clamp", "abs", "silu"
)
_DEFINED: Wanted = ("defined here", modules.definition)
_LOSS: Wanted = ("the loss takes it here", losses.loss)
_LOSS_ITSELF: Wanted = ("this loss", losses.loss)
_OPTIMIZER: Wanted = ("the optimizer is made here", loop.optimizers)
_BACKWARD: Wanted = ("this backward", _calls("backward"))
_FORWARD: Wanted = ("runs here", _method("forward", "__call__"))

CAUSES: dict[str, tuple[Wanted, ...]] = {
    # ------------------------------------------------------------------------------------------------------ evaluation
    "dropout-in-evaluation": (("does not know the mode", modules.named_in_seen),),
    "eval-mode-in-training": (("trains in evaluation mode", loop.training_loop),),
    "graph-built-in-evaluation": (("builds a graph", loop.evaluated_with_gradients), _FORWARD),
    "made-and-never-used": (("nothing uses it", here.line),),
    "shuffled-evaluation": (
        ("the loader of the evaluation", partial(data.evaluation_loaders, words=("shuffle", "drop_last", "sampler"))),
        ("a random order", _calls("randperm", "permutation", "shuffle")),
    ),
    "training-mode-in-evaluation": (("evaluates in training mode", loop.evaluation_begins),),
    # ------------------------------------------------------------------------------------------------------- gradients
    "anomaly-mode-in-training": (("switched on here", _calls("set_detect_anomaly", "detect_anomaly")),),
    "detached-layers": (("cuts the graph", losses.cut), _DEFINED),
    "detached-loss": (("cuts the graph", losses.cut),),
    "gradients-into-fixed-network": (("gradients flow into it here", loop.calls_without_optimizer), _DEFINED),
    "growing-graph": (("keeps the graph of earlier steps", losses.kept),),
    "input-changed-in-place": (("writes in place", loop.inplace),),
    "kept-losses": (("keeps the graph of every step", losses.kept),),
    "loss-term-without-gradient": (("cuts the graph", losses.term_cut),),
    "missing-zero-grad": (
        ("outside of the loop", loop.zero_grad_outside),
        ("adds to the gradients of the step before", _in_loop("backward")),
    ),
    "nonfinite-gradients": (
        (
            "no finite gradient at 0",
            _flowing("sqrt", "log", "norm", "pow", "exp", "acos", "asin", "rsqrt", "std", "atan2"),
        ),
    ),
    "overwritten-saved-tensor": (("writes in place", loop.written),),
    "repeated-backward": (("the first backward", loop.first_backward),),
    "summed-micro-batches": (("added as it is", losses.loss),),
    "wrong-custom-backward": (("the gradient is computed here", _method("backward")),),
    "zero-grad-between-micro-batches": (("clears the gradients", _in_loop("zero_grad")),),
    "update-without-gradients": (
        ("clears the gradients before the update", loop.cleared),
        ("cuts the graph", loop.cut_by_hand),
        ("updates without gradients", here.line),
    ),
    # ---------------------------------------------------------------------------------------------------------- losses
    "activation-before-cross-entropy": (("an activation", _ACTIVATION), _LOSS),
    "broadcast-loss": (("every row meets every column", losses.broadcasting), ("broadcasts here", here.line)),
    "constant-targets": (("cut to whole numbers", losses.whole_numbers), ("these targets", here.line)),
    "ctc-input-not-log-probabilities": (("no log-probabilities", losses.input_made),),
    "far-off-initial-loss": (("starts far from the data", losses.last_layer), _LOSS_ITSELF),
    "logits-in-nll-loss": (("expects log-probabilities", losses.loss),),
    "probabilities-in-kl-div": (("expects log-probabilities", here.line),),
    "regression-on-class-numbers": (("a distance between class numbers", losses.loss),),
    "negated-loss": (("enters with a minus", losses.negation), _LOSS_ITSELF),
    "sigmoid-before-bce-with-logits": (("squashes the logits", _SIGMOID), _LOSS),
    "softmax-before-cross-entropy": (("the first softmax", _SOFTMAX), _LOSS),
    "softmax-over-wrong-dimension": (("over this dimension", losses.softmaxes),),
    # ---------------------------------------------------------------------------------------------------------- models
    "argument-ignored": (_FORWARD, _DEFINED),
    "input-ignored": (("the input does not get through", modules.lost_input), _FORWARD),
    "aliased-copy": (("the same object, no copy", modules.construction),),
    "linear-layers-in-a-row": (("nothing in between", modules.modules_called), ("no activation", modules.definition)),
    "layers-in-plain-list": (("a plain list", modules.definition),),
    "batch-norm-of-few-samples": (("so many samples", data.batch_size), _DEFINED),
    "running-frozen-batch-norm": (("frozen here", modules.frozen), _DEFINED),
    "samples-mixed-in-batch": (_DEFINED, _FORWARD),
    "teacher-in-training-mode": (("runs in training mode", loop.without_gradients),),
    "unregistered-buffer": (_DEFINED,),
    "unregistered-parameter": (_DEFINED,),
    "untied-weights": (("replaces the tied tensor", modules.set_anew), _DEFINED),
    # ------------------------------------------------------------------------------------------------------- precision
    "float16-without-scaler": (("float16 without a scaler", _calls("autocast", "half")),),
    "update-inside-autocast": (("autocast begins here", _calls("autocast")),),
    "overflowing-mask-value": (("too large for the number format", modules.large_number),),
    "scaler-with-bfloat16": (("made here", _calls("GradScaler")),),
    "low-precision-positions": (("counted in a coarse format", _calls("arange")),),
    # --------------------------------------------------------------------------------------------------------- samples
    "augmented-evaluation-data": (("one set for both", data.split), ("the data set", data.data_of)),
    "changing-samples": (
        ("writes into the stored sample", lambda case: loop.inplace_in(case, "__getitem__", "__getitems__")),
        ("the data set", data.data_of),
    ),
    "evaluation-samples-in-training": (("divides the samples", data.split), ("the data set", data.data_of)),
    "labels-of-other-samples": (("orders one without the other", data.sorts), ("an order", data.shuffles)),
    "repeated-batch": (("takes one batch", data.batch_taken), ("the loop of training", loop.training_loop)),
    "reseeded-steps": (
        (
            "seeds again in every step",
            _in_loop("manual_seed", "seed", "seed_everything", "set_seed", "default_rng", "RandomState", "Random"),
        ),
    ),
    "same-order-every-epoch": (
        ("seeds again in every epoch", _in_loop("manual_seed", "seed", "default_rng", "Generator", "set_seed")),
        ("this loader", data.loaders),
    ),
    "same-randomness-every-epoch": (("draws the same", _calls("default_rng", "RandomState", "manual_seed", "Random")),),
    "restarted-workers": (("this loader", data.loaders),),
    "shared-worker-randomness": (
        ("one generator for all workers", _in_class("default_rng", "RandomState", "Random", "randn", "rand", "random")),
        ("this loader", data.loaders),
    ),
    "scaled-before-split": (("statistics of all samples", _calls("mean", "std", "fit_transform", "fit")),),
    "sorted-training-data": (("in order", data.training_loaders), ("sorted here", data.sorts)),
    "unscaled-inputs": (("scales the inputs", data.scaled), ("these inputs", data.data_of)),
    "unsharded-stream": (("the same for every worker", data.shares), ("this loader", data.loaders)),
    "unseeded-generator": (("seeded by nothing", _calls("default_rng", "Generator", "RandomState")),),
    # ----------------------------------------------------------------------------------------------------- saved state
    "pickled-module": (("saves the object", _calls("save", "dump")),),
    "checkpoint-without-optimizer": (("what is saved", _calls("save")),),
    "state-lost-on-reload": (("not in the state", modules.not_saved),),
    "unrestored-optimizer": (
        ("loads, but not the optimizer", _calls("load_state_dict")),
        ("loads, but not the optimizer", here.line),
    ),
    "unrestored-scheduler": (
        ("loads, but not the scheduler", _calls("load_state_dict")),
        ("loads, but not the scheduler", here.line),
    ),
    # ------------------------------------------------------------------------------------------------------------ text
    "interleaved-zero-tokens": (
        ("reads or writes the tokens", _calls("memmap", "frombuffer", "fromfile", "tofile", "astype")),
    ),
    "wrapped-token-ids": (("too narrow for the ids", _calls("astype", "array", "asarray", "to")),),
    "attention-across-documents": (("attends to all documents", modules.attention), _FORWARD),
    "padding-in-loss": (("counts padding", losses.criterion),),
    "future-tokens-in-logits": (("sees later tokens", modules.attention), _FORWARD),
    "padding-in-attention": (("attends to padding", modules.attention), _FORWARD),
    # --------------------------------------------------------------------------------------------------------- updates
    "benchmarked-kernels": (("switched on here", loop.benchmark),),
    "missing-update": (("never followed by a step", here.line), _OPTIMIZER),
    "only-frozen-parameters-in-optimizer": (_OPTIMIZER,),
    "optimizer-of-other-parameters": (("made anew", loop.made_again), _OPTIMIZER),
    "parameter-in-two-optimizers": (("the second optimizer", loop.last_optimizer), _OPTIMIZER),
    "parameter-outside-optimizer": (("what the optimizer is given", loop.given_to_optimizer), _OPTIMIZER),
    "rate-too-large-for-adam": (_OPTIMIZER,),
    "rate-unusual-for-method": (_OPTIMIZER,),
    "swapped-betas": (_OPTIMIZER,),
    "zero-learning-rate": (_OPTIMIZER,),
    "scheduler-at-wrong-rate": (("steps here", here.line), ("the scheduler", loop.schedulers)),
    "update-without-effect": (_OPTIMIZER,),
}
"""The places of findings whose rule names another line, or none. Of other checks, the line of the rule is the cause."""

PARTNERS: dict[str, Wanted] = {
    "activation-before-cross-entropy": _LOSS,
    "sigmoid-before-bce-with-logits": _LOSS,
    "softmax-before-cross-entropy": ("softmax is applied again inside this loss", losses.loss),
    "softmax-over-wrong-dimension": _LOSS,
    "broadcast-loss": ("has a dimension more", losses.shaped),
    "detached-layers": _DEFINED,
    "detached-loss": _BACKWARD,
    "eval-mode-in-training": ("put into evaluation mode here", _stray("eval")),
    "kept-losses": _BACKWARD,
    "missing-zero-grad": ("updates with the sum", loop.steps),
    "training-mode-in-evaluation": ("runs in training mode", loop.without_gradients),
    "float16-without-scaler": _BACKWARD,
    "repeated-backward": ("and again", here.line),
    "summed-micro-batches": _BACKWARD,
    "parameter-outside-optimizer": ("never updated", modules.definition),
    "optimizer-of-other-parameters": _OPTIMIZER,
    "parameter-in-two-optimizers": ("the first optimizer", loop.optimizers),
    "constant-targets": ("made here", losses.last_compared),
    "scheduler-at-wrong-rate": ("counts in these units", loop.schedulers),
    "update-without-gradients": ("updates without gradients", loop.steps),
    "interleaved-zero-tokens": ("enter here", modules.definition),
    "sorted-training-data": ("sorted here", data.sorts),
    "unscaled-inputs": ("enter here", modules.definition),
    "loss-term-without-gradient": ("added here", here.line),
}
"""A second place, if two lines made the bug together."""
