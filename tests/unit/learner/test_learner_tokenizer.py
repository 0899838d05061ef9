"""The word tokenizer and the two renderings."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("torch")

from toolverse.errors import InvalidInputError
from toolverse.learner.tokenizer import SPECIAL, UNK, WordTokenizer
from toolverse.types import user


@given(st.text())
def test_decoding_gives_every_known_text_back(text: str) -> None:
    tokenizer = WordTokenizer()
    assert tokenizer.decode(tokenizer.encode(text)) == text


@given(st.text(max_size=30))
def test_offsets_cut_the_text_into_its_tokens(text: str) -> None:
    tokenizer = WordTokenizer()
    ids = tokenizer.encode(text)
    offsets = tokenizer.offsets(ids)
    pieces = [text[a:b] for a, b in itertools.pairwise(offsets)]
    assert pieces == [tokenizer.words[i] for i in ids]


def test_a_pattern_makes_a_board_row_one_token() -> None:
    tokenizer = WordTokenizer(["[ #.$@*+]{5}\n?"])
    assert len(tokenizer.encode("#####\n#@$.#\n#####")) == 3
    assert len(tokenizer.encode("right")) == 1


def test_what_is_left_out_is_not_shown_but_can_be_said() -> None:
    tokenizer = WordTokenizer(["go to shelf"], left_out=["\n", r"look\b"])
    shown = tokenizer.opening([user("go to shelf\nlook\nlookup"), {"role": "assistant", "content": "look\nup"}])
    assert [tokenizer.words[i] for i in shown] == [
        *("<user>", "go to shelf", "lookup", "<end>"),
        *("<assistant>", "look", "\nup", "<end>", "<assistant>"),
    ]
    again = WordTokenizer.from_json(tokenizer.to_json())
    assert again.shown("go to shelf\nlook") == tokenizer.shown("go to shelf\nlook")


def test_tokens_are_told_by_the_words_in_them() -> None:
    tokenizer = WordTokenizer([r"go to \w+ \d+", r"open \w+"])
    shelf, door, name = (tokenizer.encode(text)[0] for text in ("go to shelf 12", "open Shelf", " shelf"))
    parts = tokenizer.parts()
    assert len(parts) == len(tokenizer)
    assert all(parts[special] == [] for special in range(len(SPECIAL)))
    assert len(set(parts[shelf])) == 4
    assert set(parts[shelf]) & set(parts[door]) == set(parts[name])


def test_a_frozen_vocabulary_grows_no_further() -> None:
    tokenizer = WordTokenizer()
    tokenizer.encode("go to the shelf")
    size = len(tokenizer.freeze())
    assert tokenizer.encode("go to the moon")[-1] == UNK
    assert len(tokenizer) == size == len(SPECIAL) + 4


def test_a_saved_vocabulary_keeps_its_ids() -> None:
    tokenizer = WordTokenizer([r"\d+"])
    ids = tokenizer.encode("take apple 12")
    again = WordTokenizer.from_json(tokenizer.to_json())
    assert again.encode("take apple 12") == ids
    assert again.frozen


def test_a_chat_grows_without_changing_its_past() -> None:
    tokenizer = WordTokenizer()
    opening = tokenizer.opening([user("a b")])
    said = [*tokenizer.encode("left"), tokenizer.end]
    more = tokenizer.continuation([user("a b")], "left", [user("c")])
    assert more is not None
    whole = tokenizer.opening([user("a b"), {"role": "assistant", "content": "left"}, user("c")])
    assert [*opening, *said, *more] == whole


@pytest.mark.parametrize("pattern", ["(", "x*"])
def test_a_bad_pattern_is_refused(pattern: str) -> None:
    with pytest.raises(InvalidInputError, match="pattern"):
        WordTokenizer([pattern])


def test_an_uncased_tokenizer_takes_capitals_for_small_letters() -> None:
    tokenizer = WordTokenizer([r"click\["], uncased=True)
    assert tokenizer.encode("Click[Tumble Dry]") == tokenizer.shown("click[tumble dry]")
    assert tokenizer.decode(tokenizer.encode("Tumble Dry")) == "tumble dry"


def test_a_saved_uncased_tokenizer_still_is_one() -> None:
    tokenizer = WordTokenizer(left_out=[" x+"], uncased=True)
    ids = tokenizer.shown("AB XXX ab Y")
    again = WordTokenizer.from_json(tokenizer.to_json())
    assert again.shown("AB XXX ab Y") == ids
    assert again.decode(ids) == "ab ab y"
