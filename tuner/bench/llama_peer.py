"""llama.cpp as a peer: its server on the same weights in float32, plain and with its own lookup.

Its drafts by a model are left out: it wants a draft with the target's whole vocabulary, and the
shipped one has a reduced output layer, whose absent tokens a GGUF file cannot name.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import gguf

from collectors.records import OFF, Method, Setting
from tuner.bench.servers import PEER_ENVIRON, ServerCommand

_LOOKUP_TOKENS = 3
_DRAFT_LENGTH = 5
_LOOKUP = Setting(
    method=Method.PROMPT_LOOKUP,
    k=_DRAFT_LENGTH,
    lookup_min=_LOOKUP_TOKENS,
    lookup_max=_LOOKUP_TOKENS,
)
"""Its ``ngram-simple``: the latest match of n-grams of one length."""

_NOT_COPIED = ("GGUF.", "general.architecture", "general.file_type")


@dataclass(frozen=True, slots=True, kw_only=True)
class LlamaServer:
    """How its server is run.

    Attributes:
        program: the server.
        threads: CPU threads.
        slots: sequences together at most.
        context_tokens: of each sequence.
    """

    program: str
    threads: int
    slots: int
    context_tokens: int

    def command(self, weights: Path, *more: str) -> ServerCommand:
        """Return the command for some weights; `more` are further options."""
        threads = str(self.threads)
        return ServerCommand(
            name="llama-server",
            arguments=(
                *(self.program, "--model", str(weights)),
                *("--threads", threads, "--threads-batch", threads),
                *("--parallel", str(self.slots)),
                *("--ctx-size", str(self.context_tokens * self.slots)),
                *("--host", "127.0.0.1", "--port", "{port}"),
                *more,
            ),
            environ=PEER_ENVIRON,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class LlamaCase:
    """What its server does, and the Setting of ours that does the same."""

    name: str
    command: ServerCommand
    setting: Setting


def llama_cases(server: LlamaServer, weights: Path, folder: Path) -> Iterator[LlamaCase]:
    """Yield what is compared.

    Args:
        server: how it is run.
        weights: a GGUF file.
        folder: where its copy in float32 goes.
    """
    same = folder / "float32.gguf"
    float32_copy(weights, same)
    yield LlamaCase(name="plain, same weights in F32", command=server.command(same), setting=OFF)
    lookup = server.command(
        same,
        *("--spec-type", "ngram-simple"),
        *("--spec-ngram-simple-size-n", str(_LOOKUP_TOKENS)),
        *("--spec-ngram-simple-size-m", str(_DRAFT_LENGTH)),
    )
    yield LlamaCase(name="prompt_lookup, same weights in F32", command=lookup, setting=_LOOKUP)
    own = "plain, its weights as in its file against ours in float32"
    yield LlamaCase(name=own, command=server.command(weights), setting=OFF)


def float32_copy(source: Path, copy: Path) -> None:
    """Write a GGUF file anew with every tensor in float32.

    Args:
        source: the file.
        copy: where the copy goes.
    """
    reader = gguf.GGUFReader(source)
    writer = gguf.GGUFWriter(copy, reader.fields["general.architecture"].contents())
    writer.add_file_type(gguf.LlamaFileType.ALL_F32)
    for field in reader.fields.values():
        if not field.name.startswith(_NOT_COPIED):
            value_type = field.types[0]
            is_array = value_type is gguf.GGUFValueType.ARRAY
            item_type = field.types[-1] if is_array else None
            writer.add_key_value(field.name, field.contents(), value_type, item_type)
    for tensor in reader.tensors:
        values = gguf.quants.dequantize(tensor.data, tensor.tensor_type)
        writer.add_tensor(tensor.name, values.astype("float32"))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
