"""The stdlib_lm pipeline: packing, the bigram baseline, and the promises that the step builds on."""

from __future__ import annotations

import math
import sysconfig
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from pipelines.stdlib_lm import StdlibLM, bigram_bits_per_byte, in_validation, pack, record_batches, source_files
from pipelines.stdlib_lm_settings import ModelSettings
from pliant.errors import ConfigError

CONTEXT = 8


@pytest.fixture
def lm():
    return StdlibLM(ModelSettings(context=CONTEXT, width=16, depth=2, heads=2, dropout=0.0))


def schema(context):
    return pa.schema({"tokens": pa.list_(pa.uint8(), context + 1), "length": pa.int32()})


def rows(lengths, seed=0):
    generator = torch.Generator().manual_seed(seed)
    tokens = torch.randint(256, (len(lengths), CONTEXT + 1), generator=generator).to(torch.uint8)
    return {"tokens": tokens, "length": torch.tensor(lengths, dtype=torch.int32)}


def part(batch, index):
    return {name: column[index] for name, column in batch.items()}


# --- data


@given(st.lists(st.binary(max_size=40).map(lambda b: b.replace(b"\0", b"x")), max_size=6), st.integers(1, 9))
def test_every_byte_is_a_target_once_and_follows_its_predecessor(documents, context):
    stream = b"".join(document + b"\0" for document in documents)
    targets, inputs = bytearray(), bytearray()
    for tokens, length in pack(documents, context):
        assert (tokens.dtype, length.dtype) == (np.uint8, np.int32)
        assert tokens.shape == (len(length), context + 1)
        for row, count in zip(tokens, length, strict=True):
            assert 1 <= count <= context
            assert not row[count + 1 :].any()
            inputs += row[:count].tobytes()
            targets += row[1 : count + 1].tobytes()

    assert bytes(targets) == stream
    assert bytes(inputs) == (b"\0" + stream)[: len(stream)]


def test_packing_is_the_same_whatever_its_chunks_and_pads_only_the_last_row(monkeypatch):
    documents = [bytes([65 + i]) * (7 * i) for i in range(12)]
    whole = [np.concatenate(arrays) for arrays in zip(*pack(documents, 5), strict=True)]
    monkeypatch.setattr("pipelines.stdlib_lm.ROWS_PER_BATCH", 2)
    chunks = list(pack(documents, 5))

    assert len(chunks) > 10
    assert all(len(length) <= 2 for _, length in chunks)
    for array, again in zip(whole, (np.concatenate(arrays) for arrays in zip(*chunks, strict=True)), strict=True):
        assert np.array_equal(array, again)
    assert (whole[1][:-1] == 5).all()


def test_packing_streams():
    """A row comes out long before the last document is read."""
    documents = iter([b"x" * 10_000] * 1000)
    next(pack(documents, CONTEXT))
    assert len(list(documents)) > 990


def test_source_files_leave_out_what_is_installed(tmp_path):
    for name in ("b.py", "a/z.py", "a.py", "site-packages/p.py", "lib/dist-packages/q.py", "__pycache__/c.py", "n.txt"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("")
    assert [f.relative_to(tmp_path).as_posix() for f in source_files(tmp_path)] == ["a.py", "a/z.py", "b.py"]


def test_prepare_covers_the_library_and_repeats_itself(lm):
    root = Path(sysconfig.get_paths()["stdlib"])
    files = source_files(root)
    sizes = {f.relative_to(root).as_posix(): f.stat().st_size for f in files}
    held_out = {name: size for name, size in sizes.items() if in_validation(name)}
    assert 0.005 < sum(held_out.values()) / sum(sizes.values()) < 0.05

    train, validation = lm.prepare()
    assert (train.name, validation.name) == ("train", "validation")
    assert train.schema.equals(schema(CONTEXT))
    assert next(train.batches).equals(next(next(lm.prepare()).batches))
    counted = sum(batch.column("length").to_numpy().sum() for batch in validation.batches)
    assert counted == sum(held_out.values()) + len(held_out)


def test_collate_gives_tensors_of_the_columns_own_types(lm):
    table = pa.Table.from_batches(record_batches([b"print('hello')"], CONTEXT, schema(CONTEXT)))
    for part_of_it in (table, table.slice(0, 0)):
        batch = lm.collate(part_of_it)
        assert {name: (column.dtype, tuple(column.shape)) for name, column in batch.items()} == {
            "tokens": (torch.uint8, (part_of_it.num_rows, CONTEXT + 1)),
            "length": (torch.int32, (part_of_it.num_rows,)),
        }


def test_rows_of_another_length_are_refused_with_the_setting_to_change(lm):
    table = pa.Table.from_batches(record_batches([b"print('hello')"], 5, schema(5)))
    with pytest.raises(ConfigError, match=r"(?s)rows of 6 bytes.*model.context=5"):
        lm.collate(table)


# --- baseline


def brute_force_bits(train: bytes, validation: bytes) -> float:
    """Add-one bigram over the 256 bytes; each text ends with its separator and starts after one."""
    counts: dict[tuple[int, int], int] = {}
    totals: dict[int, int] = {}
    for before, byte in zip(b"\0" + train, train, strict=False):
        counts[before, byte] = counts.get((before, byte), 0) + 1
        totals[before] = totals.get(before, 0) + 1
    bits = [
        math.log2(totals.get(before, 0) + 256) - math.log2(counts.get((before, byte), 0) + 1)
        for before, byte in zip(b"\0" + validation, validation, strict=False)
    ]
    return sum(bits) / len(bits)


def test_bigram_equals_brute_force(lm, tmp_path):
    train, validation = b"import os\nimport sys\n" * 3, b"import re\nx = os"
    for name, text in (("train", train), ("validation", validation)):
        (tmp_path / name).mkdir()
        table = pa.Table.from_batches(record_batches([text], CONTEXT, schema(CONTEXT)))
        pq.write_table(table, tmp_path / name / "0.parquet", row_group_size=2)

    figures = lm.baseline(str(tmp_path / "train"), str(tmp_path / "validation"))
    assert figures["bigram_bits_per_byte"] == pytest.approx(brute_force_bits(train + b"\0", validation + b"\0"))


def test_bigram_reads_slices_of_batches_as_they_are():
    (batch,) = record_batches([b"import os, sys, re, json"], CONTEXT, schema(CONTEXT))
    parts = [batch.slice(0, 1), batch.slice(1)]
    assert bigram_bits_per_byte(parts, parts) == bigram_bits_per_byte([batch], [batch])


# --- model and loss


def test_no_rows_give_zero_sums_and_zero_gradients(lm):
    model = lm.model()
    loss = lm.loss(model, rows([]))
    loss.total.backward()

    assert (loss.total.item(), loss.weight.item(), loss.tokens) == (0, 0, 0)
    assert all(p.grad is not None and not p.grad.any() for p in model.parameters())


def test_sums_and_gradients_of_a_batch_are_those_of_its_parts(lm):
    model = lm.model().double()
    batch = rows([8, 3, 8, 0, 1])
    parts = [lm.loss(model, part(batch, index)) for index in (slice(0, 2), slice(2, 5))]
    sum(p.total for p in parts).backward()
    of_parts = [p.grad.clone() for p in model.parameters()]
    model.zero_grad()
    whole = lm.loss(model, batch)
    whole.total.backward()

    torch.testing.assert_close(whole.total, sum(p.total for p in parts), rtol=1e-6, atol=0)
    assert whole.weight.item() == sum(p.weight.item() for p in parts) == 20
    assert whole.tokens == sum(p.tokens for p in parts) == 20
    torch.testing.assert_close([p.grad for p in model.parameters()], of_parts, rtol=1e-5, atol=1e-6)


def test_padding_changes_neither_loss_nor_gradients(lm):
    model = lm.model()
    batch = rows([8, 3])
    padded = {name: column.clone() for name, column in batch.items()}
    padded["tokens"][1, 4:] = 7  # targets after the third: not counted
    gradients = []
    for b in (batch, padded):
        model.zero_grad()
        loss = lm.loss(model, b)
        loss.total.backward()
        gradients.append((loss.total, *(p.grad.clone() for p in model.parameters())))

    torch.testing.assert_close(gradients[0], gradients[1])


def test_a_position_sees_only_what_is_before_it_and_only_its_own_row(lm):
    model = lm.model().eval()
    tokens = torch.randint(256, (2, CONTEXT), generator=torch.Generator().manual_seed(0))
    changed = tokens.clone()
    changed[0, 5] = (changed[0, 5] + 1) % 256
    difference = (model(tokens) - model(changed)).abs().amax(dim=2) > 1e-7

    assert difference.tolist() == [[False] * 5 + [True] * 3, [False] * CONTEXT]


def test_history_embeds_the_bytes_before_each_byte():
    lm = StdlibLM(ModelSettings(context=CONTEXT, width=16, depth=1, heads=2, history=2))
    model = lm.model()
    tokens = torch.tensor([[1, 2, 3]])
    table = model.embedding.weight
    embedded = []
    model.blocks[0].register_forward_pre_hook(lambda _, inputs: embedded.append(inputs[0]))
    model(tokens)

    assert len(table) == 3 * 256
    torch.testing.assert_close(embedded[0][0, 2], table[3] + table[256 + 2] + table[512 + 1])
    torch.testing.assert_close(embedded[0][0, 0], table[1] + table[256 + 0] + table[512 + 0])


def test_positions_matter(lm):
    logits = lm.model().eval()(torch.tensor([[1, 2, 3], [2, 1, 3]]))
    assert not torch.allclose(logits[0, 2], logits[1, 2])


def test_an_untrained_model_is_close_to_uniform(lm):
    loss = lm.loss(lm.model(), rows([8] * 32))
    assert loss.total.item() / loss.weight.item() == pytest.approx(math.log(256), abs=0.3)


def test_fsdp2_shards_every_block(lm):
    assert len(lm.blocks(lm.model())) == lm.settings.depth


def test_the_seed_decides_initialisation_and_dropout():
    lm = StdlibLM(ModelSettings(context=CONTEXT, width=16, depth=1, heads=2, dropout=0.5))

    def total(seed):
        torch.manual_seed(seed)
        return lm.loss(lm.model(), rows([8, 8])).total.item()

    assert total(1) == total(1) != total(2)


def test_bits_per_byte_is_the_loss_in_bits(lm):
    assert lm.summarize({"loss": math.log(8)}) == {"loss": math.log(8), "bits_per_byte": pytest.approx(3)}


def test_settings_refuse_odd_heads():
    with pytest.raises(ValidationError, match="multiple of 2 × heads = 12"):
        ModelSettings(width=16, heads=6)
