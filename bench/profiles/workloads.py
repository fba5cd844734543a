"""Small trainings of many kinds on synthetic data, each defined by command-line flags alone.

    python bench/profiles/workloads.py --model resnet50 --batch 64 --size 224 --precision bf16 --optimizer adam

Data lie in the host's memory and are copied to the device step by step, as a loader would.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

CLASSES = 1000
WORDS = 32_000
TABLES = 16
DENSE = 13
NOISE = 100
HOST_BATCHES = 2
WARM_UP_STEPS = 4
PRECISIONS = ("fp32", "tf32", "bf16", "fp16")
OPTIMIZERS = ("sgd", "momentum", "adam", "adamw")


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """The flags of a training; `size` is in pixels, tokens or rows of a table, depending on the model."""

    model: str
    batch: int
    size: int
    precision: str
    optimizer: str


class Language(nn.Module):
    """A causal transformer that predicts the next word."""

    def __init__(self, layers: int, width: int, heads: int, longest: int) -> None:
        super().__init__()
        self.words = nn.Embedding(WORDS, width)
        self.places = nn.Embedding(longest, width)
        block = nn.TransformerEncoderLayer(width, heads, 4 * width, 0.0, "gelu", batch_first=True, norm_first=True)
        self.blocks = nn.TransformerEncoder(block, layers, enable_nested_tensor=False)
        self.head = nn.Linear(width, WORDS, bias=False)

    def forward(self, words: Tensor) -> Tensor:
        length = words.shape[1]
        mask = nn.Transformer.generate_square_subsequent_mask(length, device=words.device)
        inner = self.words(words) + self.places.weight[:length]
        return self.head(self.blocks(inner, mask=mask, is_causal=True))


class Recurrent(nn.Module):
    """Long short-term memories that predict the next word."""

    def __init__(self, layers: int, width: int) -> None:
        super().__init__()
        self.words = nn.Embedding(WORDS, width)
        self.memory = nn.LSTM(width, width, layers, batch_first=True)
        self.head = nn.Linear(width, WORDS)

    def forward(self, words: Tensor) -> Tensor:
        return self.head(self.memory(self.words(words))[0])


class Recommender(nn.Module):
    """Embeddings of categories, pairwise products, and layers on top, as for clicks on advertisements."""

    def __init__(self, rows: int, width: int) -> None:
        super().__init__()
        self.tables = nn.ModuleList(nn.Embedding(rows, width) for _ in range(TABLES))
        self.bottom = nn.Sequential(nn.Linear(DENSE, 512), nn.ReLU(), nn.Linear(512, width), nn.ReLU())
        pairs = (TABLES + 1) * TABLES // 2
        self.top = nn.Sequential(
            nn.Linear(pairs + width, 1024), nn.ReLU(), nn.Linear(1024, 256), nn.ReLU(), nn.Linear(256, 1)
        )

    def forward(self, dense: Tensor, sparse: Tensor) -> Tensor:
        low = self.bottom(dense)
        seen = torch.stack([low, *(table(sparse[:, n]) for n, table in enumerate(self.tables))], 1)
        product = seen @ seen.transpose(1, 2)
        upper = torch.triu_indices(TABLES + 1, TABLES + 1, 1, device=dense.device)
        return self.top(torch.cat([low, product[:, upper[0], upper[1]]], 1)).squeeze(1)


class Adversaries(nn.Module):
    """A generator of images and its critic; one step trains both."""

    def __init__(self, size: int, width: int) -> None:
        super().__init__()
        depth = size.bit_length() - 3
        made: list[nn.Module] = [nn.ConvTranspose2d(NOISE, width << (depth - 1), 4), nn.ReLU()]
        critic_loss: list[nn.Module] = []
        for level in range(depth - 1, 0, -1):
            made += [
                nn.ConvTranspose2d(width << level, width << (level - 1), 4, 2, 1),
                nn.BatchNorm2d(width << (level - 1)),
                nn.ReLU(),
            ]
        made += [nn.ConvTranspose2d(width, 3, 4, 2, 1), nn.Tanh()]
        for level in range(depth):
            critic_loss += [
                nn.Conv2d(3 if level == 0 else width << (level - 1), width << level, 4, 2, 1),
                nn.LeakyReLU(0.2),
            ]
        critic_loss += [nn.Conv2d(width << (depth - 1), 1, 4)]
        self.maker, self.critic = nn.Sequential(*made), nn.Sequential(*critic_loss)

    def forward(self, real: Tensor) -> Tensor:
        noise = torch.randn(real.shape[0], NOISE, 1, 1, device=real.device)
        fake = self.maker(noise)
        logits = torch.cat([self.critic(real), self.critic(fake.detach())]).flatten()
        truth = torch.cat([torch.ones(len(real)), torch.zeros(len(real))]).to(logits)
        fooled = self.critic(fake).flatten()
        critic_loss = functional.binary_cross_entropy_with_logits(logits.float(), truth.float())
        return critic_loss + functional.binary_cross_entropy_with_logits(
            fooled.float(), torch.ones_like(fooled).float()
        )


@dataclass(frozen=True, slots=True)
class Kind:
    """How models of one family are made, fed and critic_loss."""

    family: str
    make: Callable[[Config], nn.Module]
    data: Callable[[Config, int], tuple[Tensor, ...]]
    loss: Callable[[nn.Module, tuple[Tensor, ...]], Tensor]


def images(config: Config, batch: int) -> tuple[Tensor, ...]:
    return torch.randn(batch, 3, config.size, config.size), torch.randint(CLASSES, (batch,))


def text(config: Config, batch: int) -> tuple[Tensor, ...]:
    return (torch.randint(WORDS, (batch, config.size + 1)),)


def clicks(config: Config, batch: int) -> tuple[Tensor, ...]:
    sparse = torch.randint(config.size, (batch, TABLES))
    return torch.randn(batch, DENSE), sparse, torch.randint(2, (batch,)).float()


def class_loss(model: nn.Module, given: tuple[Tensor, ...]) -> Tensor:
    return functional.cross_entropy(model(given[0]), given[1])


def word_loss(model: nn.Module, given: tuple[Tensor, ...]) -> Tensor:
    logits = model(given[0][:, :-1])
    return functional.cross_entropy(logits.flatten(0, 1), given[0][:, 1:].flatten())


def click_loss(model: nn.Module, given: tuple[Tensor, ...]) -> Tensor:
    return functional.binary_cross_entropy_with_logits(model(given[0], given[1]).float(), given[2])


def own_loss(model: nn.Module, given: tuple[Tensor, ...]) -> Tensor:
    return model(given[0])


def vision(name: str) -> Callable[[Config], nn.Module]:
    def make(config: Config) -> nn.Module:
        import torchvision

        options = {"image_size": config.size} if name.startswith("vit") else {}
        return torchvision.models.get_model(name, weights=None, num_classes=CLASSES, **options)

    return make


def image_kind(family: str, name: str) -> Kind:
    return Kind(family, vision(name), images, class_loss)


KINDS: dict[str, Kind] = {
    **{name: image_kind("cnn", name) for name in ("resnet18", "resnet50", "resnet152", "vgg16", "densenet121")},
    **{name: image_kind("mobile", name) for name in ("mobilenet_v3_large", "efficientnet_b0", "shufflenet_v2_x1_0")},
    **{name: image_kind("vit", name) for name in ("vit_b_16", "vit_l_16")},
    "lstm-small": Kind("lstm", lambda c: Recurrent(2, 512), text, word_loss),
    "lstm-large": Kind("lstm", lambda c: Recurrent(2, 1536), text, word_loss),
    "gpt-tiny": Kind("transformer", lambda c: Language(4, 256, 4, c.size), text, word_loss),
    "gpt-small": Kind("transformer", lambda c: Language(8, 512, 8, c.size), text, word_loss),
    "gpt-base": Kind("transformer", lambda c: Language(12, 768, 12, c.size), text, word_loss),
    "gpt-medium": Kind("transformer", lambda c: Language(24, 1024, 16, c.size), text, word_loss),
    "dlrm-narrow": Kind("recommender", lambda c: Recommender(c.size, 32), clicks, click_loss),
    "dlrm-wide": Kind("recommender", lambda c: Recommender(c.size, 128), clicks, click_loss),
    "dcgan": Kind("gan", lambda c: Adversaries(c.size, 64), images, own_loss),
    "dcgan-wide": Kind("gan", lambda c: Adversaries(c.size, 128), images, own_loss),
}


def in_host_memory(part: Tensor) -> Tensor:
    """A copy from which the device can read at full speed."""
    held = part.cpu()
    return held.pin_memory() if part.is_cuda else held


class Training:
    """One training, step by step."""

    def __init__(self, config: Config, device: str) -> None:
        torch.manual_seed(0)
        self.config, self.kind, self.device = config, KINDS[config.model], torch.device(device)
        torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = config.precision != "fp32"
        with self.device:
            self.model = self.kind.make(config).train()
            batches = [self.kind.data(config, config.batch) for _ in range(HOST_BATCHES)]
        self.optimizer = self._optimizer()
        self.scaler = torch.amp.GradScaler(self.device.type, enabled=config.precision == "fp16")
        self.batches = [tuple(map(in_host_memory, batch)) for batch in batches]

    def step(self, number: int) -> Tensor:
        """Copy one batch to the device, and learn from it."""
        given = tuple(part.to(self.device, non_blocking=True) for part in self.batches[number % HOST_BATCHES])
        self.optimizer.zero_grad(set_to_none=True)
        with self._precision():
            loss = self.kind.loss(self.model, given)
        self.scaler.scale(loss).backward()
        self.scaler.step(self.optimizer)
        self.scaler.update()
        return loss.detach()

    def finish(self) -> None:
        """Wait until the device has done all that it was given."""
        if self.device.type == "cuda":
            torch.cuda.synchronize()

    def white_box(self) -> dict[str, float]:
        """What can be known without a run: parameters, and bytes kept for the way back and operations by sample."""
        from torch.utils.flop_counter import FlopCounterMode

        few = 2
        given = tuple(part[:few].to(self.device) for part in self.batches[0])
        kept: dict[int, int] = {}
        own = {each.untyped_storage().data_ptr() for each in self.model.parameters()}

        def note(tensor: Tensor) -> Tensor:
            """Without its history: a graph which holds its own outputs would never be freed."""
            storage = tensor.untyped_storage()
            if storage.data_ptr() not in own:
                kept[storage.data_ptr()] = storage.nbytes()
            return tensor.detach()

        with FlopCounterMode(display=False) as counter, torch.autograd.graph.saved_tensors_hooks(note, lambda x: x):
            loss = self.kind.loss(self.model, given)
        flops = counter.get_total_flops() + few * self._recurrent_flops()
        del loss
        return {
            "params": sum(each.numel() for each in self.model.parameters()),
            "activation_bytes_per_sample": sum(kept.values()) / few,
            "flops_per_sample": flops / few,
            "input_bytes_per_sample": sum(part.nbytes for part in self.batches[0]) / self.config.batch,
        }

    def _recurrent_flops(self) -> float:
        """Of LSTMs, which the counter leaves out."""
        memories = [each for each in self.model.modules() if isinstance(each, nn.LSTM)]
        cells = sum(4 * m.hidden_size * (m.hidden_size + m.input_size) * m.num_layers for m in memories)
        return 2.0 * cells * self.config.size

    def _precision(self) -> contextlib.AbstractContextManager[Any]:
        kinds = {"bf16": torch.bfloat16, "fp16": torch.float16}
        if self.config.precision in kinds:
            return torch.autocast(self.device.type, kinds[self.config.precision])
        return contextlib.nullcontext()

    def _optimizer(self) -> torch.optim.Optimizer:
        weights = self.model.parameters()
        match self.config.optimizer:
            case "sgd":
                return torch.optim.SGD(weights, 0.01)
            case "momentum":
                return torch.optim.SGD(weights, 0.01, momentum=0.9)
            case "adam":
                return torch.optim.Adam(weights, 1e-4)
            case "adamw":
                return torch.optim.AdamW(weights, 1e-4)
        raise ValueError(f"there is no optimizer {self.config.optimizer!r}")


def steps_for(training: Training, seconds: float) -> Iterator[int]:
    """Step for a while after warming up; gives the number of steps done when all are finished."""
    for number in range(WARM_UP_STEPS):
        training.step(number)
    training.finish()
    yield 0
    begun, done = time.monotonic(), 0
    while time.monotonic() - begun < seconds:
        for _ in range(4):
            training.step(done)
            done += 1
        training.finish()
        yield done


def parse() -> tuple[Config, argparse.Namespace]:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", choices=sorted(KINDS), required=True)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--size", type=int, default=64, help="pixels, words, or rows of a table")
    parser.add_argument("--precision", choices=PRECISIONS, default="fp32")
    parser.add_argument("--optimizer", choices=OPTIMIZERS, default="momentum")
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    asked = parser.parse_args()
    chosen = {name: getattr(asked, name) for name in Config.__dataclass_fields__}
    return Config(**chosen), asked


def main() -> None:
    config, asked = parse()
    training = Training(config, asked.device)
    begun = time.monotonic()
    done = 0
    for done in steps_for(training, asked.seconds):
        if done == 0:
            begun = time.monotonic()
    print(json.dumps({"steps": done, "step_s": (time.monotonic() - begun) / done, **training.white_box()}))


if __name__ == "__main__":
    main()
