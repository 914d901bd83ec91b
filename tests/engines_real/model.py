"""The model that the engines serve: real tokenizer and template, random weights of a fixed seed, an adapter.

It says nothing of sense, and all that matters is as with a large one: prompts become the same tokens, blocks
the same hashes. The whole of it is some 40 MB.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from safetensors.numpy import save_file

from tests.prompts.real import qwen3

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Weights = dict[str, NDArray[np.float32]]

NAME, ADAPTER = "tiny", "tiny-adapter"
MAX_TOKENS = 2048
_SEED = 20_261
_HIDDEN, _LAYERS, _INNER, _RANK = 64, 2, 128, 8
_HEADS, _HEAD = 4, 32  # the CPU attention of vLLM has no smaller heads
_CONFIG: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": _HIDDEN,
    "intermediate_size": _INNER,
    "num_hidden_layers": _LAYERS,
    "num_attention_heads": _HEADS,
    "num_key_value_heads": _HEADS,
    "head_dim": _HEAD,
    "hidden_act": "silu",
    "max_position_embeddings": MAX_TOKENS,
    "rms_norm_eps": 1e-6,
    "tie_word_embeddings": True,
    "torch_dtype": "float32",
}
_ADAPTED_LAYERS = ("q_proj", "v_proj")
_ADAPTED = {
    "peft_type": "LORA",
    "task_type": "CAUSAL_LM",
    "base_model_name_or_path": NAME,
    "r": _RANK,
    "lora_alpha": 2 * _RANK,
    "lora_dropout": 0.0,
    "bias": "none",
    "target_modules": list(_ADAPTED_LAYERS),
}


def build(directory: Path) -> None:
    """Write the model to `directory`/model and its adapter to `directory`/adapter, if they are not there."""
    done, recipe = directory / "done", Path(__file__).read_text()
    if done.exists() and done.read_text() == recipe:
        return
    shutil.rmtree(directory, ignore_errors=True)  # what an interrupted run has left
    (directory / "adapter").mkdir(parents=True)
    qwen3(directory).ours.rename(directory / "model")
    chance = np.random.default_rng(_SEED)
    _save_model(directory / "model", chance)
    _save_adapter(directory / "adapter", chance)
    done.write_text(recipe)


def _save_model(directory: Path, chance: np.random.Generator) -> None:
    tokenizer = json.loads((directory / "tokenizer.json").read_text())
    vocabulary = len(tokenizer["model"]["vocab"]) + len(tokenizer["added_tokens"])
    (directory / "config.json").write_text(json.dumps(_CONFIG | {"vocab_size": vocabulary}))
    weights = {"model.embed_tokens.weight": _drawn(chance, vocabulary, _HIDDEN), "model.norm.weight": _ones()}
    for layer in range(_LAYERS):
        weights |= _layer(f"model.layers.{layer}.", chance)
    save_file(weights, directory / "model.safetensors", metadata={"format": "pt"})


def _layer(prefix: str, chance: np.random.Generator) -> Weights:
    shapes = {f"self_attn.{name}_proj": (_HEADS * _HEAD, _HIDDEN) for name in "qkv"}
    shapes["self_attn.o_proj"] = (_HIDDEN, _HEADS * _HEAD)
    shapes |= {f"mlp.{name}_proj": (_INNER, _HIDDEN) for name in ("gate", "up")}
    shapes["mlp.down_proj"] = (_HIDDEN, _INNER)
    norms = {f"{prefix}{name}.weight": _ones() for name in ("input_layernorm", "post_attention_layernorm")}
    return norms | {f"{prefix}{name}.weight": _drawn(chance, *shape) for name, shape in shapes.items()}


def _save_adapter(directory: Path, chance: np.random.Generator) -> None:
    weights: Weights = {}
    for layer in range(_LAYERS):
        for name in _ADAPTED_LAYERS:
            prefix = f"base_model.model.model.layers.{layer}.self_attn.{name}.lora_"
            weights[f"{prefix}A.weight"] = _drawn(chance, _RANK, _HIDDEN)
            weights[f"{prefix}B.weight"] = _drawn(chance, _HEADS * _HEAD, _RANK)
    (directory / "adapter_config.json").write_text(json.dumps(_ADAPTED))
    save_file(weights, directory / "adapter_model.safetensors", metadata={"format": "pt"})


def _drawn(chance: np.random.Generator, *shape: int) -> NDArray[np.float32]:
    return chance.normal(0.0, 0.1, shape).astype(np.float32)


def _ones() -> NDArray[np.float32]:
    return np.ones(_HIDDEN, np.float32)
