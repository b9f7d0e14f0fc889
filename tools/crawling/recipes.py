"""Operators that need arguments: how each is written, which ranks it takes, and the rule for its output's shape.

`create` is the module's constructor ("" for functions), `call` its use; `{x}` and `{y}` are operands, `{self}` the
module. Other names in braces are sizes, taken from the input ("last": last dimension, "channels": dimension 1) or
picked from the listed values; "features" are picked by whoever composes. Every recipe is tried on the installed
version before it is written down, and its rule must foretell the shape.
"""

from typing import Any, Final

LAST: Final = {"d": "last"}
CHANNELS: Final = {"c": "channels"}
ROWS: Final = [2, 3]
ANY: Final = [2, 3, 4]
Recipe = dict[str, Any]


def module(name: str, arguments: str, *, ranks: list[int], rule: Recipe, **more: Any) -> Recipe:
    short = name.removeprefix("torch.")
    entry: Recipe = {"name": name, "create": f"{short}({arguments})", "call": "{self}({x})", "ranks": ranks}
    return entry | {"rule": rule, **more}


def function(name: str, call: str, *, ranks: list[int], rule: Recipe, **more: Any) -> Recipe:
    return {"name": name, "create": "", "call": call, "ranks": ranks, "rule": rule, **more}


SAME: Final = {"kind": "same"}
TO_LAST: Final = {"kind": "last", "to": "out"}


def _conv(n: int, *, transposed: bool) -> Recipe:
    kind = "conv_transpose" if transposed else "conv"
    name = f"torch.nn.ConvTranspose{n}d" if transposed else f"torch.nn.Conv{n}d"
    arguments = "{c}, {out}, kernel_size={kernel}, stride={stride}, padding={padding}"
    picks = {"out": "features", "kernel": [2, 3, 4] if transposed else [1, 3, 5], "stride": [1, 2], "padding": [0, 1]}
    if n == 3:
        picks |= {"kernel": [3], "stride": [1] if not transposed else [2]}
    rule = {"kind": kind, "dims": n}
    return module(name, arguments, ranks=[n + 2], rule=rule, sizes=CHANNELS, picks=picks, family="convolution")


def _depthwise(n: int) -> Recipe:
    arguments = "{c}, {c}, kernel_size={kernel}, padding={padding}, groups={c}"
    entry = module(
        f"torch.nn.Conv{n}d",
        arguments,
        ranks=[n + 2],
        rule={"kind": "conv", "dims": n, "depthwise": True},
        sizes=CHANNELS,
        picks={"kernel": [3, 5], "padding": [1, 2], "stride": [1]},
        family="convolution",
    )
    return entry | {"variant": "depthwise"}


def _pool(name: str, n: int) -> Recipe:
    return module(
        f"torch.nn.{name}{n}d",
        "kernel_size={kernel}, stride={stride}",
        ranks=[n + 2],
        rule={"kind": "pool", "dims": n},
        picks={"kernel": [2, 3], "stride": [1, 2], "padding": [0]},
        family="pooling",
    )


def _norm(name: str, arguments: str, ranks: list[int], sizes: Recipe) -> Recipe:
    return module(f"torch.nn.{name}", arguments, ranks=ranks, rule=SAME, sizes=sizes, family="normalization")


def _reduction(name: str, more: str = "") -> Recipe:
    call = f"{name}({{x}}, dim={{dim}}, keepdim={{keepdim}}){more}"
    picks = {"dim": [-1, 1], "keepdim": [True, False]}
    return function(name, call, ranks=ANY, rule={"kind": "reduce"}, picks=picks, family="reduction")


def _along(name: str, call: str, **more: Any) -> Recipe:
    return function(name, call, ranks=ANY, rule=SAME, picks={"dim": [-1, 1]}, **more)


def _upsample(mode: str, n: int) -> Recipe:
    call = f'F.interpolate({{x}}, scale_factor={{factor}}, mode="{mode}")'
    return function(
        "torch.nn.functional.interpolate",
        call,
        ranks=[n + 2],
        rule={"kind": "upsample", "dims": n},
        picks={"factor": [2]},
        family="resizing",
        variant=mode,
    )


TORCH: Final[tuple[Recipe, ...]] = (
    module("torch.nn.Linear", "{d}, {out}", ranks=ROWS, rule=TO_LAST, sizes=LAST, picks={"out": "features"},
           family="matrix product"),
    function("torch.matmul", "torch.matmul({x}, {w})", ranks=ROWS, rule=TO_LAST, sizes=LAST, picks={"out": "features"},
             family="matrix product", weight=["d", "out"]),
    function("torch.matmul", "torch.matmul({x}, {x}.transpose(-1, -2))", ranks=[3], rule={"kind": "gram"},
             family="matrix product", variant="gram"),
    function("torch.nn.functional.scaled_dot_product_attention", "F.scaled_dot_product_attention({x}, {x}, {x})",
             ranks=[4], rule=SAME, family="attention"),
    module("torch.nn.MultiheadAttention", "{d}, num_heads={heads}, batch_first=True", ranks=[3], rule=SAME, sizes=LAST,
           picks={"heads": [4, 8]}, family="attention") | {"call": "{self}({x}, {x}, {x}, need_weights=False)[0]"},
    module("torch.nn.Bilinear", "{d}, {d}, {out}", ranks=[2], rule=TO_LAST, sizes=LAST, picks={"out": "features"},
           family="matrix product") | {"call": "{self}({x}, {x})"},
    *(_conv(n, transposed=False) for n in (1, 2, 3)),
    *(_conv(n, transposed=True) for n in (1, 2, 3)),
    _depthwise(1), _depthwise(2),
    *(_pool("MaxPool", n) for n in (1, 2, 3)),
    *(_pool("AvgPool", n) for n in (1, 2, 3)),
    module("torch.nn.LPPool2d", "2, kernel_size={kernel}, stride={stride}", ranks=[4], rule={"kind": "pool", "dims": 2},
           picks={"kernel": [2, 3], "stride": [2], "padding": [0]}, family="pooling", domain="positive"),
    module("torch.nn.AdaptiveAvgPool1d", "{size}", ranks=[3], rule={"kind": "adaptive", "dims": 1},
           picks={"size": [8, 16]}, family="pooling"),
    module("torch.nn.AdaptiveAvgPool2d", "{size}", ranks=[4], rule={"kind": "adaptive", "dims": 2},
           picks={"size": [4, 7]}, family="pooling"),
    module("torch.nn.AdaptiveMaxPool2d", "{size}", ranks=[4], rule={"kind": "adaptive", "dims": 2},
           picks={"size": [4, 7]}, family="pooling"),
    _norm("LayerNorm", "{d}", ANY, LAST), _norm("RMSNorm", "{d}", ANY, LAST),
    _norm("BatchNorm1d", "{c}", [2, 3], CHANNELS), _norm("BatchNorm2d", "{c}", [4], CHANNELS),
    _norm("BatchNorm3d", "{c}", [5], CHANNELS),
    _norm("InstanceNorm1d", "{c}, affine=True", [3], CHANNELS),
    _norm("InstanceNorm2d", "{c}, affine=True", [4], CHANNELS),
    _norm("InstanceNorm3d", "{c}, affine=True", [5], CHANNELS),
    module("torch.nn.GroupNorm", "{groups}, {c}", ranks=[3, 4, 5], rule=SAME, sizes=CHANNELS, picks={"groups": [4, 8]},
           family="normalization"),
    module("torch.nn.LocalResponseNorm", "{size}", ranks=[3, 4], rule=SAME, picks={"size": [3, 5]},
           family="normalization"),
    module("torch.nn.PReLU", "{c}", ranks=ANY, rule=SAME, sizes=CHANNELS, family="activation"),
    module("torch.nn.LeakyReLU", "negative_slope={slope}", ranks=ANY, rule=SAME, picks={"slope": [0.01, 0.1, 0.2]},
           family="activation"),
    module("torch.nn.ELU", "alpha={alpha}", ranks=ANY, rule=SAME, picks={"alpha": [0.5, 1.5]}, family="activation"),
    module("torch.nn.Softplus", "beta={beta}", ranks=ANY, rule=SAME, picks={"beta": [1.0, 2.0]}, family="activation"),
    module("torch.nn.Hardtanh", "{low}, {high}", ranks=ANY, rule=SAME, picks={"low": [-1.0, -0.5], "high": [1.0, 2.0]},
           family="activation"),
    module("torch.nn.GELU", 'approximate="tanh"', ranks=ANY, rule=SAME, family="activation") | {"variant": "tanh"},
    module("torch.nn.Softmax", "dim={dim}", ranks=ANY, rule=SAME, picks={"dim": [-1, 1]}, family="softmax"),
    module("torch.nn.LogSoftmax", "dim={dim}", ranks=ANY, rule=SAME, picks={"dim": [-1, 1]}, family="softmax"),
    module("torch.nn.Softmin", "dim={dim}", ranks=ANY, rule=SAME, picks={"dim": [-1, 1]}, family="softmax"),
    module("torch.nn.GLU", "dim={dim}", ranks=ANY, rule={"kind": "halve"}, picks={"dim": [-1, 1]}, family="activation"),
    module("torch.nn.ZeroPad2d", "{pad}", ranks=[4], rule={"kind": "pad", "dims": 2}, picks={"pad": [1, 2]},
           family="resizing"),
    module("torch.nn.ReflectionPad2d", "{pad}", ranks=[4], rule={"kind": "pad", "dims": 2}, picks={"pad": [1, 2]},
           family="resizing"),
    module("torch.nn.ReplicationPad1d", "{pad}", ranks=[3], rule={"kind": "pad", "dims": 1}, picks={"pad": [1, 2]},
           family="resizing"),
    module("torch.nn.PixelShuffle", "{factor}", ranks=[4], rule={"kind": "pixel_shuffle"}, picks={"factor": [2]},
           family="resizing"),
    module("torch.nn.PixelUnshuffle", "{factor}", ranks=[4], rule={"kind": "pixel_unshuffle"}, picks={"factor": [2]},
           family="resizing"),
    module("torch.nn.ChannelShuffle", "{groups}", ranks=[4], rule=SAME, picks={"groups": [2, 4]}, family="movement"),
    module("torch.nn.Flatten", "", ranks=[3, 4, 5], rule={"kind": "flatten"}, family="movement"),
    module("torch.nn.UpsamplingBilinear2d", "scale_factor={factor}", ranks=[4], rule={"kind": "upsample", "dims": 2},
           picks={"factor": [2]}, family="resizing"),
    _upsample("nearest", 2), _upsample("bilinear", 2), _upsample("linear", 1),
    module("torch.nn.GRU", "{d}, {out}, batch_first=True", ranks=[3], rule=TO_LAST, sizes=LAST,
           picks={"out": "features"}, family="recurrence") | {"call": "{self}({x})[0]"},
    module("torch.nn.LSTM", "{d}, {out}, batch_first=True", ranks=[3], rule=TO_LAST, sizes=LAST,
           picks={"out": "features"}, family="recurrence") | {"call": "{self}({x})[0]"},
    *(_reduction(f"torch.{name}") for name in ("sum", "mean", "amax", "amin", "logsumexp", "std", "var")),
    _reduction("torch.max", ".values") | {"variant": "values"}, _reduction("torch.min", ".values"),
    function("torch.linalg.vector_norm", "torch.linalg.vector_norm({x}, ord={ord}, dim={dim}, keepdim={keepdim})",
             ranks=ANY, rule={"kind": "reduce"}, picks={"ord": [1, 2], "dim": [-1, 1], "keepdim": [True, False]},
             family="reduction"),
    _along("torch.softmax", "torch.softmax({x}, dim={dim})", family="softmax"),
    _along("torch.log_softmax", "torch.log_softmax({x}, dim={dim})", family="softmax"),
    _along("torch.cumsum", "torch.cumsum({x}, dim={dim})", family="scan"),
    _along("torch.logcumsumexp", "torch.logcumsumexp({x}, dim={dim})", family="scan"),
    _along("torch.cummax", "torch.cummax({x}, dim={dim}).values", family="scan"),
    _along("torch.sort", "torch.sort({x}, dim={dim}).values", family="scan"),
    _along("torch.nn.functional.normalize", "F.normalize({x}, dim={dim})", family="normalization"),
    _along("torch.flip", "torch.flip({x}, dims=({dim},))", family="movement"),
    _along("torch.Tensor.roll", "{x}.roll(1, dims={dim})", family="movement"),
    function("torch.transpose", "torch.transpose({x}, 1, 2).contiguous()", ranks=[3, 4], rule={"kind": "transpose"},
             family="movement"),
    function("torch.Tensor.clamp", "{x}.clamp(min={low}, max={high})", ranks=ANY, rule=SAME,
             picks={"low": [-1.0, -0.5], "high": [0.5, 1.0]}, family="pointwise"),
    function("torch.nn.functional.threshold", "F.threshold({x}, {at}, {value})", ranks=ANY, rule=SAME,
             picks={"at": [0.0, 0.1], "value": [0.5, -1.0]}, family="activation"),
    function("torch.nn.functional.glu", "F.glu({x}, dim={dim})", ranks=ANY, rule={"kind": "halve"},
             picks={"dim": [-1, 1]}, family="activation"),
    function("torch.pow", "torch.pow({x}, {exponent})", ranks=ANY, rule=SAME, picks={"exponent": [2, 3]},
             family="pointwise"),
    function("torch.nn.functional.layer_norm", "F.layer_norm({x}, {x}.shape[-1:])", ranks=ANY, rule=SAME,
             family="normalization"),
    function("torch.nn.functional.avg_pool2d", "F.avg_pool2d({x}, kernel_size={kernel}, stride={stride})", ranks=[4],
             rule={"kind": "pool", "dims": 2}, picks={"kernel": [2, 3], "stride": [2], "padding": [0]},
             family="pooling"),
    function("torch.nn.functional.max_pool2d", "F.max_pool2d({x}, kernel_size={kernel}, stride={stride})", ranks=[4],
             rule={"kind": "pool", "dims": 2}, picks={"kernel": [2, 3], "stride": [2], "padding": [0]},
             family="pooling"),
    *(function(f"torch.{name}", f"torch.{name}({{x}}, {{y}})", ranks=[2, 3, 4, 5], rule=SAME, operands=2,
               family="combination") for name in ("add", "mul", "sub", "maximum", "minimum", "logaddexp")),
    function("torch.lerp", "torch.lerp({x}, {y}, {weight})", ranks=[2, 3, 4, 5], rule=SAME, operands=2,
             picks={"weight": [0.25, 0.5]}, family="combination"),
    function("torch.cat", "torch.cat([{x}, {y}], dim={dim})", ranks=ANY, rule={"kind": "cat"}, operands=2,
             picks={"dim": [-1, 1]}, family="combination", whole=True),
    function("torch.where", "torch.where({x} > 0, {x}, {y})", ranks=ANY, rule=SAME, operands=2, family="combination"),
)  # fmt: skip


def _hub(path: str, arguments: str, config: str = "", **more: Any) -> Recipe:
    """One of transformers: `path` is module.Class, `config` a class of configurations from the same package."""
    package, _, name = path.rpartition(".")
    imports = [f"from transformers.{package} import {name}"]
    if config:
        imports.append(f"from transformers import {config}")
    entry: Recipe = {"name": f"transformers.{path}", "create": f"{name}({arguments})", "call": "{self}({x})"}
    return entry | {"ranks": [3], "rule": SAME, "imports": imports, "family": "transformers", **more}


def _wide(arguments: str) -> str:
    return f"hidden_size={{d}}, intermediate_size={{wide}}{arguments}"


ONE_HEAD: Final = ", num_attention_heads=1"
WIDE: Final = {"picks": {"wide": "features"}, "sizes": LAST}
HEADS: Final = {"picks": {"heads": [4, 8]}, "sizes": LAST}
TRANSFORMERS: Final[tuple[Recipe, ...]] = (
    *(_hub(f"activations.{name}", "", ranks=ANY) for name in (
        "NewGELUActivation", "FastGELUActivation", "QuickGELUActivation", "AccurateGELUActivation",
        "LaplaceActivation", "ReLUSquaredActivation", "MishActivation", "GELUTanh")),
    _hub("activations.ClippedGELUActivation", "{low}, {high}", ranks=ANY, picks={"low": [-1.0], "high": [1.0, 2.0]}),
    _hub("pytorch_utils.Conv1D", "{out}, {d}", rule=TO_LAST, sizes=LAST, picks={"out": "features"}),
    _hub("models.llama.modeling_llama.LlamaRMSNorm", "{d}", sizes=LAST),
    _hub("models.t5.modeling_t5.T5LayerNorm", "{d}", sizes=LAST),
    _hub("models.gemma.modeling_gemma.GemmaRMSNorm", "{d}", sizes=LAST),
    _hub("models.cohere.modeling_cohere.CohereLayerNorm", "{d}", sizes=LAST),
    _hub("models.llama.modeling_llama.LlamaMLP", f"LlamaConfig({_wide(ONE_HEAD)})", "LlamaConfig", **WIDE),
    _hub("models.qwen2.modeling_qwen2.Qwen2MLP", f"Qwen2Config({_wide('')})", "Qwen2Config", **WIDE),
    _hub("models.gemma.modeling_gemma.GemmaMLP", f"GemmaConfig({_wide('')})", "GemmaConfig", **WIDE),
    _hub("models.phi.modeling_phi.PhiMLP", f"PhiConfig({_wide('')})", "PhiConfig", **WIDE),
    _hub("models.clip.modeling_clip.CLIPMLP", f"CLIPVisionConfig({_wide(ONE_HEAD)})", "CLIPVisionConfig", **WIDE),
    _hub("models.siglip.modeling_siglip.SiglipMLP", f"SiglipVisionConfig({_wide('')})", "SiglipVisionConfig", **WIDE),
    _hub("models.bert.modeling_bert.BertIntermediate", f"BertConfig({_wide('')})", "BertConfig",
         rule={"kind": "last", "to": "wide"}, **WIDE),
    _hub("models.gpt2.modeling_gpt2.GPT2MLP", "{wide}, GPT2Config(n_embd={d})", "GPT2Config", **WIDE),
    _hub("models.t5.modeling_t5.T5DenseActDense", "T5Config(d_model={d}, d_ff={wide})", "T5Config", **WIDE),
    _hub("models.t5.modeling_t5.T5DenseGatedActDense", "T5Config(d_model={d}, d_ff={wide})", "T5Config", **WIDE),
    _hub("models.dinov2.modeling_dinov2.Dinov2LayerScale", "Dinov2Config(hidden_size={d}, layerscale_value=0.5)",
         "Dinov2Config", sizes=LAST),
    _hub("models.clip.modeling_clip.CLIPAttention",
         'CLIPVisionConfig(hidden_size={d}, num_attention_heads={heads}, attn_implementation="sdpa")',
         "CLIPVisionConfig", call="{self}({x})[0]", **HEADS),
    _hub("models.siglip.modeling_siglip.SiglipAttention",
         'SiglipVisionConfig(hidden_size={d}, num_attention_heads={heads}, attn_implementation="sdpa")',
         "SiglipVisionConfig", call="{self}({x})[0]", **HEADS),
    _hub("models.vit.modeling_vit.ViTAttention",
         'ViTConfig(hidden_size={d}, num_attention_heads={heads}, attn_implementation="sdpa")', "ViTConfig",
         call="{self}({x})[0]", **HEADS),
    _hub("models.bert.modeling_bert.BertSelfAttention",
         'BertConfig(hidden_size={d}, num_attention_heads={heads}, attn_implementation="sdpa")', "BertConfig",
         call="{self}({x})[0]", **HEADS),
)  # fmt: skip
