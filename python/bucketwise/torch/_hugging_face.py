"""A model of Hugging Face Transformers from a local configuration, and inputs of it. Nothing is downloaded."""

import functools
import inspect
import json
import os
import sys
from pathlib import Path
from typing import List, Sequence

import torch


DEQUANTISED = ("mxfp4",)  # quantised for use alone
# Values of keys that a configuration without them means, where transformers takes others.
MISSING = {"deepseek_v2": {"q_lora_rank": None}}
PARTS = ("text_config", "vision_config", "audio_config", "encoder", "decoder")
SIZES = ("hidden_size", "num_hidden_layers", "intermediate_size")
WITH_HIDDEN_SIZE = ("num_hidden_layers", "num_attention_heads", "intermediate_size")


class Refused(Exception):
    """A model cannot be described: file or option, JSON pointer, expected, got."""

    def __str__(self):
        file, pointer, expected, got = self.args
        return f"{file}: {pointer + ': ' if pointer else ''}expected {expected}, got {got}"

    def parts(self):
        return dict(zip(("file", "pointer", "expected", "got"), map(str, self.args)))


def build(file):
    """Returns the model on the meta device, its configuration and notes. `file`: config.json, or its folder."""
    path = Path(file)
    path = path / "config.json" if path.is_dir() else path
    try:
        document = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise Refused(path, "", "a model configuration", error) from None
    notes = _notes(document)
    quantised = document.pop("quantization_config", None)
    if quantised and quantised.get("quant_method") not in DEQUANTISED:
        raise Refused(path, "/quantization_config", "none: quantised weights are not trained", "one")
    if quantised:
        notes.append("quantised weights are taken as dequantised for training")
    os.environ["HF_HUB_OFFLINE"] = "1"
    try:
        import transformers
    except ImportError:
        sys.exit("bucketwise.torch.describe: transformers is not installed for this Python")
    transformers.utils.logging.set_verbosity_error()
    kind = document.get("model_type")
    if kind not in transformers.CONFIG_MAPPING:
        raise Refused(path, "/model_type", f"a model that transformers {transformers.__version__} has", kind)
    for key, value in MISSING.get(kind, {}).items():
        document.setdefault(key, value)
    config = _config(transformers.CONFIG_MAPPING[kind], document, notes)
    missing = [key for key in WITH_HIDDEN_SIZE if key not in document and hasattr(config.get_text_config(), key)]
    if "hidden_size" in document and "num_attention_heads" in missing:
        notes.append(f"the configuration does not give {', '.join(missing)}: taken as transformers has them")
    named = [name for name in document.get("architectures") or () if hasattr(transformers, name)]
    model_class = getattr(transformers, named[0]) if named else _usual_class(transformers, config)
    if not named:
        notes.append(f"no architecture of transformers is named: taken for {model_class.__name__}")
    config.use_cache = False
    if getattr(config.get_text_config(), "pad_token_id", 0) is None:
        config.get_text_config().pad_token_id = 0
    if getattr(config, "is_encoder_decoder", False) and getattr(config, "decoder_start_token_id", None) is None:
        config.decoder_start_token_id = 0
    model = _build(transformers, model_class, config)
    if document.get("tie_word_embeddings") is False:
        _untie(model)
    return model, config, notes


def _notes(document):
    """Sizes that parts of the configuration leave to transformers."""
    found = []
    for part in PARTS:
        if isinstance(document.get(part), dict):
            missing = [key for key in SIZES if key not in document[part]]
            if "num_hidden_layers" in missing and not {"depth", "num_layers"} & document[part].keys():
                found.append(f"{part} does not give {', '.join(missing)}: taken as transformers has them")
    return found


def _config(config_class, document, notes):
    try:
        return config_class.from_dict(document)
    except KeyError:  # positions are scaled by keys that are not there; they have no parameters
        kept = {key: value for key, value in document.items() if key not in ("rope_scaling", "rope_parameters")}
        notes.append("rope_scaling is incomplete: it is left out")
        return config_class.from_dict(kept)


def _untie(model):
    """transformers 5 ties all heads, and loads an untied one where the weights have it."""
    head, table = model.get_output_embeddings(), model.get_input_embeddings()
    if head is not None and table is not None and head.weight is table.weight:
        head.weight = torch.nn.Parameter(torch.empty_like(table.weight))


def _usual_class(transformers, config):
    for automatic in (transformers.AutoModelForCausalLM, transformers.AutoModel):
        if type(config) in automatic._model_mapping:
            found = automatic._model_mapping[type(config)]
            return found[0] if isinstance(found, tuple) else found
    raise Refused(type(config).__name__, "/architectures", "the name of a model of transformers", "none")


def _build(transformers, model_class, config):
    try:
        from transformers.initialization import no_init_weights
    except ImportError:  # transformers 4
        from transformers.modeling_utils import no_init_weights
    with torch.device("meta"), no_init_weights():
        model = model_class(config)
    model.tie_weights()
    _answer_without_values(model)
    return model


def _answer_without_values(model):
    """Replaces what the model's code asks of values. Sequences are not packed, images are where tokens say, and a scan
    over the sequence is the one kernel of mamba_ssm."""
    masks = sys.modules.get("transformers.masking_utils")
    if masks is not None:
        masks.find_packed_sequence_indices = lambda *_: None
    for name in {type(module).__module__ for module in model.modules()}:
        code = sys.modules[name]
        if hasattr(code, "torch_compilable_check"):
            code.torch_compilable_check = lambda *_, **__: None
        if hasattr(code, "mamba_selective_scan"):
            code.mamba_selective_scan = _fused_scan()


@functools.lru_cache(maxsize=None)
def _fused_scan():
    """Reads and writes what mamba_ssm's selective_scan_fn does, forward and backward."""
    @torch.library.custom_op("bucketwise::selective_scan", mutates_args=())
    def scan(inputs: Sequence[torch.Tensor]) -> torch.Tensor:
        return torch.empty_like(inputs[0])

    @torch.library.custom_op("bucketwise::selective_scan_backward", mutates_args=())
    def scan_backward(gradient: torch.Tensor, inputs: Sequence[torch.Tensor]) -> List[torch.Tensor]:
        return [torch.empty_like(one) for one in inputs]

    scan.register_fake(lambda inputs: torch.empty_like(inputs[0]))
    scan_backward.register_fake(lambda gradient, inputs: [torch.empty_like(one) for one in inputs])
    scan.register_autograd(lambda ctx, gradient: (scan_backward(gradient, list(ctx.saved_tensors)),),
                           setup_context=lambda ctx, inputs, output: ctx.save_for_backward(*inputs[0]))

    def fused(hidden_states, dt, A, B, C, D=None, z=None, delta_bias=None, return_last_state=False, **_):
        result = scan([one for one in (hidden_states, dt, A, B, C, D, z, delta_bias) if one is not None])
        return (result, None) if return_last_state else result

    return fused


def inputs(model, config, batch, sequence, with_images=True):
    """Returns keyword arguments of forward, and whether the model reads sequences. To be called under the mode that
    makes tensors without memory."""
    takes = inspect.signature(model.forward).parameters
    text = config.get_text_config()
    made = {}
    tokens = torch.zeros(batch, sequence, dtype=torch.long)
    main = model.main_input_name
    reads_text = main == "input_ids" or "input_ids" in takes
    if reads_text:
        made["input_ids"] = tokens.unsqueeze(1) if "MultipleChoice" in type(model).__name__ else tokens
    if "pixel_values" in takes and (with_images or main == "pixel_values"):
        made["pixel_values"] = _images(config, batch)
    if "token_type_ids" in takes and hasattr(config, "vision_config"):
        made["token_type_ids"] = tokens
    if main == "input_features":
        made = {"input_features": torch.zeros(batch, config.num_mel_bins, 2 * config.max_source_positions)}
    if main == "input_values":
        made = {"input_values": torch.zeros(batch, 16000 * max(1, sequence // 50))}
    if getattr(config, "is_encoder_decoder", False) and "labels" in takes:
        made["labels"] = tokens
    elif "labels" in takes:
        labels = _labels(type(model).__name__, text, made, batch, sequence)
        if labels is not None:
            made["labels"] = labels
    if "start_positions" in takes:
        made.update(start_positions=tokens[:, 0], end_positions=tokens[:, 0])
    if "next_sentence_label" in takes:
        made["next_sentence_label"] = tokens[:, 0]
    if "return_loss" in takes:
        made["return_loss"] = True
    dtype = next(p.dtype for p in model.parameters() if p.dtype.is_floating_point)
    return {name: value.to(dtype) if isinstance(value, torch.Tensor) and value.is_floating_point() else value
            for name, value in made.items()}, reads_text or main == "input_features"


def _images(config, batch):
    vision = getattr(config, "vision_config", config)
    size = getattr(vision, "image_size", None) or 224
    height, width = size if isinstance(size, (list, tuple)) else (size, size)
    return torch.zeros(batch, getattr(vision, "num_channels", 3), height, width)


def _labels(name, text, made, batch, sequence):
    if "ImageClassification" in name or "SequenceClassification" in name or "NextSentence" in name:
        return torch.zeros(batch, dtype=torch.long)
    if "pixel_values" in made and "input_ids" not in made:
        return None
    if "MultipleChoice" in name or "CTC" in name:  # of one choice; lengths are values
        return None
    return made["input_ids"] if "input_ids" in made else None


def loss_of(output):
    """The tensors that backward begins at: the loss, or else all results that have a gradient."""
    loss = getattr(output, "loss", None)
    if isinstance(output, torch.Tensor):
        return [output]
    if loss is not None:
        return [loss]
    from torch.utils._pytree import tree_leaves

    values = output.values() if hasattr(output, "values") else output
    return [leaf for leaf in tree_leaves(list(values)) if isinstance(leaf, torch.Tensor) and leaf.requires_grad]
